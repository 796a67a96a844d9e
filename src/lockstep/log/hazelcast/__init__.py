"""The bus on a Hazelcast cluster: a ring for each stream, and a map with what is known about all of them."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # On Python 3.11 the client imports asyncore, which warns; on 3.12 and later it brings its own.
    warnings.filterwarnings("ignore", "The asyncore module", DeprecationWarning)
    import hazelcast as _client  # noqa: F401
