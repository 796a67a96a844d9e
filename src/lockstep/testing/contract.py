"""The suites that every bus and every history has to pass; yours too.

    from lockstep.log.port import Bus
    from lockstep.testing.contract import LogContract

    class TestMyBackend(LogContract):
        @pytest.fixture
        def bus(self, tmp_path):
            bus = MyBus(tmp_path)       # empty, and not shared with another test
            yield bus
            bus.close()

What a bus does not promise (`bus.promises`) is not asked of it, but using it must then raise UnsupportedByBackend. Also
to override, if you can: `same_bus` (another handle on the same bus), `let_time_pass`, and `uses_threads = False` for a
bus that lives on one thread.
"""

from __future__ import annotations

from lockstep.testing.contract_append import AppendContract, ConditionContract, CopyContract
from lockstep.testing.contract_atomic import AtomicContract
from lockstep.testing.contract_bus import CloseContract, NamesContract, WaitContract
from lockstep.testing.contract_case import LogCase, Producer, records, values, views
from lockstep.testing.contract_history import HistoryContract
from lockstep.testing.contract_read import ReadContract, RoundTripContract
from lockstep.testing.contract_retention import ProtectContract, RetentionContract, TrimContract

__all__ = ["HistoryContract", "LogCase", "LogContract", "Producer", "records", "values", "views"]


class LogContract(
    AppendContract,
    ConditionContract,
    CopyContract,
    ReadContract,
    RoundTripContract,
    TrimContract,
    RetentionContract,
    ProtectContract,
    NamesContract,
    CloseContract,
    WaitContract,
    AtomicContract,
):
    """Everything lockstep.log.port says about logs, buses, waiters and transactions."""
