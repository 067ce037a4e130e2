"""Policies of namespaces as topics need them, and the names of the topics a namespace has.

Policies are remembered and read again after a change was heard of, or after a minute in case the news was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from geminga.broker.resources import Policies, Resources
from geminga.metadata.ports import ChangeKind, MetadataStore, Notification
from geminga.runtime import Clock, Contained, Part

#: Where the namespaces' policies are.
POLICIES_PREFIX: Final = "/admin/policies/"
#: Where the topics are.
LEDGERS_PREFIX: Final = "/managed-ledgers/"
#: Namespaces remembered; the oldest is forgotten first.
NAMESPACES_REMEMBERED_MAX: Final = 10_000
#: Milliseconds after which remembered policies are read again.
POLICIES_AGE_MS_MAX: Final = 60_000


class TopicMode(Enum):
    """Which topics to list."""

    PERSISTENT = "persistent"
    NON_PERSISTENT = "non_persistent"
    ALL = "all"


class Namespaces:
    """See the module."""

    __slots__ = ("_changed", "_clock", "_forgotten", "_part", "_policies", "_resources", "_unwatch")

    def __init__(self, clock: Clock, resources: Resources, changed: Callable[[str], None], *, part: Part) -> None:
        """``changed`` is called with the name of a namespace whose policies may have changed.

        ``part`` hears of what it did not expect then.
        """
        self._clock = clock
        self._part = part
        self._resources = resources
        self._changed = changed
        #: When read (monotonic milliseconds), and what was found.
        self._policies: dict[str, tuple[float, Policies | None]] = {}
        #: Counts what was forgotten: a read that began before is not remembered.
        self._forgotten = 0
        self._unwatch: Callable[[], None] | None = None

    def start(self, metadata: MetadataStore) -> None:
        """Listen for changes."""
        self._unwatch = metadata.watch(POLICIES_PREFIX.rstrip("/"), self._on_change)

    def close(self) -> None:
        """Stop listening."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    def forget(self, namespace: str) -> None:
        """Read the policies of ``namespace`` again when they are next asked for."""
        self._policies.pop(namespace, None)
        self._forgotten += 1

    @property
    def changes(self) -> int:
        """Counts what was heard of changes."""
        return self._forgotten

    async def policies(self, namespace: str) -> Policies | None:
        """Policies of ``tenant/namespace``; None if there is no such namespace. Raises MetadataError."""
        now_ms = self._clock.monotonic() * 1000
        known = self._policies.get(namespace)
        if known is not None and now_ms - known[0] < POLICIES_AGE_MS_MAX and known[1] is not None:
            return known[1]
        forgotten = self._forgotten
        found = await self._resources.find_namespace_policies(namespace)
        if forgotten != self._forgotten:
            return found
        self._policies.pop(namespace, None)
        self._policies[namespace] = (now_ms, found)
        if len(self._policies) > NAMESPACES_REMEMBERED_MAX:
            del self._policies[next(iter(self._policies))]
        return found

    def _on_change(self, notification: Notification) -> None:
        if notification.kind is ChangeKind.CHILDREN_CHANGED:
            return
        namespace = notification.path[len(POLICIES_PREFIX) :]
        # The metadata store tells: what fails here is not its failure.
        with Contained(self._part, "changed policies", is_last=True):
            if namespace.count("/") == 1:
                self.forget(namespace)
                self._changed(namespace)
