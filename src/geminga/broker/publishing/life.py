"""Whether a topic may be used, since when nobody did, and where its clients are sent when it goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from geminga.model.errors import TopicClosingError
from geminga.model.topic_name import TopicName
from geminga.runtime import Clock

if TYPE_CHECKING:
    from geminga.broker.core.departure import Departure, Farewell, Leaving


class TopicLife:
    """Open until it is closed, for good: what is loaded next is another object."""

    __slots__ = ("_active_s", "_name", "clock", "departure", "is_closing", "is_going", "is_judged")

    def __init__(self, name: TopicName, clock: Clock) -> None:
        self._name = name
        self.clock = clock
        #: It is being unloaded or deleted: nothing new may attach.
        self.is_closing = False
        #: A deletion began, here or at a broker before: what is left of it is to be deleted.
        self.is_going = False
        #: Nobody asked for that, and what it has of its own may be there yet: then it stays, and is judged anew.
        self.is_judged = False
        #: It goes to another broker: its clients are told of that one, when it is there.
        self.departure: Departure | None = None
        #: When a producer, consumer or subscription last came, went or was seen; on the monotonic clock.
        self._active_s = clock.monotonic()

    def close(self, departure: Departure | None = None) -> None:
        """It goes; to another broker, if there is a ``departure``."""
        self.is_closing = True
        if departure is not None:
            self.departure = departure

    def check_open(self) -> None:
        """Raise TopicClosingError if it goes."""
        if self.is_closing:
            raise self.closing_error()

    def closing_error(self) -> TopicClosingError:
        """What a client is told that comes while the topic goes; it tries again."""
        return TopicClosingError(f"Topic {self._name} is being unloaded or deleted")

    def touch(self) -> None:
        """Something used the topic now."""
        self._active_s = self.clock.monotonic()

    @property
    def idle_ms(self) -> int:
        """For how long nothing did."""
        return int((self.clock.monotonic() - self._active_s) * 1000)

    def send_away(
        self, connection: Leaving, farewell: Farewell, departs: Callable[[], Callable[[], None]] | None = None
    ) -> None:
        """Send the command that closes a producer or consumer of the topic, now or when its next owner is there.

        ``departs`` hears of the latter, and gives what is called then.
        """
        if self.departure is None:
            connection.output.write_soon(farewell("", ""))
        else:
            self.departure.add(self._name, connection, farewell, None if departs is None else departs())
