"""managed_ledger."""
