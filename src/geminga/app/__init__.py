"""What runs: configuration from files, environment and options; compositions that join all packages; the command line.

Promises: an unknown key is a warning that names it, a bad value an error that names key, value and expectation; a data
directory belongs to one process at a time; SIGTERM ends in order. No other package knows this one.
"""
