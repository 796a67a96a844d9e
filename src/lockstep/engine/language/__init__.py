"""One expression language for every form of a model: parsed, typed against a schema, run on rows and on columns."""

from __future__ import annotations
