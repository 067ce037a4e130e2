"""What a subscription has done with one message, in a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from geminga.app.console.core.moments import age_text
from geminga.app.console.core.positions import EntryPlace

#: Consumers that a sentence names.
NAMED_MAX: Final = 5
_POSITION: Final = re.compile(r"(-?[0-9]+):(-?[0-9]+)")
_FIRST: Final = EntryPlace(-1, -1)


class DeliveryState(StrEnum):
    """Of a message."""

    ACKNOWLEDGED = "acknowledged"
    DELAYED = "delayed"
    PENDING = "pending"
    WAITING = "waiting"


class MessageDelivery(NamedTuple):
    """How a message stands with a subscription."""

    standing: DeliveryState
    sentence: str


class DeliveryFacts(NamedTuple):
    """What was asked about a message and a subscription."""

    place: EntryPlace
    #: In a batch; -1: it is none.
    batch_index: int
    #: Milliseconds since the epoch; 0: at once.
    deliver_at_ms: int
    now_ms: int
    #: Of the subscription, in ``stats``.
    subscription: Mapping[str, Any]
    #: Of its cursor, in ``internalStats``.
    cursor: Mapping[str, Any]
    #: What is not acknowledged, from the message on, as ``analyzeBacklog`` of Geminga's tells it; None: it does not.
    positions: Sequence[Mapping[str, Any]] | None = None


def delivery_of(facts: DeliveryFacts) -> MessageDelivery:
    """The first that holds."""
    if _is_acknowledged(facts):
        return MessageDelivery(DeliveryState.ACKNOWLEDGED, "It is acknowledged: the subscription is done with it.")
    if facts.deliver_at_ms > facts.now_ms and facts.subscription.get("type") in ("Shared", "Key_Shared"):
        left = age_text(facts.deliver_at_ms - facts.now_ms)
        return MessageDelivery(DeliveryState.DELAYED, f"It is delayed: it is delivered in {left}.")
    read = _place(str(facts.cursor.get("readPosition", "")))
    if facts.place < read:
        return MessageDelivery(DeliveryState.PENDING, _pending(facts.subscription))
    return MessageDelivery(DeliveryState.WAITING, _waiting(facts.subscription))


def is_told_by_cursor(cursor: Mapping[str, Any], *, in_batch: bool) -> bool:
    """Whether ``internalStats`` says alone which messages are acknowledged: else the backlog has to be looked through.

    They tell so many ranges at most, and of a batch not which of its messages.
    """
    if len(_ranges(str(cursor.get("individuallyDeletedMessages", "")))) < _number(
        cursor.get("totalNonContiguousDeletedMessagesRange")
    ):
        return False
    parts = (cursor.get("geminga") or {}).get("partlyAcknowledgedBatches")
    return not in_batch or parts == 0


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _pending(subscription: Mapping[str, Any]) -> str:
    held = [
        (str(each.get("consumerName") or "without a name"), int(each.get("unackedMessages", 0)))
        for each in subscription.get("consumers", ())
    ]
    holding = [f"{name} ({count})" for name, count in held if count]
    if not subscription.get("consumers"):
        return (
            "It was read and is not acknowledged; no consumer is connected, so the next one that comes gets it again."
        )
    if not holding:
        return "It was read and is not acknowledged; no consumer holds it now, so it is to be delivered again."
    shown = ", ".join(holding[:NAMED_MAX]) + (", ..." if len(holding) > NAMED_MAX else "")
    return f"It was read and is not acknowledged. Consumers that hold messages without acknowledgment: {shown}."


def _waiting(subscription: Mapping[str, Any]) -> str:
    if not subscription.get("consumers"):
        return "It waits: no consumer is connected."
    return "It waits: the subscription has not come to it yet."


def _is_acknowledged(facts: DeliveryFacts) -> bool:
    if facts.place <= _place(str(facts.cursor.get("markDeletePosition", ""))):
        return True
    if facts.positions is not None:
        for each in facts.positions:
            if _place(str(each.get("id", ""))) == facts.place:
                indexes = each.get("indexes")
                return indexes is not None and facts.batch_index >= 0 and facts.batch_index not in indexes
        return True
    return any(
        first < facts.place <= last for first, last in _ranges(str(facts.cursor.get("individuallyDeletedMessages", "")))
    )


def _ranges(text: str) -> list[tuple[EntryPlace, EntryPlace]]:
    """``[(3:1..3:4],(3:6..3:7]]``: open at their beginning, closed at their end."""
    found = [EntryPlace(int(each[1]), int(each[2])) for each in _POSITION.finditer(text)]
    return [*zip(found[::2], found[1::2], strict=False)]


def _place(text: str) -> EntryPlace:
    found = _POSITION.match(text)
    return EntryPlace(int(found[1]), int(found[2])) if found is not None else _FIRST
