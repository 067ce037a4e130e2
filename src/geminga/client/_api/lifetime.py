"""``Lifetime``: what is open of one client, and whether the client may still be used."""

from __future__ import annotations

from geminga.client._api.errors import AlreadyClosed
from geminga.client._api.opening import Closable
from geminga.client._api.place import Place


class Lifetime:
    """Of one client. Producers are closed last: what consumers bury and put off goes through them."""

    __slots__ = ("is_closed", "others", "place", "producers")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.is_closed = False
        #: Open ones, in order of creation: producers, and consumers, readers, table views and entry streams.
        self.producers: dict[Closable, None] = {}
        self.others: dict[Closable, None] = {}

    def check_usable(self) -> None:
        """Raise AlreadyClosed, ForkedProcess or WrongLoop."""
        self.place.check()
        self._check_open()

    def remember_producer(self, producer: Closable) -> None:
        """Close it with the client; raises AlreadyClosed: nobody would."""
        self._check_open()
        self.producers[producer] = None

    def forget_producer(self, producer: Closable) -> None:
        """It is closed."""
        self.producers.pop(producer, None)

    def remember(self, one: Closable) -> None:
        """Close a consumer, reader, table view or entry stream with the client; raises AlreadyClosed: nobody would."""
        self._check_open()
        self.others[one] = None

    def forget(self, one: Closable) -> None:
        """It is closed."""
        self.others.pop(one, None)

    def _check_open(self) -> None:
        if self.is_closed:
            raise AlreadyClosed("the client is closed")
