"""Deliveries to Python classes: how they are found and made, and what becomes of what they raise."""

from __future__ import annotations

import asyncio
import sys
import threading
from datetime import UTC, datetime
from importlib.metadata import EntryPoint, EntryPoints

import pytest
from delivery_parts import Results, custom_tenant, delivered, event
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.agenda import Form
from lockstep.errors import BadArgument
from lockstep.schedule.delivery import custom
from lockstep.schedule.delivery.custom import CustomCourier, NoOpProcessor
from lockstep.schedule.delivery.port import CourierOptions, Delivery, Outcome
from lockstep.schedule.fired import Fired, Refuse

TAKEN, REFUSED, FAILED = Outcome.TAKEN, Outcome.REFUSED, Outcome.FAILED
NO_CONSTRUCTOR = (
    "no suitable constructor found for custom processor: P, either a no-args constructor or a constructor "
    "with parameters (str, dict) is required"
)


@pytest.fixture
def courier_of():
    made = []

    def make(processors=None, **options) -> CustomCourier:
        made.append(CustomCourier(CourierOptions(processors=processors or {}, **options)))
        return made[-1]

    yield make
    for courier in made:
        courier.close()


def calling(action) -> type:
    class Calling:
        def process(self, fired: Fired) -> object:
            return action(fired)

    return Calling


def outcome_of(courier_of, action, **props):
    return delivered(courier_of({"P": calling(action)}), custom_tenant("P", **props))


# --- what a processor gets --------------------------------------------------------------------------------------------


def test_a_processor_gets_the_event(courier_of):
    got = []
    assert outcome_of(courier_of, got.append) == (TAKEN, None)
    assert got == [
        Fired(
            tenant="Orders/EU", id="e1", event_id="id-1", at=datetime(2023, 11, 14, 22, 13, 20, 1000, UTC),
            triggered_at=datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC), payload=b'{"n":1}', form=Form.JSON,
            attempt=1, dry_run=False,
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "payload", "value"),
    [
        (Form.JSON, b'{"n":[1,null]}', {"n": [1, None]}),
        (Form.TEXT, "größer".encode(), "größer"),
        (Form.BYTES, b"\xff\x00", b"\xff\x00"),
        (Form.JSON, None, None),
        (Form.TEXT, None, None),
        (Form.TEXT, b"", ""),
    ],
)
def test_the_value_is_the_payload_as_what_it_is(form, payload, value):
    assert Fired.of(event(form=form, payload=payload)).value() == value


def test_a_dry_run_and_an_event_that_was_never_tried_say_so():
    fired = Fired.of(event(triggered=None, attempt=0), dry_run=True)
    assert (fired.triggered_at, fired.attempt, fired.dry_run) == (None, 0, True)


# --- how it is found and made -----------------------------------------------------------------------------------------


class WithNothing(NoOpProcessor):
    pass


class WithTenant(NoOpProcessor):
    made: list[tuple] = []  # noqa: RUF012

    def __init__(self, tenant: str, props: dict) -> None:
        self.made.append((tenant, props))


class WithAnything(NoOpProcessor):
    def __init__(self, *given) -> None:
        self.given = given


class WithOne(NoOpProcessor):
    def __init__(self, tenant: str) -> None:
        pass


class WithThree(NoOpProcessor):
    def __init__(self, tenant: str, props: dict, more: int) -> None:
        pass


class WithNamed(NoOpProcessor):
    def __init__(self, *, tenant: str, props: dict) -> None:
        pass


@pytest.mark.parametrize("found", [WithNothing, WithTenant, WithAnything])
def test_a_class_is_made_with_nothing_or_with_tenant_and_props(courier_of, found):
    courier, tenant = courier_of({"P": found}), custom_tenant("P", mode="x")
    courier.check(tenant)
    assert delivered(courier, tenant) == (TAKEN, None)


def test_tenant_and_props_are_the_tenant_s_and_it_is_made_once_until_it_is_forgotten(courier_of):
    WithTenant.made.clear()
    courier, tenant = courier_of({"P": WithTenant}), custom_tenant("P", mode="x")
    for _ in range(3):
        delivered(courier, tenant)
    assert WithTenant.made == [("Orders/EU", {"eventProcessorClass": "P", "mode": "x"})]
    courier.forget("Orders/EU")
    delivered(courier, tenant)
    delivered(courier, custom_tenant("P", mode="y"))
    assert [props["mode"] for _, props in WithTenant.made] == ["x", "x", "y"]


@pytest.mark.parametrize("found", [WithOne, WithThree, WithNamed])
def test_another_constructor_is_refused_in_the_words_of_bigben(courier_of, found):
    courier = courier_of({"P": found})
    with pytest.raises(BadArgument) as caught:
        courier.check(custom_tenant("P"))
    assert caught.value.params["reason"] == NO_CONSTRUCTOR
    assert delivered(courier, custom_tenant("P")) == (REFUSED, NO_CONSTRUCTOR)


