"""How namespaces are cut into bundles, as this broker knows it: local policies, remembered and followed.

Remembered is what exists, until news of a change or for :data:`BUNDLES_AGE_MS_MAX`, in case the news was lost. While
the metadata store does not answer what is remembered goes on to hold: what is served is served on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from geminga.broker.core.coercion import Json, encode_document
from geminga.broker.ownership.core.bundles import Bundle, Bundles
from geminga.broker.ownership.core.local_policies import (
    bundles_in,
    decode_local_policies,
    first_local_policies,
    local_policies_path,
    with_bundles,
)
from geminga.metadata import cas
from geminga.metadata.ports import MetadataStore, Unsubscribe
from geminga.model.errors import MetadataError
from geminga.runtime import Clock

#: Namespaces remembered and watched; the one that was read longest ago is forgotten first.
NAMESPACES_REMEMBERED_MAX: Final = 10_000
#: Milliseconds after which they are read again.
BUNDLES_AGE_MS_MAX: Final = 10_000
#: When something was read that is to be read again.
_LONG_AGO_MS: Final = float("-inf")

#: The (global) policies of ``tenant/namespace``; None if there is no such namespace. Raises MetadataError.
PoliciesOf = Callable[[str], Awaitable[Mapping[str, Json] | None]]
#: Add the cuts of a namespace to its (global) policies, from which other clusters begin. Raises GemingaError.
KeepCuts = Callable[[str, Bundles], Awaitable[None]]


class _Remembered(NamedTuple):
    bundles: Bundles
    #: Monotonic; what was heard of a change since makes it old.
    read_ms: float
    unwatch: Unsubscribe


class NamespaceBundles:
    """See the module."""

    __slots__ = ("_changed", "_changes", "_clock", "_metadata", "_policies_of", "_remembered")

    def __init__(
        self, metadata: MetadataStore, clock: Clock, policies_of: PoliciesOf, changed: Callable[[], None]
    ) -> None:
        """``changed`` is called when some namespace may be cut otherwise."""
        self._metadata = metadata
        self._clock = clock
        self._policies_of = policies_of
        self._changed = changed
        self._remembered: dict[str, _Remembered] = {}
        #: Counts what was heard: a read that began before is old.
        self._changes = 0

    def close(self) -> None:
        """Stop listening."""
        for one in self._remembered.values():
            one.unwatch()
        self._remembered.clear()

    def known(self, namespace: str) -> Bundles | None:
        """What is remembered, however old."""
        found = self._remembered.get(namespace)
        return None if found is None else found.bundles

    async def get(self, namespace: str) -> Bundles | None:
        """The bundles of ``tenant/namespace``; None if there is no such namespace. Raises StorageError."""
        now_ms = self._clock.monotonic() * 1000
        known = self._remembered.get(namespace)
        if known is not None and now_ms - known.read_ms < BUNDLES_AGE_MS_MAX:
            return known.bundles
        changes = self._changes
        try:
            found = await self.read(namespace)
            if found is not None and namespace not in self._remembered:
                self._remember(namespace, found, _LONG_AGO_MS)
                # Between that read and the watch a change would be told to nobody.
                found = await self.read(namespace)
        except MetadataError:
            if known is None:
                raise
            return known.bundles
        if found is None:
            self._forget(namespace)
        else:
            self._remember(namespace, found, now_ms if changes == self._changes else _LONG_AGO_MS)
        return found

    async def read(self, namespace: str) -> Bundles | None:
        """As they are stored now; the local policies are made of the policies where there are none.

        Raises StorageError.
        """
        path = local_policies_path(namespace)
        node = await self._metadata.get(path)
        value = b"" if node is None else node.value
        if not value:
            policies = await self._policies_of(namespace)
            if policies is None:
                return None
            first = encode_document(first_local_policies(namespace, policies))
            written = await cas.update(self._metadata, path, lambda found: None if found else first)
            value = first if written is None else written.value
        return bundles_in(namespace, decode_local_policies(namespace, value))

    async def split(self, bundle: Bundle, keys: Sequence[int]) -> Bundles:
        """Write that it is split at ``keys``, by compare-and-set; all else in the local policies stays.

        The bundles as they are then. Raises PreconditionFailedError where that can not be, StorageError.
        """
        namespace = bundle.namespace
        after: Bundles | None = None

        def change(value: bytes | None) -> bytes | None:
            nonlocal after
            document = decode_local_policies(namespace, value or b"{}")
            before = bundles_in(namespace, document)
            if bundle.lower in before.boundaries and {*keys, bundle.upper} <= set(before.boundaries):
                # Our own write, whose outcome was unknown, or another one to the same end.
                after = before
                return None
            after = before.with_split(bundle, keys)
            return encode_document(with_bundles(document, after))

        await cas.update(self._metadata, local_policies_path(namespace), change)
        assert after is not None
        self._changes += 1
        self._remember(namespace, after, self._clock.monotonic() * 1000)
        return after

    def _remember(self, namespace: str, bundles: Bundles, read_ms: float) -> None:
        before = self._remembered.pop(namespace, None)
        if before is None:
            unwatch = self._metadata.watch_node(local_policies_path(namespace), lambda _: self._heard(namespace))
        else:
            unwatch = before.unwatch
        self._remembered[namespace] = _Remembered(bundles, read_ms, unwatch)
        if len(self._remembered) > NAMESPACES_REMEMBERED_MAX:
            self._forget(next(iter(self._remembered)))

    def _forget(self, namespace: str) -> None:
        known = self._remembered.pop(namespace, None)
        if known is not None:
            known.unwatch()

    def _heard(self, namespace: str) -> None:
        self._changes += 1
        known = self._remembered.get(namespace)
        if known is not None:
            self._remembered[namespace] = known._replace(read_ms=_LONG_AGO_MS)
        self._changed()
