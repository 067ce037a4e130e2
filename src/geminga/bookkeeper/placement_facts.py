"""What placement goes by: where bookies stand, from the metadata store, and what they say of themselves: how much room
they have, how much is written to them.

Looked up in the background, when a bookie is to be chosen and what is known has grown old, or the racks are known to
have changed; a process that makes no ledgers asks nobody. A new ledger waits for racks that are being read: they hold
from the beginning. What can not be looked up stays as it was. With one bookie there is nothing to choose, and
nothing is asked, but of ledgers that may not be on any bookie.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from geminga.bookkeeper.config import BookKeeperConfig
from geminga.bookkeeper.core.placement import Placement, PlacementRules
from geminga.metadata.ports import MetadataStore, Notification
from geminga.model.bookie_port import BookieInfo, BookiePool
from geminga.model.errors import CorruptionError, MetadataError, StorageError
from geminga.runtime import Runtime, get_logger, spawn
from geminga.wire.bookkeeper.bookie_racks import RACKS_PATH, decode_bookie_racks
from geminga.wire.bookkeeper.isolation import isolation_in

#: Racks that were read so long ago are read again, in case the news of a change was lost.
RACKS_REFRESH_S: Final = 60.0
#: Bookies are asked so often what was written to them, while ledgers are made.
LOAD_REFRESH_S: Final = 30.0

_log = get_logger(__name__)


class PlacementFacts:
    """See the module."""

    def __init__(
        self, runtime: Runtime, metadata: MetadataStore, bookies: BookiePool, config: BookKeeperConfig
    ) -> None:
        self._now = runtime.clock.monotonic
        self._metadata = metadata
        self._bookies = bookies
        self._config = config
        self._placement = Placement(
            PlacementRules(
                is_rack_aware=config.is_rack_aware,
                is_region_aware=config.is_region_aware,
                racks_min=config.racks_per_write_quorum_min,
                is_racks_min_enforced=config.is_racks_min_enforced,
                is_weighted=config.is_placement_weighted,
                groups=config.isolation_groups,
                secondary_groups=config.secondary_isolation_groups,
            )
        )
        #: When the racks are to be read next, by the monotonic clock; None: they were not asked for yet.
        self._racks_due: float | None = None
        #: Whether changes of the racks are heard of.
        self._is_listening = False
        self._reading_racks: asyncio.Task[None] | None = None
        self._free_bytes: dict[str, int] = {}
        #: When each bookie is to be asked for its room and load next.
        self._room_due: dict[str, float] = {}
        #: What had been added to each, and when that was; and bytes a second between the last two times.
        self._added: dict[str, tuple[float, int]] = {}
        self._rates: dict[str, float] = {}
        #: Did not answer when they were asked last, which was told.
        self._silent: set[str] = set()
        self._complaint = ""

    def current(self, custom_metadata: Mapping[str, bytes]) -> Placement:
        """By what is known now, for a ledger of these custom metadata; what is old is looked up for the next one."""
        groups = isolation_in(custom_metadata)
        available = self._bookies.available()
        if len(available) > 1 or self._config.has_strict_placement or groups is not None:
            now = self._now()
            is_due = self._racks_due is None or now >= self._racks_due
            if is_due and self._reading_racks is None and (self._config.needs_racks or groups is not None):
                self._racks_due = now + RACKS_REFRESH_S
                self._reading_racks = spawn(self._read_racks(), name="bookie-racks")
            self._ask_room(available, now)
        return self._placement.within(groups)

    async def known(self, custom_metadata: Mapping[str, bytes]) -> Placement:
        """Like :meth:`current`, and the racks have been asked for since the last change that was heard of."""
        # One read may be under way since before the change.
        for _ in range(2):
            placement = self.current(custom_metadata)
            if self._reading_racks is None:
                break
            await asyncio.wait([self._reading_racks])
        return placement

    def _racks_changed(self, _: Notification) -> None:
        """The next one who asks reads them."""
        self._racks_due = None

    async def _read_racks(self) -> None:
        try:
            if not self._is_listening:
                self._metadata.watch_node(RACKS_PATH, self._racks_changed)
                self._is_listening = True
            node = await self._metadata.get(RACKS_PATH)
            self._placement.set_racks(decode_bookie_racks(b"" if node is None else node.value))
            self._complaint = ""
        except (MetadataError, CorruptionError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _log.warning("racks of bookies can not be read, those known before hold: %s", error)
        finally:
            self._reading_racks = None

    def _ask_room(self, available: Sequence[str], now: float) -> None:
        for bookie_id in available:
            if now >= self._room_due.get(bookie_id, now):
                # Until it answers: what fails, or is lost, is asked again after this time.
                self._room_due[bookie_id] = now + self._config.bookie_info_retry_interval_s
                self._bookies.get(bookie_id).read_info(done=partial(self._on_room, bookie_id))
        if len(self._room_due) > 2 * len(available):
            for gone in self._room_due.keys() - {*available}:
                del self._room_due[gone]
                for known in (self._free_bytes, self._added, self._rates):
                    known.pop(gone, None)
                self._silent.discard(gone)

    def _on_room(self, bookie_id: str, info: BookieInfo | StorageError) -> None:
        if isinstance(info, StorageError):
            if bookie_id not in self._silent:
                self._silent.add(bookie_id)
                _log.warning("bookie %s does not tell how much room it has: %s", bookie_id, info)
            return
        self._silent.discard(bookie_id)
        now = self._now()
        self._free_bytes[bookie_id] = info.free_bytes
        self._placement.set_room(self._free_bytes)
        self._room_due[bookie_id] = now + min(self._config.bookie_info_interval_s, LOAD_REFRESH_S)
        if info.added_bytes is None:
            return  # of another make
        since, before = self._added.get(bookie_id, (now, info.added_bytes))
        self._added[bookie_id] = (now, info.added_bytes)
        if now > since and info.added_bytes >= before:  # else it was started anew
            self._rates[bookie_id] = (info.added_bytes - before) / (now - since)
            self._placement.set_load(self._rates)