@pytest.mark.parametrize("name", ["NoOp", "com.walmartlabs.bigben.processors.NoOpCustomClassProcessor"])
def test_the_processor_that_does_nothing_is_there(courier_of, name):
    courier = courier_of()
    courier.check(custom_tenant(name))
    assert delivered(courier, custom_tenant(name)) == (TAKEN, None)


@pytest.mark.parametrize(
    "name", ["nobody", "os.system", "antigravity", "subprocess:Popen", f"{__name__}.WithNothing", ""]
)
def test_a_name_that_is_not_registered_is_refused_and_nothing_is_imported(courier_of, name):
    courier, before = courier_of({"P": WithNothing}), set(sys.modules)
    with pytest.raises(BadArgument, match="no processor has this name"):
        courier.check(custom_tenant(name))
    assert delivered(courier, custom_tenant(name))[0] is REFUSED
    assert "antigravity" not in set(sys.modules) - before


def registered(monkeypatch, **values):
    found = EntryPoints(EntryPoint(name, value, custom.GROUP) for name, value in values.items())
    monkeypatch.setattr(custom, "entry_points", lambda **given: found.select(**given))


def test_a_class_of_an_installed_package_is_found_by_its_entry_point(courier_of, monkeypatch):
    registered(monkeypatch, Mine=f"{__name__}:WithNothing")
    courier = courier_of()
    courier.check(custom_tenant("Mine"))
    assert delivered(courier, custom_tenant("Mine")) == (TAKEN, None)
    with pytest.raises(BadArgument):
        courier.check(custom_tenant("Yours"))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module:X", "could not be loaded"), (f"{__name__}:Absent", "could not be loaded"),
        (f"{__name__}:NO_CONSTRUCTOR", "is not a class"),
    ],
)  # fmt: skip
def test_an_entry_point_that_can_not_be_used_says_why(courier_of, monkeypatch, value, reason):
    registered(monkeypatch, Mine=value)
    with pytest.raises(BadArgument, match=reason):
        courier_of().check(custom_tenant("Mine"))


def test_a_module_that_raises_is_refused_with_the_reason(courier_of, monkeypatch, tmp_path):
    (tmp_path / "raising_module.py").write_text("raise RuntimeError('not today')")
    monkeypatch.syspath_prepend(str(tmp_path))
    registered(monkeypatch, Mine="raising_module:X")
    with pytest.raises(BadArgument, match="RuntimeError: not today"):
        courier_of().check(custom_tenant("Mine"))


def test_a_class_given_at_start_goes_before_one_of_a_package(courier_of, monkeypatch):
    registered(monkeypatch, P="no_such_module:X")
    courier_of({"P": WithNothing}).check(custom_tenant("P"))


# --- what it raises ---------------------------------------------------------------------------------------------------


