"""bookie."""
