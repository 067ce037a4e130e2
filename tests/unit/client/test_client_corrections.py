"""What is often said wrongly about the client; each test is named after what it prevents."""

from __future__ import annotations

from datetime import timedelta

import pytest

from geminga.client._producing.messages import MessageBuilder
from geminga.client.consumer_rules.negative_acks import NegativeAcks, precision_ms
from geminga.client.consumer_rules.unacked_tracker import UnackedTracker
from geminga.client.producer_rules.message import EncodedMessage


class Noon:
    """A clock that stands at noon."""

    def wall_ms(self) -> int:
        return 43_200_000

    def monotonic(self) -> float:
        return 1.0


def built(**fields) -> EncodedMessage:
    return MessageBuilder(Noon()).build(b"x", fields)


def test_f2_a_delay_is_not_taken_for_a_point_in_time_nor_the_other_way_round() -> None:
    assert built(deliver_at=5000).deliver_at_ms == 5000
    assert built(deliver_after=timedelta(seconds=5)).deliver_at_ms == 43_205_000


def test_f4_delayed_messages_are_never_put_into_a_batch() -> None:
    assert built().is_batchable
    assert not built(deliver_at=5000).is_batchable
    assert not built(deliver_after=timedelta(seconds=5)).is_batchable


def test_f13_negative_acknowledgments_do_not_tick_every_33_milliseconds_whatever_their_delay() -> None:
    # Pulsar's tick is a third of the delay, 33 ms being its floor; ours is the power of two below, at most 256 ms.
    assert precision_ms(60_000) == 256
    assert precision_ms(100) == 32
    assert precision_ms(1) == 32


@pytest.mark.parametrize("count", [1, 1000])
def test_f13_negative_acknowledgments_of_one_time_leave_together(count: int) -> None:
    waiting = NegativeAcks(60_000)
    for entry in range(count):
        waiting.add((1, entry), 0)
    due_ms = waiting.next_due_ms
    assert due_ms is not None
    assert 60_000 <= due_ms <= 60_256
    assert len(list(waiting.due(due_ms))) == count
    assert waiting.next_due_ms is None


def test_f14_the_quotient_of_timeout_and_tick_is_the_number_of_slots_and_not_the_tick() -> None:
    tracker = UnackedTracker(10_000, 3_000)
    assert tracker.slot_count == 5
    assert tracker.tick_ms == 3_000
