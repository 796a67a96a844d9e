"""Learning that a part is in a spool, without looking into its folder all the time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lockstep.log.inotify import IN_MOVED_TO, FileWaiter


class SpoolWaiter(FileWaiter):
    """A waiter that ends when a worker of this machine leaves a part in one of the folders: parts appear by a rename.

    `is_told` is false where the kernel tells nothing; then whoever waits has to look.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        super().__init__()
        self.is_told = all(self.add_watch(str(folder), folder, IN_MOVED_TO) for folder in folders)
