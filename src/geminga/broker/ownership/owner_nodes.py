"""Who owns bundles that are not this broker's, as it knows: their nodes, remembered and watched."""

from __future__ import annotations

from typing import Final, NamedTuple

from geminga.broker.ownership.core.bundles import Bundle
from geminga.broker.ownership.core.owner_data import OwnerData, OwnerListener, decode_owner, owner_path
from geminga.broker.ownership.endpoints import DEFAULT_LISTENER, Endpoint, Endpoints
from geminga.broker.ownership.ports import HERE, Elsewhere, Owner, Unknown
from geminga.metadata.ports import MetadataStore, Node, Unsubscribe
from geminga.runtime import Clock

#: Owners remembered and watched; the one that was read longest ago is forgotten first.
OWNERS_REMEMBERED_MAX: Final = 10_000
#: Milliseconds after which an owner is read again, in case the news of its end was lost.
OWNERS_AGE_MS_MAX: Final = 10_000

LETTING_GO: Final = Unknown("its bundle is being unloaded")
#: The same, by this broker.
ENDING_HERE: Final = Unknown("its bundle is being unloaded", is_ending_here=True)
_OF_BEFORE: Final = Unknown("its bundle belongs to a session of this broker that is over")


class _Remembered(NamedTuple):
    owner: Elsewhere
    #: Monotonic.
    read_ms: float
    unwatch: Unsubscribe


class OwnerNodes:
    """See the module."""

    __slots__ = ("_changes", "_clock", "_metadata", "_remembered")

    def __init__(self, metadata: MetadataStore, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock
        self._remembered: dict[Bundle, _Remembered] = {}
        #: Counts what was heard: a read that began before is not remembered.
        self._changes = 0

    def known(self, bundle: Bundle) -> Elsewhere | None:
        """Its owner, if another one was seen a short while ago and nothing was heard since."""
        found = self._remembered.get(bundle)
        if found is None or self._clock.monotonic() * 1000 - found.read_ms >= OWNERS_AGE_MS_MAX:
            return None
        return found.owner

    async def read(self, bundle: Bundle, own: OwnerData) -> Owner | None:
        """Its owner now: ``Here`` if this session made the node, None where nobody owns it. Raises StorageError.

        ``own``: what this broker writes.
        """
        before = self._remembered.pop(bundle, None)
        unwatch = self._watch(bundle) if before is None else before.unwatch
        changes, now_ms = self._changes, self._clock.monotonic() * 1000
        is_remembered = False
        try:
            node = await self._metadata.get(owner_path(bundle))
            owner = None if node is None else owner_in(bundle, node, own)
            if isinstance(owner, Elsewhere) and changes == self._changes and bundle not in self._remembered:
                self._remembered[bundle] = _Remembered(owner, now_ms, unwatch)
                is_remembered = True
        finally:
            if not is_remembered:
                unwatch()
        if len(self._remembered) > OWNERS_REMEMBERED_MAX:
            self.forget(next(iter(self._remembered)))
        return owner

    def forget(self, bundle: Bundle) -> None:
        """Read it again when it is next asked for."""
        self._changes += 1
        found = self._remembered.pop(bundle, None)
        if found is not None:
            found.unwatch()

    def forget_all(self) -> None:
        """The session is another one, or the broker closes."""
        self._changes += 1
        for one in self._remembered.values():
            one.unwatch()
        self._remembered.clear()

    def _watch(self, bundle: Bundle) -> Unsubscribe:
        return self._metadata.watch_node(owner_path(bundle), lambda _: self.forget(bundle))


def owner_in(bundle: Bundle, node: Node, own: OwnerData) -> Owner:
    """What a bundle's node says; who is told by the session, not by what is written. Raises CorruptionError."""
    if node.stat.is_own:
        return HERE
    owner = decode_owner(owner_path(bundle), node.value)
    if owner.is_disabled:
        return LETTING_GO
    if owner.default == own.default:
        # Nobody else has this address: clients would be sent round until that session ends.
        return _OF_BEFORE
    return Elsewhere(endpoints_in(owner))


def endpoints_in(owner: OwnerData) -> Endpoints:
    """The listeners of an owner."""
    listeners = [Endpoint(name, *one) for name, one in owner.listeners.items()]
    return Endpoints([Endpoint(DEFAULT_LISTENER, *owner.default), *listeners])


def owner_of_endpoints(endpoints: Endpoints) -> OwnerData:
    """What a broker with these listeners writes; the default one is named only beside others, as Pulsar's is."""
    listeners = {one.name: OwnerListener(*one_urls(one)) for one in endpoints.all}
    return OwnerData(OwnerListener(*one_urls(endpoints.default)), listeners if len(listeners) > 1 else {})


def one_urls(endpoint: Endpoint) -> tuple[str, str, str, str]:
    """In the order of :class:`OwnerListener`."""
    return endpoint.broker_url, endpoint.broker_url_tls, endpoint.web_url, endpoint.web_url_tls
