"""Consumers: from MESSAGE frames to ``receive``, and back as acknowledgment, redelivery, dead letter and seek."""
