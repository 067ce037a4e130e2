"""The broker, put together: its rooms built from below, its metrics, and what starts with the first transaction."""
