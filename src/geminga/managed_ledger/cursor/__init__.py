"""Cursors: where each subscription stands, kept in ledgers and nodes, and what they read."""
