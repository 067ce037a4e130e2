"""What a broker asks of the other brokers of its cluster, as a client of their admin REST."""
