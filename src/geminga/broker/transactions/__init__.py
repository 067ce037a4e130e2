"""Transactions in a broker: its coordinators, how they reach topics and subscriptions, and where snapshots are kept.

The rules are in :mod:`geminga.transaction`; what a topic does for transactions is its part
``topic.transaction_buffer``. Nothing here is loaded where transactions are off.
"""
