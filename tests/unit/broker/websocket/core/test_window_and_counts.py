"""How many messages a socket may be sent, what all may hold, and what is counted."""

from __future__ import annotations

import pytest

from geminga.broker.websocket.core.counts import LATENCY_BOUNDS_US, RATE_NAMES, Interval, SocketCounts
from geminga.broker.websocket.core.window import PERMITS_MAX, CountWindow, PullWindow, PushWindow
from geminga.model.errors import InvariantError


def test_push_closes_at_its_size_and_opens_with_what_is_acknowledged() -> None:
    window = PushWindow(2)
    window.sent("a")
    assert window.is_open
    window.sent("b")
    assert not window.is_open
    window.passed("of another socket")
    assert not window.is_open
    window.passed("a")
    window.passed("a")
    assert window.is_open
    window.sent("c")
    assert not window.is_open


def test_push_counts_a_message_once_that_came_again() -> None:
    window = PushWindow(2)
    window.sent("a")
    window.sent("a")
    assert window.is_open


def test_push_opens_by_all_before_a_cumulative_acknowledgment() -> None:
    window = PushWindow(3)
    for one in "abc":
        window.sent(one)
    window.passed_to("unknown")
    assert not window.is_open
    window.passed_to("b")
    for one in "de":
        assert window.is_open
        window.sent(one)
    assert not window.is_open


def test_pull_permits_what_was_permitted() -> None:
    window = PullWindow()
    assert not window.is_open
    window.permitted(2)
    window.sent("a")
    window.passed("a")
    window.passed_to("a")
    window.sent("b")
    assert not window.is_open
    with pytest.raises(InvariantError):
        window.sent("c")
    window.permitted(PERMITS_MAX)
    window.permitted(PERMITS_MAX)
    assert window.is_open


def test_pushing_takes_no_permits() -> None:
    window = PushWindow(1)
    window.sent("a")
    window.permitted(10)
    assert not window.is_open


def test_readers_window_never_owes_more_than_it_sent() -> None:
    window = CountWindow(2)
    window.passed()
    window.sent()
    window.sent()
    assert not window.is_open
    window.passed()
    assert window.is_open


def test_counts_have_pulsars_buckets_and_intervals_tell_what_came_in_them() -> None:
    counts, interval = SocketCounts(), Interval()
    counts.stored(10, 0.0005)
    counts.stored(10, 0.0006)
    counts.stored(10, 5.0)
    interval.turn({"a/b": counts})
    first = interval.last["a/b"]
    assert first["ns_msg_publish_rate"] == 3
    assert first["ns_byte_publish_rate"] == 30
    assert first[f"ns_msg_publish_latency_{LATENCY_BOUNDS_US[0]}"] == 1
    assert first["ns_msg_publish_latency_1000"] == 1
    assert first["ns_msg_publish_latency_1000000_higher"] == 1
    counts.delivered(7)
    counts.acknowledged += 1
    interval.turn({"a/b": counts})
    second = interval.last["a/b"]
    assert second["ns_msg_publish_rate"] == 0
    assert (second["ns_msg_deliver_rate"], second["ns_byte_deliver_rate"], second["ns_msg_ack_rate"]) == (1, 7, 1)
    assert set(second) == set(RATE_NAMES)
