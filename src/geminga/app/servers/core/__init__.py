"""Decisions of servers: addresses that are told, which child takes which bundles, rows of metrics. Pure."""
