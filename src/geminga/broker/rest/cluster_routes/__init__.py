"""Calls about a cluster: its brokers, bookies, statistics, names."""
