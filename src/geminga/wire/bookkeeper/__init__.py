"""bookkeeper."""
