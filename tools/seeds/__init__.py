"""``make sim``: a simulation over many seeds, in processes of its own, with a log that runs of one commit add to."""
