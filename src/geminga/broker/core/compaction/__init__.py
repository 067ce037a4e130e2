"""Which messages a compacted topic keeps: pure."""
