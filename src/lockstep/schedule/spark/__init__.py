"""The wide work of a scheduler on Spark: files and sources of requests, reports, forecasts. Firing needs none of it."""
