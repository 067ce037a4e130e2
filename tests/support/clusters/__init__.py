"""Clusters of brokers and bookies in the simulator, and what happens to them."""
