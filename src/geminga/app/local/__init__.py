"""A cluster of processes on one machine: ZooKeeper, bookies, brokers, started, watched and stopped together."""
