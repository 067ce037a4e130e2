"""Decisions of the data source: options, offsets, plans, admission. Pure: no Spark, no client, no clock."""
