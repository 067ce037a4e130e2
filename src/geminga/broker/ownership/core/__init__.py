"""What clients and administrators are told about who serves a topic."""
