"""Message ids as texts, as Pulsar prints them: ``ledger:entry:partition``, and ``:index`` of one in a batch."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from geminga.broker.core.coercion import LONG_MAX, BodyError
from geminga.model.position import Position

_ID: Final = re.compile(r"(-1|[0-9]{1,19}):(-1|[0-9]{1,19}):(-1|[0-9]{1,9})(?::([0-9]{1,9}))?")
_SHOWN_CHARACTERS: Final = 60


class MessageRef(NamedTuple):
    """One message; they order within a partition as they lie there."""

    #: -1: the topic has no partitions.
    partition: int
    position: Position
    #: -1: of no batch, or all of it.
    batch_index: int = -1

    def __str__(self) -> str:
        told = f"{self.position.ledger_id}:{self.position.entry_id}:{self.partition}"
        return told if self.batch_index < 0 else f"{told}:{self.batch_index}"


def parse_message_id(text: str, what: str = "the message id") -> MessageRef:
    """Raises BodyError, whose text begins with ``what``."""
    found = _ID.fullmatch(text)
    if found is None or max(int(found[1]), int(found[2])) > LONG_MAX:
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
        raise BodyError(f"{what} is {shown!r}; expected one such as 3:0:-1, or 3:0:-1:2 of a batch")
    return MessageRef(int(found[3]), Position(int(found[1]), int(found[2])), -1 if found[4] is None else int(found[4]))
