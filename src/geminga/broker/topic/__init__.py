"""A loaded topic: its producers and what they publish, its storage and what goes with it."""
