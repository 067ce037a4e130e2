"""Statistics of topics as Pulsar tells them, of one topic and of all partitions together."""
