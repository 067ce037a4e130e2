"""Ledgers that move to the lake: written, kept in manifests, read back, restored."""
