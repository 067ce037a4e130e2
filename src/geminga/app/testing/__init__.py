"""What tests of applications need beside a running broker: one that is killed, one whose disk is full, one whose clock
moves. Public through :mod:`geminga.pytest_plugin`, and loaded by whoever asks for it."""
