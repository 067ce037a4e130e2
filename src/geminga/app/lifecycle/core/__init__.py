"""How many descriptors a process asks for, and what of. Pure."""
