"""Of what one active consumer was sent, what comes again after an abort."""

from __future__ import annotations

from geminga.broker.core.dispatch.shared import Candidate
from geminga.broker.subscription.given_back import GivenBack
from geminga.model import Position
from geminga.transaction.core.pending_acks import TxnAck


def at(entry_id: int, *, messages: int = 1, ack_set: tuple[int, ...] | None = None) -> Candidate:
    return Candidate(Position(1, entry_id), b"data", messages, 7, ack_set)


def told(candidates: list[Candidate]) -> list[tuple[int, int, object]]:
    return [(each.position.entry_id, each.message_count, each.ack_set) for each in candidates]


def test_only_what_was_given_back_is_sent_and_all_that_lies_behind() -> None:
    given = GivenBack(Position(1, 5))
    given.add([TxnAck(Position(1, 1)), TxnAck(Position(1, 3), 0b010, 3), TxnAck(Position(1, 4), 0b001, 3)])
    found = given.taken_from([at(0), at(1), at(2, messages=4), at(3, messages=3), at(4, messages=2, ack_set=(0b110,))])
    assert told(found) == [(1, 1, None), (3, 1, (0b010,))], "of the last, what was given back was acknowledged since"
    assert not given.is_over(Position(1, 4))
    assert told(given.taken_from([at(5), at(6, messages=2)])) == [(6, 2, None)]
    assert given.is_over(Position(1, 6))


def test_what_was_sent_again_is_not_sent_once_more_when_it_is_read_anew() -> None:
    given = GivenBack(Position(1, 5))
    given.add([TxnAck(Position(1, 1)), TxnAck(Position(1, 2))])
    assert told(given.taken_from([at(1)])) == [(1, 1, None)]
    given.add([TxnAck(Position(1, 0), 0b01, 2)])
    given.add([TxnAck(Position(1, 0), 0b10, 2)])
    assert told(given.taken_from([at(0, messages=2), at(1), at(2)])) == [(0, 2, (0b11,)), (2, 1, None)]
