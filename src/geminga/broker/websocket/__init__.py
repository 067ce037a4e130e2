"""Pulsar's WebSocket API: producers, consumers and readers for who speaks HTTP and nothing else of Pulsar's."""