def raising(error):
    def action(_fired):
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("it is too late"), (FAILED, "ValueError: it is too late")),
        (KeyError("a"), (FAILED, "KeyError: 'a'")),
        (RuntimeError(), (FAILED, "RuntimeError")),
        (SystemExit(3), (FAILED, "SystemExit: 3")),
        (KeyboardInterrupt(), (FAILED, "KeyboardInterrupt")),
        (TimeoutError("own"), (FAILED, "TimeoutError: own")),
        (asyncio.CancelledError("own"), (FAILED, "CancelledError: own")),
        (Refuse("not for me"), (REFUSED, "not for me")),
        (Refuse(), (REFUSED, "Refuse")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_processor_raises_is_its_answer(courier_of, error, expected, is_async):
    async def later(fired):
        await asyncio.sleep(0)
        raising(error)(fired)

    courier = courier_of({"P": calling(later if is_async else raising(error))})
    assert delivered(courier, custom_tenant("P")) == expected
    assert delivered(courier, custom_tenant("NoOp", "other")) == (TAKEN, None)


def test_an_error_of_ours_that_a_processor_raises_is_tried_again(courier_of):
    outcome, error = outcome_of(courier_of, raising(BadArgument(name="a", value=1, reason="own")))
    assert (outcome, error.startswith("BadArgument: ")) == (FAILED, True)


def test_what_a_constructor_raises_is_tried_again(courier_of):
    class Broken(NoOpProcessor):
        def __init__(self) -> None:
            raise OSError("no disk")

    assert delivered(courier_of({"P": Broken}), custom_tenant("P")) == (FAILED, "OSError: no disk")


def test_errors_have_no_traceback_no_secrets_and_a_bounded_length(courier_of):
    outcome, error = outcome_of(
        courier_of, raising(ValueError("login with s3cr3t-word failed")), password="s3cr3t-word"
    )
    assert (outcome, error) == (FAILED, "ValueError: login with *** failed")
    assert len(outcome_of(courier_of, raising(ValueError("x" * 100_000)))[1]) == 4096


def test_coroutines_share_one_loop(courier_of):
    loops = []

    async def process(_fired):
        loops.append(asyncio.get_running_loop())

    courier = courier_of({"P": calling(process)})
    assert [delivered(courier, custom_tenant("P"))[0] for _ in range(2)] == [TAKEN, TAKEN]
    assert loops[0] is loops[1]


# --- bounds and the end -----------------------------------------------------------------------------------------------


class Gate:
    """A processor that waits until it is opened, and counts who is inside."""

    def __init__(self) -> None:
        self.opened, self.changed = threading.Event(), threading.Condition()
        self.inside = self.most = 0

    def wait_inside(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.inside >= count, 30)

    def __call__(self, _fired: Fired) -> None:
        with self.changed:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.changed.notify_all()
        self.opened.wait(30)
        with self.changed:
            self.inside -= 1


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.opened.set()


def test_threads_are_bounded_and_one_tenant_gets_half_of_them(courier_of, gate):
    courier, results = courier_of({"P": calling(gate)}, processor_threads=6), Results()
    for number in range(30):
        courier.deliver(Delivery(event(number), custom_tenant("P")), results)
    gate.wait_inside(3)
    assert delivered(courier, custom_tenant("NoOp", "other")) == (TAKEN, None)
    gate.opened.set()
    assert {result.outcome for result in results.wait(30)} == {TAKEN}
    assert gate.most == 3


def test_a_processor_that_does_not_end_is_failed_after_the_time_out(courier_of, gate):
    courier = courier_of({"P": calling(gate)}, timeout_s=0.1)
    assert delivered(courier, custom_tenant("P")) == (FAILED, "The processor did not end within 0.1 s.")


def test_a_coroutine_that_does_not_end_is_failed_after_the_time_out(courier_of):
    async def forever(_fired):
        await asyncio.get_running_loop().create_future()

    courier = courier_of({"P": calling(forever)}, timeout_s=0.1)
    assert delivered(courier, custom_tenant("P")) == (FAILED, "The processor did not end within 0.1 s.")


def test_threads_that_hang_are_not_waited_for_forever_and_what_was_given_up_does_not_run(courier_of, gate):
    ran = []

    def once(fired):
        ran.append(fired.id)
        gate(fired)

    courier = courier_of({"P": calling(once)}, timeout_s=0.1, processor_threads=1)
    assert delivered(courier, custom_tenant("P"))[0] is FAILED
    second = Results()
    courier.deliver(Delivery(event(2), custom_tenant("P")), second)
    assert second.wait(1)[0].error == "Not begun: all threads of processors were busy for 0.1 s."
    gate.opened.set()
    third = Results()
    courier.deliver(Delivery(event(3), custom_tenant("P")), third)
    third.wait(1)
    assert ran == ["e1", "e3"]


def test_close_ends_all_that_is_under_way_once_each(courier_of, gate):
    courier, results = courier_of({"P": calling(gate)}, processor_threads=4), Results()
    for number in range(10):
        courier.deliver(Delivery(event(number), custom_tenant("P")), results)
    gate.wait_inside(2)
    courier.close()
    assert {result.outcome for result in results.now} == {FAILED}
    gate.opened.set()
    assert sorted(results.times().values()) == [1] * 10


def test_close_cancels_coroutines(courier_of):
    begun, ended = threading.Event(), []

    async def forever(_fired):
        try:
            begun.set()
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    courier, results = courier_of({"P": calling(forever)}), Results()
    courier.deliver(Delivery(event(), custom_tenant("P")), results)
    assert begun.wait(30)
    courier.close()
    assert (ended, [result.outcome for result in results.now]) == (["cancelled"], [FAILED])


@pytest.mark.slow
@settings(max_examples=25)
@given(
    kinds=st.lists(st.sampled_from(["fine", "raises", "refuses", "slow", "exits"]), min_size=1, max_size=25),
    threads=st.integers(1, 6),
    closes_early=st.booleans(),
)
def test_every_delivery_has_one_result_whatever_a_processor_does(kinds, threads, closes_early):
    gate = Gate()
    actions = {"fine": lambda _: None, "raises": raising(ValueError()), "refuses": raising(Refuse("no")),
               "slow": gate, "exits": raising(SystemExit())}  # fmt: skip
    known = {kind: calling(action) for kind, action in actions.items()}
    courier = CustomCourier(CourierOptions(processors=known, processor_threads=threads))
    results = Results()
    for number, kind in enumerate(kinds):
        tenant = custom_tenant(kind, kind)
        courier.deliver(Delivery(event(number, tenant=kind), tenant), results)
    if not closes_early:
        gate.opened.set()
        results.wait(len(kinds))
    courier.close()
    gate.opened.set()
    assert results.times() == {f"e{number}": 1 for number in range(len(kinds))}
    expected = {"fine": TAKEN, "slow": TAKEN, "refuses": REFUSED}
    for result in () if closes_early else results.now:
        assert result.outcome is expected.get(result.delivery.tenant.tenant, FAILED)
