"""Where the messages of a batch lie in its payload."""
