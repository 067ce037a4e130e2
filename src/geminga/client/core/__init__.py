"""The client's pure cores: no loop, no clock, no randomness; events and time are handed in."""
