"""Volume-weighted prices of every symbol over five minutes, an hour and a day."""

from __future__ import annotations

from lockstep.models import ProjectBuilder, Stream, sliding

TRADE = (
    "ID*:int32,symbol:string,currency:int32,udate:int64,msecs:int32,price:double,quantity:int32,"
    "venue:int32,broker:int32,buyer:int32,seller:int32,buysellflg:int32,time:stamp"
)


def prices(trades: Stream, name: str) -> Stream:
    """What the trades of each symbol cost."""
    return trades.aggregate(
        name,
        by="symbol",
        vwap="ESP_aWAve(quantity,price)",
        low="ESP_aMin(price)",
        high="ESP_aMax(price)",
        deviation="ESP_aStd(price)",
    )


project = ProjectBuilder("trades")
query = project.query("trades")
trades = query.source("TradesSource", TRADE, insert_only=True).options(index="pi_HASH")

five_minutes = trades.copy("Copy5MinRet", retain=sliding("5 minutes", field="time"))
an_hour = trades.copy("Copy1HRRet", retain=sliding("1 hour", field="time"))
a_day = trades.copy("Copy24HRRet", retain=sliding("24 hours", field="time"))

prices(five_minutes, "Aggregate5min")
prices(an_hour, "Aggregate1HR")
prices(a_day, "Aggregate24HR")
