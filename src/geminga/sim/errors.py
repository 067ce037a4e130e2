"""What can go wrong with a simulation itself, as opposed to the code under it."""

from __future__ import annotations


class SimError(Exception):
    """The scenario asked for something that a simulation can not do, or the world is stuck."""


class SimDeadlockError(SimError):
    """Nothing is left to run, no timer is set, and the scenario still waits."""


class SimLivelockError(SimError):
    """Too many steps without virtual time moving, or virtual time ran past its limit."""


class SimEscapeError(SimError):
    """The code under test reached for a thread, a real socket or a signal."""


class NodeCrashedError(Exception):
    """The node whose result was awaited lost power."""
