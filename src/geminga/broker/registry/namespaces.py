"""Policies of namespaces as topics need them, their bookies included, and the names of the topics a namespace has.

Policies are remembered and read again after a change was heard of, or after a minute in case the news was lost. Only
namespaces that are in use, and exist, are watched: a client that asks for many names leaves no watch behind.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from geminga.broker.geo.residence import other_homes, require_life_in
from geminga.broker.resources import Policies, Resources
from geminga.broker.resources.namespaces import LOCAL_POLICIES_PATH
from geminga.metadata.ports import MetadataStore, Notification, Unsubscribe
from geminga.model.errors import InvalidTopicNameError, NotFoundError
from geminga.runtime import Clock, Contained, Part

if TYPE_CHECKING:
    from geminga.broker.core.coercion import Document
    from geminga.model.topic_name import TopicName

#: Where the namespaces' policies are.
POLICIES_PREFIX: Final = "/admin/policies/"
_LOCAL_PREFIX: Final = f"{LOCAL_POLICIES_PATH}/"
#: Where the topics are.
LEDGERS_PREFIX: Final = "/managed-ledgers/"
#: Namespaces remembered and watched; the one that was read longest ago is forgotten first.
NAMESPACES_REMEMBERED_MAX: Final = 10_000
#: Milliseconds after which remembered policies are read again.
POLICIES_AGE_MS_MAX: Final = 60_000
#: Characters of a name that a client may make a topic of: as long as the administration's paths take them.
LOCAL_NAME_CHARACTERS_MAX: Final = 512


class TopicMode(Enum):
    """Which topics to list."""

    PERSISTENT = "persistent"
    NON_PERSISTENT = "non_persistent"
    ALL = "all"


class Namespaces:
    """See the module."""

    __slots__ = (
        "_changed",
        "_clock",
        "_forgotten",
        "_metadata",
        "_part",
        "_policies",
        "_resources",
        "_sharing_as",
        "_watched",
    )

    def __init__(
        self, clock: Clock, resources: Resources, changed: Callable[[str], None], *, part: Part, sharing_as: str = ""
    ) -> None:
        """``changed`` is called with the name of a namespace whose policies may have changed.

        ``part`` hears of what it did not expect then. ``sharing_as``: this cluster's name, where policies are shared
        with others.
        """
        self._sharing_as = sharing_as
        self._clock = clock
        self._part = part
        self._resources = resources
        self._changed = changed
        #: When read (monotonic milliseconds), and what was found.
        self._policies: dict[str, tuple[float, Policies | None]] = {}
        #: Counts what was forgotten: a read that began before is not remembered.
        self._forgotten = 0
        #: None: not listening.
        self._metadata: MetadataStore | None = None
        #: What ends each watch.
        self._watched: dict[str, Unsubscribe] = {}

    def start(self, metadata: MetadataStore) -> None:
        """Listen for changes of what is read from now on."""
        self._metadata = metadata

    def close(self) -> None:
        """Stop listening."""
        self._metadata = None
        for unwatch in self._watched.values():
            unwatch()
        self._watched.clear()

    def forget(self, namespace: str) -> None:
        """Read the policies of ``namespace`` again when they are next asked for."""
        self._policies.pop(namespace, None)
        self._forgotten += 1

    @property
    def changes(self) -> int:
        """Counts what was heard of changes."""
        return self._forgotten

    def known(self, namespace: str) -> Policies | None:
        """What is remembered and holds; None: nothing is."""
        found = self._policies.get(namespace)
        if found is None or self._clock.monotonic() * 1000 - found[0] >= POLICIES_AGE_MS_MAX:
            return None
        return found[1]

    async def policies(self, namespace: str) -> Policies | None:
        """Policies of ``tenant/namespace``; None if there is no such namespace. Raises MetadataError."""
        now_ms = self._clock.monotonic() * 1000
        known = self._policies.get(namespace)
        if known is not None and now_ms - known[0] < POLICIES_AGE_MS_MAX and known[1] is not None:
            return known[1]
        forgotten, was_watched = self._forgotten, namespace in self._watched
        found = await self._resources.find_namespace_policies(namespace)
        if found is not None:
            self._watch(namespace)
            if not was_watched:
                # Between that read and the watch a change would be told to nobody.
                found = await self._resources.find_namespace_policies(namespace)
        if found is not None:
            bookies = await self._resources.namespaces.bookies(namespace)
            found = found if bookies is None else found._replace(bookies=bookies)
        elif namespace in self._watched:
            self._unwatch(namespace)
            self._forgotten += 1
        if forgotten != self._forgotten:
            return found
        self._policies.pop(namespace, None)
        self._policies[namespace] = (now_ms, found)
        if len(self._policies) > NAMESPACES_REMEMBERED_MAX:
            del self._policies[next(iter(self._policies))]
        return found

    async def policies_now(self, namespace: str) -> Policies | None:
        """As :meth:`policies`, and not older than this call: not remembered, nor of a server that lags behind."""
        await self._resources.sync()
        self.forget(namespace)
        return await self.policies(namespace)

    async def require_life_in(self, namespace: str, cluster: str) -> None:
        """Raise NotInThisClusterError if the namespace lives in other clusters alone; MetadataError."""
        policies = await self.policies(namespace)
        if policies is not None:
            require_life_in(policies, namespace, cluster)

    async def forget_grants(self, topic: TopicName, *, has_partitions: bool) -> None:
        """What roles were given at a topic goes with it, so that a later one of that name begins with nothing.

        ``has_partitions``: and at its partitions. Raises MetadataError, ConflictError.
        """
        policies = await self.policies(topic.namespace)
        auth = None if policies is None else policies.document.get("auth_policies")
        if not isinstance(auth, dict) or not auth.get("destination_auth"):
            return
        # Loaded where anybody was given anything at a topic.
        from geminga.broker.access.core.grants import without_topic

        def change(found: Document) -> Document:
            if self._sharing_as and other_homes(Policies(found), self._sharing_as):
                return found  # the topic is there as well, and so are its roles
            return without_topic(found, topic, has_partitions=has_partitions)

        try:
            await self._resources.namespaces.update(topic.namespace, change)
        except NotFoundError:
            # The namespace went meanwhile, and they with it.
            pass
        self.forget(topic.namespace)

    def _watch(self, namespace: str) -> None:
        """Listen for changes of its policies, as one that was read just now."""
        if self._metadata is None:
            return
        unwatch = self._watched.pop(namespace, None)
        if unwatch is None:
            unwatch = self._watch_both(self._metadata, namespace)
        self._watched[namespace] = unwatch
        if len(self._watched) > NAMESPACES_REMEMBERED_MAX:
            self._unwatch(next(iter(self._watched)))

    def _watch_both(self, metadata: MetadataStore, namespace: str) -> Unsubscribe:
        watches = [metadata.watch_node(f"{at}{namespace}", self._on_change) for at in (POLICIES_PREFIX, _LOCAL_PREFIX)]

        def unwatch() -> None:
            for end in watches:
                end()

        return unwatch

    def _unwatch(self, namespace: str) -> None:
        unwatch = self._watched.pop(namespace, None)
        if unwatch is not None:
            unwatch()

    def _on_change(self, notification: Notification) -> None:
        path = notification.path
        namespace = path[len(POLICIES_PREFIX if path.startswith(POLICIES_PREFIX) else _LOCAL_PREFIX) :]
        # The metadata store tells: what fails here is not its failure.
        with Contained(self._part, "changed policies", is_last=True):
            self.forget(namespace)
            self._changed(namespace)


def is_fit_for_new(name: TopicName) -> bool:
    """Whether :func:`check_new_name` lets it pass."""
    return bool(name.local_name.strip(" ")) and len(name.local_name) <= LOCAL_NAME_CHARACTERS_MAX


def check_new_name(name: TopicName) -> None:
    """Raise InvalidTopicNameError if a client can not make a topic of that name."""
    if not name.local_name.strip(" "):
        # As in Pulsar; and over HTTP nobody could name it, to delete it.
        raise InvalidTopicNameError(f"invalid topic name {str(name)!r}: its last part must not be blank")
    if len(name.local_name) > LOCAL_NAME_CHARACTERS_MAX:
        raise InvalidTopicNameError(f"a topic's name has at most {LOCAL_NAME_CHARACTERS_MAX} characters")
