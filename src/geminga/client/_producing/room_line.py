"""``RoomLine``: who waits until one producer has room for his message, in the order they came.

Who has the receipt of a message and sends the next one would else be ahead of those who wait, time after time. Room is
given to the first in line alone; some behind it are woken with it, so that what they send becomes one batch, and not
all of them for each receipt.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from itertools import islice
from typing import Final

#: Those that are woken at a time: for each receipt that makes room, however many wait.
WOKEN_MAX: Final = 100


class RoomTurn:
    """One who waits."""

    __slots__ = ("call",)

    def __init__(self) -> None:
        #: Pending: not called since it looked last; None: it does not wait for a call.
        self.call: asyncio.Future[None] | None = None


class RoomLine:
    """See the module. Of one loop; as long as there is room, the first in line was called, or looks."""

    __slots__ = ("_loop", "_places")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._places: OrderedDict[RoomTurn, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def join(self) -> RoomTurn:
        """Behind all others; to be left, whatever happens."""
        place = RoomTurn()
        self._places[place] = None
        return place

    def is_first(self, place: RoomTurn) -> bool:
        """Whether it is this one's turn."""
        return next(iter(self._places)) is place

    async def called(self, place: RoomTurn) -> None:
        """Until something may have changed: look again."""
        place.call = self._loop.create_future()
        try:
            await place.call
        finally:
            place.call = None

    def leave(self, place: RoomTurn) -> None:
        """It goes on, or was given up: the next one's turn."""
        was_first = self.is_first(place)
        del self._places[place]
        if was_first and self._places:
            first = next(iter(self._places))
            if first.call is not None and not first.call.done():
                self.call()

    def call(self) -> None:
        """There may be room: the first ones look."""
        self._call(WOKEN_MAX)

    def call_all(self) -> None:
        """The end: nobody waits any more."""
        self._call(len(self._places))

    def _call(self, count: int) -> None:
        for place in islice(self._places, count):
            if place.call is not None and not place.call.done():
                place.call.set_result(None)
