"""Topics as tables and streams: positions, reading of ranges, Arrow batches, the readers that Spark calls."""
