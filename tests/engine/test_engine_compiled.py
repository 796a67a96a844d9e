"""Loops are compiled also where nothing can be kept on disk."""

from __future__ import annotations

from lockstep.engine.columns import loops as module


def test_a_loop_is_compiled_without_a_folder_for_the_result(monkeypatch):
    real = module.njit

    def read_only(*, nogil, cache=False):
        if cache:

            def refuse(function):
                raise RuntimeError(f"cannot cache function {function.__name__!r}: no locator available")

            return refuse
        return real(nogil=nogil)

    monkeypatch.setattr(module, "njit", read_only)
    assert module.compiled(lambda x: x + 1)(2) == 3
