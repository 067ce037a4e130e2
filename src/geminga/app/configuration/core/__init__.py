"""What keys mean: those of bookies, those that a running broker takes, those that nothing here acts on. Pure."""
