"""Consumers: from MESSAGE frames to ``receive``, and back as acknowledgement, redelivery, dead letter and seek."""
