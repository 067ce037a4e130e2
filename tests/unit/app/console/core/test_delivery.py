"""How a message stands with a subscription."""

from __future__ import annotations

from typing import Any

import pytest

from geminga.app.console.core.delivery import (
    DeliveryFacts,
    DeliveryState,
    MessageDelivery,
    delivery_of,
    is_told_by_cursor,
)
from geminga.app.console.core.positions import EntryPlace

CURSOR = {
    "markDeletePosition": "3:1",
    "readPosition": "3:8",
    "individuallyDeletedMessages": "[(3:3..3:5],(3:6..3:7]]",
}
CONSUMERS = [{"consumerName": "a", "unackedMessages": 2}, {"consumerName": "b", "unackedMessages": 0}]


def stand(entry: int, index: int = -1, **changes: Any) -> MessageDelivery:
    facts = DeliveryFacts(EntryPlace(3, entry), index, 0, 1000, {"type": "Shared", "consumers": CONSUMERS}, CURSOR)
    return delivery_of(facts._replace(**changes))


@pytest.mark.parametrize(
    ("entry", "standing"),
    [
        (1, DeliveryState.ACKNOWLEDGED),
        (2, DeliveryState.PENDING),
        (3, DeliveryState.PENDING),
        (4, DeliveryState.ACKNOWLEDGED),
        (5, DeliveryState.ACKNOWLEDGED),
        (6, DeliveryState.PENDING),
        (7, DeliveryState.ACKNOWLEDGED),
        (8, DeliveryState.WAITING),
    ],
)
def test_cursor_says_what_is_done(entry: int, standing: DeliveryState) -> None:
    assert stand(entry).standing is standing


def test_what_the_broker_tells_of_the_backlog_comes_before_its_ranges() -> None:
    assert stand(4, positions=[{"id": "3:4"}]).standing is DeliveryState.PENDING
    assert stand(6, positions=[{"id": "3:8"}]).standing is DeliveryState.ACKNOWLEDGED
    batch = [{"id": "3:6", "indexes": [1, 2]}]
    assert stand(6, 0, positions=batch).standing is DeliveryState.ACKNOWLEDGED
    assert stand(6, 1, positions=batch).standing is DeliveryState.PENDING


def test_delayed_message_says_when_it_comes() -> None:
    found = stand(2, deliver_at_ms=62_000)
    assert found == MessageDelivery(DeliveryState.DELAYED, "It is delayed: it is delivered in 1 min 1 s.")
    # Other types deliver at once.
    assert stand(2, deliver_at_ms=62_000, subscription={"type": "Exclusive"}).standing is DeliveryState.PENDING
    assert stand(2, deliver_at_ms=999).standing is DeliveryState.PENDING


def test_pending_message_names_who_holds_messages() -> None:
    assert "that hold messages without acknowledgment: a (2)." in stand(2).sentence
    assert "no consumer holds it now" in stand(2, subscription={"consumers": CONSUMERS[1:]}).sentence
    assert "no consumer is connected" in stand(2, subscription={}).sentence
    many = [{"consumerName": str(number), "unackedMessages": 1} for number in range(6)]
    assert stand(2, subscription={"consumers": many}).sentence.endswith("3 (1), 4 (1), ....")


def test_waiting_message_says_for_what() -> None:
    assert stand(9).sentence == "It waits: the subscription has not come to it yet."
    assert stand(9, subscription={}).sentence == "It waits: no consumer is connected."


def test_without_a_cursor_it_waits() -> None:
    assert stand(0, cursor={}).standing is DeliveryState.WAITING


@pytest.mark.parametrize(
    ("cursor", "in_batch", "is_told"),
    [
        (CURSOR, False, True),
        ({**CURSOR, "totalNonContiguousDeletedMessagesRange": 2}, False, True),
        ({**CURSOR, "totalNonContiguousDeletedMessagesRange": 3}, False, False),
        (CURSOR, True, False),
        ({**CURSOR, "geminga": {"partlyAcknowledgedBatches": 0}}, True, True),
        ({**CURSOR, "geminga": {"partlyAcknowledgedBatches": 1}}, True, False),
    ],
)
def test_backlog_is_looked_through_only_where_the_cursor_does_not_tell(
    cursor: dict[str, Any], in_batch: bool, is_told: bool
) -> None:
    assert is_told_by_cursor(cursor, in_batch=in_batch) is is_told
