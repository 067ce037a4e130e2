"""Transactions: all that one of them publishes and acknowledges counts, or none of it.

Pure decisions are in :mod:`.core`: what a coordinator knows, which messages of a topic may be read, what a subscription
holds acknowledged for whom. Formats: docs/formats/transactions.md. Knows nothing of brokers, topics or connections.
"""
