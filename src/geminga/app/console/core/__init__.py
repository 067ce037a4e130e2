"""Pure parts of the console."""
