"""Small models for the tests of validation, plan and guard."""

from __future__ import annotations

from itertools import pairwise

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import faults
from lockstep.engine.model.windows import AggregateWindow, Connector, CopyWindow, Retention, SourceWindow, Window

TRADES = Schema.parse("ID*:int32,symbol:string,price:double,quantity:int32,venue:int32,time:stamp")
SECOND = 1_000_000


def source(name="src", schema=TRADES, **options):
    return SourceWindow(name=name, schema=Schema.parse(schema) if isinstance(schema, str) else schema, **options)


def edges(*texts):
    """Edges written as 'a b' or 'a b:slot'."""
    made = []
    for text in texts:
        ends, _, slot = text.partition(":")
        first, second = ends.split()
        made.append(Edge(source=first, target=second, slot=int(slot) if slot else -1))
    return tuple(made)


def query(*windows: Window, name="q", links=(), **options):
    return ContinuousQuery(name=name, windows=windows, edges=edges(*links), **options)


def project(*windows: Window, links=(), name="p", **options):
    return Project(name=name, queries=(query(*windows, links=links),), **options)


def chain(*windows: Window, **options):
    """Each window fed by the one before it."""
    names = [window.name for window in windows]
    return project(*windows, links=[f"{a} {b}" for a, b in pairwise(names)], **options)


def told(model):
    """Faults as text, one a line."""
    return "\n".join(str(fault) for fault in faults(model))


def sliding(limit=300 * SECOND, field="time", kind="bytime_sliding", **options):
    return Retention(kind=kind, limit=limit, field=field, **options)


def summing(name, keys="symbol*:string", *, field="total:double", expression="ESP_aSum(price)"):
    return AggregateWindow(name=name, schema=Schema.parse(f"{keys},{field}"), fields=(expression,))


VWAP = Schema.parse("symbol*:string,vwap:double,low:double,high:double,deviation:double")
VWAP_FIELDS = ("ESP_aWAve(quantity,price)", "ESP_aMin(price)", "ESP_aMax(price)", "ESP_aStd(price)")


def trades_model(**source_options):
    """Volume-weighted prices over five minutes, an hour and a day."""
    options = {"insert_only": True, **source_options}
    spans = {"5Min": 300, "1HR": 3600, "24HR": 86400}
    copies = [CopyWindow(name=f"Copy{span}Ret", retention=sliding(length * SECOND)) for span, length in spans.items()]
    sums = [AggregateWindow(name=f"Aggregate{span}", schema=VWAP, fields=VWAP_FIELDS) for span in spans]
    links = [f"TradesSource Copy{span}Ret" for span in spans] + [f"Copy{span}Ret Aggregate{span}" for span in spans]
    return project(source("TradesSource", **options), *copies, *sums, links=links, name="trades")


def kafka(name, partition=None, **properties):
    pairs = {**({} if partition is None else {"kafkapartition": str(partition)}), **properties}
    return Connector(kind="kafka", name=name, properties=tuple(pairs.items()), direction=None)
