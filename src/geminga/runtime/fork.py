"""Whether this process was forked since: what holds sockets and loops of its parent must not be used any more."""

from __future__ import annotations

import os

_generation = 0


def fork_generation() -> int:
    """How often this process and its ancestors were forked; remember it, and compare."""
    return _generation


def _forked() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
