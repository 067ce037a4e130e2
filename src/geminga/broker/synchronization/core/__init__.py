"""What is decided of paths, records and events. Pure."""
