"""Calls about topics: partitions, messages, subscriptions, policies, schemas, statistics, transactions."""
