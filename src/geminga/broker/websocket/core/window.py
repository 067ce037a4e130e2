"""How many messages a socket may be sent: as many as it has not acknowledged (push), or as it permits (pull)."""

from __future__ import annotations

from typing import Final

from geminga.model.errors import invariant

#: Permits that are kept, however many are given.
PERMITS_MAX: Final = 2**31 - 1


class PushWindow:
    """Beyond ``most`` messages without acknowledgment none is sent.

    A message counts once however often it is acknowledged, and an id of another socket's frees nothing here: beyond
    Pulsar, which counts acknowledgments.
    """

    __slots__ = ("_most", "_out")

    def __init__(self, most: int) -> None:
        """``most``: at least 1."""
        invariant(most > 0, f"a window of {most} messages")
        self._most = most
        #: Ids that are out, in the order of their first time.
        self._out: dict[str, None] = {}

    @property
    def is_open(self) -> bool:
        """Whether one may be sent."""
        return len(self._out) < self._most

    def sent(self, message_id: str) -> None:
        """One was."""
        self._out[message_id] = None

    def passed(self, message_id: str) -> None:
        """It was acknowledged, or is to come again."""
        self._out.pop(message_id, None)

    def passed_to(self, message_id: str) -> None:
        """All up to that one were acknowledged, in the order in which they were sent."""
        if message_id in self._out:
            for known in list(self._out):
                del self._out[known]
                if known == message_id:
                    return

    def permitted(self, messages: int) -> None:
        """Nothing: permits are of pull mode, as in Pulsar."""


class PullWindow:
    """As many as were permitted."""

    __slots__ = ("_permits",)

    def __init__(self) -> None:
        self._permits = 0

    @property
    def is_open(self) -> bool:
        """Whether one may be sent."""
        return self._permits > 0

    def sent(self, message_id: str) -> None:
        """One was."""
        invariant(self._permits > 0, "a message without a permit")
        self._permits -= 1

    def passed(self, message_id: str) -> None:
        """Acknowledgments permit nothing; they may be another socket's."""

    def passed_to(self, message_id: str) -> None:
        """As :meth:`passed`."""

    def permitted(self, messages: int) -> None:
        """So many more."""
        self._permits = min(self._permits + messages, PERMITS_MAX)


class CountWindow:
    """A reader's: each frame of its is one message that it is done with, whichever."""

    __slots__ = ("_most", "_out")

    def __init__(self, most: int) -> None:
        """``most``: at least 1."""
        invariant(most > 0, f"a window of {most} messages")
        self._most = most
        self._out = 0

    @property
    def is_open(self) -> bool:
        """Whether one may be sent."""
        return self._out < self._most

    def sent(self) -> None:
        """One was."""
        self._out += 1

    def passed(self) -> None:
        """One is done with."""
        self._out = max(0, self._out - 1)
