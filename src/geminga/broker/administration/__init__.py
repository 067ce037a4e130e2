"""What administration asks of a broker, as ports: its topics, partitions, endpoints and state."""
