"""``make chaos``: a cluster of processes on this machine, faults by a seeded plan, and whether its history is right."""
