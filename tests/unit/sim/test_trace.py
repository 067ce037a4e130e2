"""The trace: a hash over every event, and the last of them as a story."""

from __future__ import annotations

from geminga.sim import trace as module
from geminga.sim.trace import STORY_EVENTS_MAX, Trace


def filled(*fields):
    trace = Trace()
    for number, field in enumerate(fields):
        trace.add(number / 2, "node", field)
    return trace


def test_digest_depends_on_events_their_time_and_order():
    assert filled("a", "b").digest() == filled("a", "b").digest()
    assert len({filled("a", "b").digest(), filled("b", "a").digest(), filled("a").digest(), filled().digest()}) == 4


def test_story_has_the_last_events_and_the_digest_all():
    trace = filled(*range(STORY_EVENTS_MAX + 10))
    lines = trace.story().split("\n")
    assert len(lines) == STORY_EVENTS_MAX
    assert lines[0] == "5.000000 node 10"
    assert trace.events == STORY_EVENTS_MAX + 10


def test_when_events_become_text_changes_nothing(monkeypatch):
    events = [*range(STORY_EVENTS_MAX + 10)]
    asked = Trace()
    for number, event in enumerate(events):
        asked.add(number / 2, "node", event)
        asked.digest()
    whole = filled(*events)
    monkeypatch.setattr(module, "EVENTS_HELD_MAX", 7)
    for trace in (whole, filled(*events)):
        assert (trace.digest(), trace.story(), trace.events) == (asked.digest(), asked.story(), len(events))
