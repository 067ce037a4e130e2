"""What all managed ledgers of a broker share: ports, settings, metadata, cache of entries, budgets."""
