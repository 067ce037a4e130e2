"""The log of a topic as a list of ledgers: appended, rolled over, read, followed at its end."""
