"""Permits, limits and pending acknowledgments of one consumer."""

from __future__ import annotations

import pytest

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.broker.core.dispatch.draining_hashes import HashHolders
from geminga.broker.core.dispatch.pending_acks import PendingAcks
from geminga.model import Position
from geminga.model.errors import InvariantError


def at(entry_id):
    return Position(1, entry_id)


def test_permits_go_below_zero_and_the_average_follows_batches():
    consumer = ConsumerState("c")
    assert not consumer.can_receive()
    consumer.permits = 10
    consumer.note_sent(1, 1)
    assert consumer.messages_per_entry == 1.0
    consumer.note_sent(50, 1)
    assert consumer.permits == -41
    assert consumer.messages_per_entry == pytest.approx(5.9)
    for _ in range(100):
        consumer.note_sent(1, 1)
    assert consumer.messages_per_entry == pytest.approx(1.0, abs=0.01)


def test_unacknowledged_limit_holds_until_half():
    consumer = ConsumerState("c", unacked_max=4)
    consumer.permits = 100
    assert not consumer.add_unacked(3)
    assert consumer.can_receive()
    consumer.add_unacked(2)
    assert not consumer.can_receive()
    assert not consumer.add_unacked(-2)
    assert consumer.add_unacked(-1)
    assert consumer.can_receive()
    assert not consumer.add_unacked(-1)


def test_changed_limit_is_judged_anew():
    consumer = ConsumerState("c", unacked_max=4)
    consumer.permits = 100
    consumer.add_unacked(4)
    assert not consumer.can_receive()
    assert consumer.limit_unacked(5)
    assert consumer.can_receive()
    assert not consumer.limit_unacked(3)
    assert not consumer.can_receive()
    assert not consumer.limit_unacked(2)
    assert consumer.limit_unacked(0)
    assert consumer.can_receive()


def test_no_limit_never_blocks():
    consumer = ConsumerState("c")
    consumer.permits = 1
    assert not consumer.add_unacked(10**9)
    assert consumer.can_receive()


def test_pending_acks_count_messages_and_hashes():
    pending = PendingAcks()
    pending.add(at(2), 5, 77)
    pending.add(at(1), 1, 77)
    pending.add(at(3), 1)
    assert pending.positions() == [at(1), at(2), at(3)]
    assert pending.hashes() == {77: 2}
    assert pending.reduce(at(2), 2) == 3
    assert pending.reduce(at(2), 2) == 0
    assert pending.reduce(at(9), 2) == 0
    assert (pending.count(at(2)), pending.sticky_hash(at(2)), pending.sticky_hash(at(3))) == (2, 77, 0)
    assert pending.remove(at(2)) == (2, 77)
    assert pending.remove(at(2)) is None
    assert pending.drain() == [(at(1), 1, 77), (at(3), 1, 0)]
    assert len(pending) == 0


def test_pending_twice_is_a_defect():
    pending = PendingAcks()
    pending.add(at(1), 1)
    with pytest.raises(InvariantError):
        pending.add(at(1), 1)


def test_hash_has_one_holder_until_it_is_released():
    holders = HashHolders()
    a, b = ConsumerState("a"), ConsumerState("b")
    holders.hold(5, a)
    holders.hold(5, a)
    with pytest.raises(InvariantError):
        holders.hold(5, b)
    assert not holders.release(5)
    assert holders.holder(5) is a
    assert holders.release(5)
    assert holders.holder(5) is None
    with pytest.raises(InvariantError):
        holders.release(5)
    holders.hold(5, b)
    assert len(holders) == 1
    holders.clear()
    assert holders.holder(5) is None
