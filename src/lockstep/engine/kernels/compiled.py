"""How loops are compiled: once for each kind of arguments, kept on disk, with the arithmetic exactly as written."""

from __future__ import annotations

import logging
from typing import Any

from numba import njit

logger = logging.getLogger(__name__)


def compiled(function: Any) -> Any:
    """A function as machine code; kept on disk if there is a folder for it that can be written to.

    Other threads run meanwhile: an engine that computes in its own process still says in time that it is there.
    """
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError as error:  # the package, the home folder and NUMBA_CACHE_DIR are all read-only
        logger.debug("Compiled again in each process", extra={"action": "no_cache", "reason": str(error)})
        return njit(nogil=True)(function)
