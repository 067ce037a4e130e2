"""The bound on requests that a broker works on, over all connections, those that are gone included.

What a request waits for, such as metadata or another broker, may hang, and clients that give up come again with the
same requests. Beyond the limit a connection with more than a few under way is not read until half of them are answered;
beyond twice the limit further ones are refused.
"""

from __future__ import annotations

from typing import Final, Protocol

from geminga.model.errors import TooManyRequestsError

#: Requests under way, all connections: about 18 KiB each.
REQUESTS_UNDER_WAY_MAX: Final = 5000
#: Those of a connection that is read all the same.
REQUESTS_FEW: Final = 16


class Requester(Protocol):
    """Whose requests they are."""

    def request_room_is_free(self) -> None:
        """It may go on."""


class RequestRoom:
    """Connections count by themselves what begins and ends, and call only what follows from it."""

    __slots__ = ("count", "held")

    def __init__(self) -> None:
        #: Requests under way.
        self.count = 0
        #: Who is not read.
        self.held: dict[Requester, None] = {}

    def refusal(self) -> TooManyRequestsError | None:
        """Why a further request is refused; None: it is not."""
        if self.count < 2 * REQUESTS_UNDER_WAY_MAX:
            return None
        return TooManyRequestsError(f"{self.count} requests of all clients are under way already: try again later")

    def is_short_for(self, pending: int) -> bool:
        """Whether a connection with so many requests under way has to wait."""
        return self.count > REQUESTS_UNDER_WAY_MAX and pending > REQUESTS_FEW

    def end(self) -> None:
        """A request was answered."""
        self.count -= 1
        if self.held and self.count <= REQUESTS_UNDER_WAY_MAX // 2:
            held, self.held = self.held, {}
            for connection in held:
                connection.request_room_is_free()
