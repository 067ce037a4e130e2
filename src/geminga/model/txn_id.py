"""The id of a transaction, what it acknowledges in, and the states it goes through."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple


class TxnId(NamedTuple):
    """Coordinator and number, both uint64; a coordinator's numbers ascend and never repeat."""

    coordinator: int
    number: int

    def __str__(self) -> str:
        return f"({self.coordinator},{self.number})"


class TxnSubscription(NamedTuple):
    """A subscription in which a transaction acknowledges."""

    topic: str
    subscription: str


class TxnStatus(IntEnum):
    """As in the coordinator's log; the numbers are on the wire."""

    OPEN = 0
    COMMITTING = 1
    COMMITTED = 2
    ABORTING = 3
    ABORTED = 4

    @property
    def is_over(self) -> bool:
        """Whether every participant has heard of the end."""
        return self in (TxnStatus.COMMITTED, TxnStatus.ABORTED)

    @property
    def is_ending(self) -> bool:
        """Whether the end is decided and participants are being told."""
        return self in (TxnStatus.COMMITTING, TxnStatus.ABORTING)


class Standing(Enum):
    """How a transaction stands to a topic it publishes to, or a subscription it acknowledges in."""

    #: Open, and the participant will be told how it ends.
    TAKING = "taking"
    #: Its end is decided, and the participant is told of it, or was.
    ENDING = "ending"
    #: Not over, and the participant will not be told.
    UNTOLD = "untold"
    #: Over, or there never was one.
    OVER = "over"
