"""Life of a producer."""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """Where a producer of one topic stands."""

    #: Never connected so far.
    NEW = "new"
    #: Connected once, and trying to be again.
    CONNECTING = "connecting"
    READY = "ready"
    CLOSING = "closing"
    CLOSED = "closed"
    #: An error that trying again can not mend.
    FAILED = "failed"


#: Messages may be sent.
OPEN: Final = (State.NEW, State.CONNECTING, State.READY)
