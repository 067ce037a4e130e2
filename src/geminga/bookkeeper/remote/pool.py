"""Bookies behind a network, by id: those of a list that may change, each behind a :class:`RemoteBookie`.

Who is on the list is told from outside (:meth:`RemoteBookiePool.set_listed`): a fixed list, or what is registered
(``registered.py``). A bookie takes new entries if it is listed as writable and, as far as was seen, can be reached and
takes them. One that is not listed is still asked for what it has, where its id is an address: it may come back, and an
entry may be nowhere else. Who left the list, is out of reach and is asked for nothing is forgotten after a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple

from geminga.bookkeeper.core.addresses import BookieAddress, address_of_id
from geminga.bookkeeper.local_pool import AbsentBookie
from geminga.bookkeeper.remote.kept_connection import Backlog, TlsOfBookies
from geminga.bookkeeper.remote.remote_bookie import FRAME_BYTES_PULSAR, RemoteBookie
from geminga.model.bookie_port import Availability, Bookie, PoolListener
from geminga.runtime import Runtime, get_logger, spawn

#: Bookies that are not on the list and are asked all the same; any more count as out of reach.
UNLISTED_MAX: Final = 1000
#: Who is not listed, out of reach and was not asked for so long is connected to no more.
UNLISTED_KEPT_S: Final = 600.0
#: For so long, if there are too many: nothing that it was asked is outstanding then.
UNLISTED_IDLE_S: Final = 60.0

_log = get_logger(__name__)


class ListedBookie(NamedTuple):
    """How a bookie is reached, and whether it takes entries by its own word."""

    address: BookieAddress
    is_read_only: bool = False


class RemoteBookiePool:
    """Implements ``model.bookie_port.BookiePool``; see the module."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        frame_bytes_max: int = FRAME_BYTES_PULSAR,
        asks_unlisted: bool = True,
        tls: TlsOfBookies | None = None,
    ) -> None:
        """Nobody is listed yet. ``frame_bytes_max``: of the bookies. ``tls``: how they are spoken to; None: plain.

        ``asks_unlisted`` False: an id is no address, though it looks like one, and who is not listed is out of reach.
        """
        self._runtime = runtime
        self._tls = tls
        self._asks_unlisted = asks_unlisted
        self._frame_bytes_max = frame_bytes_max
        self._backlog = Backlog()
        self._listed: dict[str, ListedBookie] = {}
        #: Connected or not, listed or not; with the address each was made for.
        self._bookies: dict[str, tuple[RemoteBookie, BookieAddress]] = {}
        #: Those of them that are not listed, and since when they are, or were asked for last; longest ago first.
        self._unlisted: dict[str, float] = {}
        #: What the listeners were told last; who is missing is down.
        self._announced: dict[str, Availability] = {}
        self._listeners: list[PoolListener] = []
        self._is_closed = False

    def set_listed(self, listed: Mapping[str, ListedBookie]) -> None:
        """These are all there are, by id. Listeners hear of what that changes."""
        before, self._listed = self._listed, dict(sorted(listed.items()))
        for bookie_id, one in self._listed.items():
            self._bookie(bookie_id, one.address).connect()
        now_s = self._runtime.clock.monotonic()
        gone = [bookie_id for bookie_id in self._bookies if bookie_id not in self._listed]
        known = {bookie_id: self._unlisted.get(bookie_id, now_s) for bookie_id in gone}
        self._unlisted = dict(sorted(known.items(), key=itemgetter(1)))
        while self._forget_one(UNLISTED_KEPT_S):
            pass
        for bookie_id in sorted(before.keys() | self._listed.keys()):
            self._tell(bookie_id)

    async def close(self) -> None:
        """End all connections; what is outstanding fails."""
        self._is_closed = True
        bookies, self._bookies = self._bookies, {}
        self._listed = {}
        self._unlisted = {}
        for bookie, _ in bookies.values():
            await bookie.close()

    # ---- the port

    def available(self) -> Sequence[str]:
        """See ``BookiePool.available``."""
        return [bookie_id for bookie_id in self._listed if self._availability(bookie_id) is Availability.WRITABLE]

    def read_only(self) -> Sequence[str]:
        """See ``BookiePool.read_only``."""
        return [bookie_id for bookie_id in self._listed if self._availability(bookie_id) is Availability.READ_ONLY]

    def get(self, bookie_id: str) -> Bookie:
        """See ``BookiePool.get``; of one that can not be addressed all calls fail."""
        known = self._bookies.get(bookie_id)
        if known is not None:
            if bookie_id in self._unlisted:
                self._asked(bookie_id)
            return known[0]
        address = address_of_id(bookie_id) if self._asks_unlisted else None
        if address is None or self._is_closed:
            return AbsentBookie(bookie_id)
        if len(self._unlisted) >= UNLISTED_MAX and not self._forget_one(UNLISTED_IDLE_S):
            return AbsentBookie(bookie_id)
        self._asked(bookie_id)
        return self._bookie(bookie_id, address)

    def watch(self, listener: PoolListener) -> None:
        """See ``BookiePool.watch``."""
        self._listeners.append(listener)

    # ---- its bookies

    def _bookie(self, bookie_id: str, address: BookieAddress) -> RemoteBookie:
        known = self._bookies.get(bookie_id)
        if known is not None:
            if known[1] == address:
                return known[0]
            _log.info("bookie %s is at %s now", bookie_id, address)
            spawn(known[0].close(), name=f"bookie-close-{bookie_id}")
        bookie = RemoteBookie(
            self._runtime,
            bookie_id,
            *address,
            frame_bytes_max=self._frame_bytes_max,
            backlog=self._backlog,
            tls=self._tls,
        )
        self._bookies[bookie_id] = bookie, address
        bookie.watch(partial(self._changed, bookie_id, bookie))
        return bookie

    def _asked(self, bookie_id: str) -> None:
        self._unlisted.pop(bookie_id, None)
        self._unlisted[bookie_id] = self._runtime.clock.monotonic()

    def _forget_one(self, idle_s: float) -> bool:
        """Forget the bookie that was asked longest ago, if it was that long ago; of those out of reach."""
        before_s = self._runtime.clock.monotonic() - idle_s
        for bookie_id, asked_s in self._unlisted.items():
            if asked_s > before_s:
                return False
            bookie, _ = self._bookies[bookie_id]
            if bookie.availability is Availability.DOWN:
                del self._unlisted[bookie_id], self._bookies[bookie_id]
                spawn(bookie.close(), name=f"bookie-close-{bookie_id}")
                return True
        return False

    def _availability(self, bookie_id: str) -> Availability:
        listed = self._listed.get(bookie_id)
        known = self._bookies.get(bookie_id)
        if listed is None or known is None:
            return Availability.DOWN
        seen = known[0].availability
        return Availability.READ_ONLY if listed.is_read_only and seen is Availability.WRITABLE else seen

    def _changed(self, bookie_id: str, bookie: RemoteBookie, _: Availability) -> None:
        known = self._bookies.get(bookie_id)
        if known is not None and known[0] is bookie:
            self._tell(bookie_id)

    def _tell(self, bookie_id: str) -> None:
        now = self._availability(bookie_id)
        if now is self._announced.get(bookie_id, Availability.DOWN):
            return
        if now is Availability.DOWN:
            del self._announced[bookie_id]
        else:
            self._announced[bookie_id] = now
        for listener in self._listeners:
            listener(bookie_id, now)
