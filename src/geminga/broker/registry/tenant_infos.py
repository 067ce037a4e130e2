"""Who administers tenants: remembered, and read again after a change was heard of, or after a minute.

As with namespaces' policies, only what is there is remembered and watched: a client that asks for many names leaves
nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from geminga.broker.registry.namespaces import POLICIES_AGE_MS_MAX, POLICIES_PREFIX
from geminga.broker.resources import Document, Json, Tenants
from geminga.metadata.ports import MetadataStore, Notification, Unsubscribe
from geminga.model.errors import NotFoundError
from geminga.runtime import Clock, Contained, Part

#: Tenants remembered and watched; the one that was read longest ago is forgotten first.
TENANTS_REMEMBERED_MAX: Final = 1000


class TenantInfos:
    """See the module."""

    __slots__ = ("_changed", "_clock", "_forgotten", "_infos", "_metadata", "_part", "_tenants", "_watched")

    def __init__(
        self, clock: Clock, tenants: Tenants, metadata: MetadataStore, changed: Callable[[str], None], *, part: Part
    ) -> None:
        """``changed`` is called with the name of a tenant that is another one now; ``part`` hears of its failures."""
        self._clock = clock
        self._tenants = tenants
        self._metadata = metadata
        self._changed = changed
        self._part = part
        #: When read (monotonic milliseconds), and what was found.
        self._infos: dict[str, tuple[float, Document]] = {}
        self._watched: dict[str, Unsubscribe] = {}
        #: Counts what was forgotten: a read that began before is not remembered.
        self._forgotten = 0

    def close(self) -> None:
        """Stop listening."""
        for unwatch in self._watched.values():
            unwatch()
        self._watched.clear()
        self._infos.clear()

    @property
    def changes(self) -> int:
        """Counts what was heard of changes."""
        return self._forgotten

    def forget(self, tenant: str) -> None:
        """It is another one now: read it again when it is next asked for."""
        self._infos.pop(tenant, None)
        self._forgotten += 1

    def known(self, tenant: str) -> Mapping[str, Json] | None:
        """What is remembered and holds; None: nothing is."""
        found = self._infos.get(tenant)
        if found is None or self._clock.monotonic() * 1000 - found[0] >= POLICIES_AGE_MS_MAX:
            return None
        return found[1]

    async def read(self, tenant: str) -> Mapping[str, Json] | None:
        """Its ``TenantInfo``; None: there is no such tenant. Raises MetadataError."""
        known = self.known(tenant)
        if known is not None:
            return known
        now_ms, forgotten = self._clock.monotonic() * 1000, self._forgotten
        found = await self._find(tenant)
        if found is not None and tenant not in self._watched:
            self._watch(tenant)
            # Between that read and the watch a change would be told to nobody.
            found = await self._find(tenant)
        if found is None:
            self._unwatch(tenant)
        elif forgotten == self._forgotten:
            self._infos.pop(tenant, None)
            self._infos[tenant] = (now_ms, found)
            if len(self._infos) > TENANTS_REMEMBERED_MAX:
                del self._infos[next(iter(self._infos))]
        return found

    async def _find(self, tenant: str) -> Document | None:
        try:
            return await self._tenants.get(tenant)
        except NotFoundError:
            return None

    def _watch(self, tenant: str) -> None:
        self._watched[tenant] = self._metadata.watch_node(f"{POLICIES_PREFIX}{tenant}", self._on_change)
        if len(self._watched) > TENANTS_REMEMBERED_MAX:
            self._unwatch(next(iter(self._watched)))

    def _unwatch(self, tenant: str) -> None:
        unwatch = self._watched.pop(tenant, None)
        self._infos.pop(tenant, None)
        if unwatch is not None:
            unwatch()

    def _on_change(self, notification: Notification) -> None:
        tenant = notification.path[len(POLICIES_PREFIX) :]
        # The metadata store tells: what fails here is not its failure.
        with Contained(self._part, "a changed tenant", is_last=True):
            self.forget(tenant)
            self._changed(tenant)
