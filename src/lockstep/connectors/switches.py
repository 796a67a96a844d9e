"""Properties that are on or off, and the words that models and adapters have for it. Pure."""

from __future__ import annotations

_ON = ("true", "1", "yes", "enabled")
_OFF = ("false", "0", "no", "disabled", "")
_WORDS = {
    "transactional": {"transactional": True, "normal": False},
    "addcsvopcode": {"insert": True, "upsert": True},
    "addcsvflags": {"normal": True},
    "buspersistence": {"persistent": True, "nonpersistent": False},
}
"""Words that only one property has: what is `normal` for one is on for another."""


def switch(name: str, text: str) -> bool | None:
    """Whether a property is on; None for a word that it does not have."""
    word = text.strip().lower()
    if word in _ON or word in _OFF:
        return word in _ON
    return _WORDS.get(name, {}).get(word)


def words_of(name: str) -> str:
    """The words to choose from, for people."""
    return " or ".join(["true", "false", *_WORDS.get(name, ())])
