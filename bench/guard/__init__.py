"""The cost per message of this tree beside that of another commit, counted instead of timed: ``make bench-guard``."""
