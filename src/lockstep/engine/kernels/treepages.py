"""The state of windows that go row by row as pages of which only those are written that changed.

Long lists in a state are cut into pieces where the content says so: after an item whose checksum ends in zeros. So
items that come, go or change in a list change the pieces that they are in, and no others. A piece is named by its
digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from zlib import crc32

import msgpack

from lockstep.engine.errors import SnapshotDamaged
from lockstep.engine.kernels import pages
from lockstep.engine.windows.operator import Tree

ROWS = "rows"
"""The page with the state, but for its pieces, which are called `rows.DIGEST`."""
LONG = 256
"""Lists with more items are cut."""
_ENDS, _MOST = 0x7F, 1024
"""A piece has some 128 items, and at most 1,024."""
_PIECES = 3
_DIGEST_BYTES = 12


class TreePages:
    """Remembers which pieces are stored. `place` says in errors whose state it is."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._stored: frozenset[str] = frozenset()

    def changes(self, tree: Tree) -> Iterator[tuple[str, bytes | None]]:
        """The pages of a state that are not stored yet, and those that are no longer needed."""
        pieces: dict[str, bytes] = {}
        page = pages.pack(_cut(tree, pieces))
        for name in sorted(self._stored - pieces.keys()):
            yield name, None
        for name, piece in pieces.items():
            if name not in self._stored:
                yield name, piece
        self._stored = frozenset(pieces)
        yield ROWS, page

    def load(self, found: Mapping[str, bytes]) -> Tree:
        """The state in pages, or None if there is none. What is not one of them is refused."""
        odd = sorted(name for name in found if name != ROWS and not name.startswith(f"{ROWS}."))
        if odd or (found and ROWS not in found):
            reason = f"{odd[0] if odd else next(iter(found))} is not a page of a window that works row by row"
            raise SnapshotDamaged(place=self._place, reason=reason)
        if not found:
            return None
        self._stored = frozenset(name for name in found if name != ROWS)
        return self._whole(pages.unpack(found[ROWS]), found)

    def _whole(self, tree: Tree, found: Mapping[str, bytes]) -> Tree:
        if isinstance(tree, dict):
            return {key: self._whole(value, found) for key, value in tree.items()}
        if isinstance(tree, list):
            return [self._whole(value, found) for value in tree]
        if not isinstance(tree, msgpack.ExtType):
            return tree
        names = msgpack.unpackb(tree.data)
        missing = [name for name in names if name not in found]
        if missing:
            raise SnapshotDamaged(place=self._place, reason=f"its page {missing[0]} is not there")
        return [item for name in names for item in pages.unpack(found[name])]


def _cut(tree: Tree, pieces: dict[str, bytes]) -> Tree:
    """The state with its long lists taken out, which are put to the pieces."""
    if isinstance(tree, dict):
        return {key: _cut(value, pieces) for key, value in tree.items()}
    if not isinstance(tree, list | tuple):
        return tree
    if len(tree) <= LONG:
        return [_cut(value, pieces) for value in tree]
    names = []
    for piece in _pieces(tree):
        names.append(f"{ROWS}.{blake2b(piece, digest_size=_DIGEST_BYTES).hexdigest()}")
        pieces[names[-1]] = piece
    return msgpack.ExtType(_PIECES, msgpack.packb(names))


def _pieces(items: Sequence[Tree]) -> Iterator[bytes]:
    packed: list[bytes] = []
    for item in items:
        packed.append(pages.pack(item))
        if not crc32(packed[-1]) & _ENDS or len(packed) == _MOST:
            yield _list_of(packed)
            packed = []
    if packed:
        yield _list_of(packed)


def _list_of(packed: Sequence[bytes]) -> bytes:
    """Packed items as one packed list."""
    header: bytes = msgpack.Packer().pack_array_header(len(packed))
    return header + b"".join(packed)
