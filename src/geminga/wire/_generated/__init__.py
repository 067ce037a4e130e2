"""_generated."""
