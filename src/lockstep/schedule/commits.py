"""The commits of a node. While a server stores what some shards changed, the node goes on with the others.

At most one commit is under way, and it has ended before the next begins. A shard whose commit is under way is left
alone until the outcome is known: each of its steps begins from what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lockstep.errors import LockstepError
from lockstep.schedule.rounds import OwnedShard, Round
from lockstep.schedule.rows import Change
from lockstep.schedule.store.port import Store


@dataclass(eq=False, slots=True)
class Commit:
    """What one round stores, and what became of it."""

    round_: Round
    owned: dict[int, OwnedShard]
    """The shards that it is about, as they were when it began."""
    changes: list[Change]
    refused: set[int] = field(default_factory=set)
    """Shards whose fence did not hold."""
    error: LockstepError | None = None


class Commits:
    """Begins and ends the commits of a node, one at a time. Only the loop of the node calls it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._under_way: tuple[Commit, Callable[[], set[int]]] | None = None
        self._turn = 0

    def next_shards(self, owned: Mapping[int, OwnedShard], *, is_behind: bool) -> list[int]:
        """The shards of the next round.

        If the node `is_behind`, and the store is a server, these are half of them, so that the other half is free
        during the commit.
        """
        free = [number for number, one in owned.items() if not one.is_committing]
        most = -(-len(owned) // 2)
        if not self._store.is_remote or not is_behind or len(free) <= most:
            return free
        chosen = sorted(free, key=lambda number: owned[number].turn)[:most]
        self._turn += 1
        for number in chosen:
            owned[number].turn = self._turn
        return chosen

    def begin(self, commit: Commit) -> None:
        """Begin to store changes; `end` tells the outcome. The commit before has ended."""
        assert self._under_way is None, "the commit before has not ended"
        for one in commit.owned.values():
            one.is_committing = True
        waits: Callable[[], set[int]] = set
        if commit.changes:
            try:
                waits = self._store.begin(commit.changes)
            except LockstepError as error:
                commit.error = error
        self._under_way = commit, waits

    def end(self) -> Commit | None:
        """Wait for the outcome of the commit that is under way, if one is; its shards are free again."""
        if self._under_way is None:
            return None
        (commit, waits), self._under_way = self._under_way, None
        if commit.error is None:
            try:
                commit.refused = waits()
            except LockstepError as error:
                commit.error = error
        for one in commit.owned.values():
            one.is_committing = False
        return commit

    def close(self) -> None:
        """Wait for what is under way; the next owner of its shards reads what became of it."""
        self.end()
