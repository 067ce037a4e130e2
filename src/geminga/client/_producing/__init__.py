"""Producers: from ``send`` to the SEND frame and back from its receipt; one topic, partitions, interceptors."""
