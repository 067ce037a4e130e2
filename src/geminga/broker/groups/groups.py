"""The resource groups of a broker: those that topics loaded here are in, and their shares, looked at from time to time.

With the first topic of a group, and every ``resourceUsageTransportPublishIntervalInSecs`` from then on, a broker says
what it used of each limit and takes its next share (:mod:`..core.group_shares`, :mod:`.usage`). A broker that is alone
has all, and tells nobody. What can not be read or written changes nothing: the shares of before hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from geminga.broker.groups.group import BrokerGroup, limits_of
from geminga.broker.groups.usage import decode_reports, encode_reports
from geminga.broker.publishing.rates import NO_THROTTLES, BrokerThrottles
from geminga.broker.resources.documents import Document, DocumentStore
from geminga.broker.resources.resource_groups import group_path, usage_path
from geminga.model.errors import GemingaError
from geminga.runtime import Part, Runtime, get_logger, spawn

if TYPE_CHECKING:
    from geminga.metadata.ports import MetadataStore, Notification

_log = get_logger(__name__)

#: Seconds that a group is kept for who asked for it last: a topic that is being loaded is in none yet.
ASKED_S: Final = 60.0


class BrokerGroups:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        part: Part,
        *,
        interval_s: Callable[[], int],
        is_alone: bool,
        in_use: Callable[[], set[str]],
        follow: Callable[[str], Awaitable[None]],
    ) -> None:
        """``in_use``: groups that loaded topics are in. ``follow`` has the topics of a group look at it again."""
        self._runtime = runtime
        self._metadata = metadata
        self._store = DocumentStore(metadata)
        self._part = part
        self._interval_s = interval_s
        self._is_alone = is_alone
        self._in_use = in_use
        self._follow = follow
        #: Of this life of the broker.
        self._me = runtime.rng.token()
        self.groups: dict[str, BrokerGroup] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        #: One look at a time.
        self._turn = asyncio.Lock()

    async def throttles(self, name: str) -> BrokerThrottles:
        """What holds the topics of a group; none if there is no such group, or it has no limit. Raises StorageError."""
        group = self.groups.get(name)
        if group is None and not self._is_closed:
            async with self._turn:
                group = self.groups.get(name) or await self._open(name)
        if group is None:
            return NO_THROTTLES
        group.asked_s = self._runtime.clock.monotonic()
        return group.throttles

    async def look(self) -> None:
        """Tell what was used, and take the next shares, of all groups."""
        to_tell = []
        async with self._turn:
            for name, group in list(self.groups.items()):
                try:
                    if self._is_kept(group):
                        await self._refresh(group)
                        to_tell.append(group)
                    else:
                        await self._drop(group)
                except GemingaError as error:
                    _log.warning("resource group %s: its shares stay as they are: %s", name, error)
        for group in to_tell:
            await self._tell_topics(group)

    async def close(self) -> None:
        """Give the shares back."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        async with self._turn:
            for group in list(self.groups.values()):
                try:
                    await self._drop(group)
                except GemingaError as error:
                    # Others see that this broker looks no more.
                    _log.info("resource group %s: its share was not given back: %s", group.name, error)

    # ---- one group

    async def _open(self, name: str) -> BrokerGroup:
        group = BrokerGroup(name, self._runtime.clock.monotonic, self._part)
        # Before it is read, so that no change is missed.
        group.unwatch = self._metadata.watch_node(group_path(name), partial(self._changed, name))
        try:
            await self._read_limits(group)
            await self._look(group)
        except GemingaError:
            group.close()
            raise
        group.is_untold = False  # who is told is who asked
        self.groups[name] = group
        self._arm()
        return group

    def _is_kept(self, group: BrokerGroup) -> bool:
        # Asked now, not once for all groups: while one is told of, topics come into the next.
        return self._runtime.clock.monotonic() - group.asked_s < ASKED_S or group.name in self._in_use()

    async def _read_limits(self, group: BrokerGroup) -> None:
        found = await self._store.find(group_path(group.name))
        if found is None:
            _log.warning("resource group %s does not exist: its namespaces have no limits", group.name)
        limits = limits_of(None if found is None else found.document)
        if group.set_limits(limits, is_alone=self._is_alone):
            group.is_untold = True

    async def _refresh(self, group: BrokerGroup) -> None:
        """What failed before is done first: limits that changed are read, and the share of them taken."""
        if group.is_stale:
            await self._read_limits(group)
            group.is_stale = False
        await self._look(group)

    async def _tell_topics(self, group: BrokerGroup) -> None:
        if group.is_untold and self.groups.get(group.name) is group:
            group.is_untold = False
            try:
                await self._follow(group.name)
            except GemingaError as error:
                group.is_untold = True
                _log.warning("resource group %s: topics are told again of its limits: %s", group.name, error)

    async def _look(self, group: BrokerGroup) -> None:
        uses = group.used()
        if self._is_alone or not group.limits:
            return
        group.look += 1
        is_first = True

        def put(document: Document | None) -> Document:
            nonlocal is_first
            reports = decode_reports(document)
            if is_first:
                # Not for each try: nobody looks in between.
                group.watched.looked(reports)
                is_first = False
            return encode_reports(group.report(group.watched.present(reports), self._me, uses))

        written = await self._store.put(usage_path(group.name), put)
        mine = decode_reports(written.document)[self._me]
        group.set_shares({limit: use.share for limit, use in mine.uses.items()})

    async def _drop(self, group: BrokerGroup) -> None:
        """No topic here is in it any more."""
        self.groups.pop(group.name, None)
        group.close()
        if self._is_alone or not group.look:
            return

        def put(document: Document | None) -> Document:
            reports = decode_reports(document)
            reports.pop(self._me, None)
            return encode_reports(reports)

        await self._store.put(usage_path(group.name), put)

    # ---- when

    def _changed(self, name: str, notification: Notification) -> None:
        if not self._is_closed:
            spawn(self._limits_changed(name), name=f"limits of resource group {name}", part=self._part)

    async def _limits_changed(self, name: str) -> None:
        async with self._turn:
            group = self.groups.get(name)
            if group is None:
                return
            group.is_stale = True
            try:
                await self._refresh(group)
            except GemingaError as error:
                _log.warning("resource group %s: its new limits hold with the next look: %s", name, error)
                return
        await self._tell_topics(group)

    def _arm(self) -> None:
        if self._timer is None and not self._is_closed and self.groups:
            self._timer = asyncio.get_running_loop().call_later(self._interval_s(), self._due)

    def _due(self) -> None:
        self._timer = None
        spawn(self._again(), name="look at resource groups", part=self._part)

    async def _again(self) -> None:
        try:
            await self.look()
        finally:
            self._arm()
