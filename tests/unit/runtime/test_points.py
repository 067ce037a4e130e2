"""Crash points and sometimes: nothing in production, the hook's business under simulation."""

from __future__ import annotations

import timeit

from geminga.runtime import crash_point, is_halted, sometimes
from geminga.runtime.points import set_point_hook


class Hook:
    def __init__(self):
        self.seen = []

    def crash_point(self, label):
        self.seen.append(label)

    def sometimes(self, label, percent):
        self.seen.append((label, percent))
        return True

    def is_halted(self):
        return True


def test_points_without_a_hook_do_nothing():
    crash_point("a.b")
    assert sometimes("a.b", 100) is False
    assert is_halted() is False


def test_points_with_a_hook_ask_it():
    hook = Hook()
    set_point_hook(hook)
    try:
        crash_point("a.b")
        assert sometimes("c.d", 5)
        assert is_halted()
    finally:
        set_point_hook(None)
    assert hook.seen == ["a.b", ("c.d", 5)]


def test_crash_point_without_a_hook_costs_little():
    """Bound far above the 40 to 70 ns measured, to hold on a busy machine."""
    assert min(timeit.repeat(lambda: crash_point("a.b"), number=20_000, repeat=5)) / 20_000 < 1e-6
