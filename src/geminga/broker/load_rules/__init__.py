"""Decisions about load: pure, over what brokers reported."""
