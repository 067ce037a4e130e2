"""Messages of topics go to other clusters: what is copied, by which cursor, over which link."""
