"""Publish events to the source windows of a project, and subscribe to the output of its windows.

with lockstep.events.connect("lmdb:./bus") as events:
    trades = events.project("trades")
    with trades.publisher("TradesSource", block=64) as publisher:
        publisher.publish({"ID": 1, "symbol": "IBM", "price": 101.5})
    for row in trades.subscribe("Aggregate24HR", snapshot=True, timeout=5):
        print(row)
"""

from __future__ import annotations

from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.events.connection import Events, ProjectEvents, connect
from lockstep.events.positions import Position
from lockstep.events.publisher import Sent, WindowPublisher
from lockstep.events.subscriber import Block, SubscribeOptions, Subscription

__all__ = [
    "Block",
    "Event",
    "Events",
    "Flag",
    "Opcode",
    "Position",
    "ProjectEvents",
    "Sent",
    "SubscribeOptions",
    "Subscription",
    "WindowPublisher",
    "connect",
]
