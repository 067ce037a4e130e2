"""Transactions: how they end, and the coordinators that keep them."""
