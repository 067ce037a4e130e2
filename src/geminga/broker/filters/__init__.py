"""Entry filters of a broker: their processes, and what of them concerns one subscription. Loaded with the first."""
