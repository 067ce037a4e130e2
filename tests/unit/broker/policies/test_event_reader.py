"""An event as it is read at another broker."""

from __future__ import annotations

from geminga.broker.policies.event_reader import PolicyEvent


def test_events_are_equal_by_what_they_say() -> None:
    assert PolicyEvent("t", True, b"", b"", "1:0") == PolicyEvent("t", True, b"", b"", "1:0")
