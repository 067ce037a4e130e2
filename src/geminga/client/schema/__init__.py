"""Schemas of messages."""
