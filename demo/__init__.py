"""Real events through a real broker with the official client, a kill -9 in the middle, and a count of what came out."""
