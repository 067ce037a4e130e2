"""What versions of schemas have in common with others that are the same, remembered."""

from __future__ import annotations

from typing import Final

from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType

#: Of definitions that are remembered; most are those that the store's cache keeps anyway.
REMEMBERED_BYTES_MAX: Final = 16 * 1024 * 1024
#: What one takes beside its definition, bytes; rounded up.
REMEMBERED_ENTRY_BYTES: Final = 512

#: Type, definition and, where they tell what the definition means, properties.
_Key = tuple[SchemaType, bytes, tuple[tuple[str, str], ...]]


class Identities:
    """What :func:`~geminga.broker.schema.core.compatibility.identity_of` found of stored schemas, by parsing them.

    A topic may have very many versions, and each new one is compared with all of them.
    """

    __slots__ = ("_bytes", "_known")

    def __init__(self) -> None:
        #: The longest unused first.
        self._known: dict[_Key, bytes | None] = {}
        self._bytes = 0

    def of(self, info: SchemaInfo) -> bytes | None:
        """None: it is like no other. Raises KeyError where it is not known."""
        key = _key_of(info)
        identity = self._known[key] = self._known.pop(key)
        return identity

    def keep(self, info: SchemaInfo, identity: bytes | None) -> None:
        """Remember what was found of ``info``, for as long as there is room."""
        key = _key_of(info)
        if key not in self._known:
            self._bytes += _size(key)
        self._known[key] = identity
        while self._bytes > REMEMBERED_BYTES_MAX:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._bytes -= _size(oldest)


def _key_of(info: SchemaInfo) -> _Key:
    properties = tuple(sorted(info.properties.items())) if info.type is SchemaType.KEY_VALUE else ()
    return info.type, info.schema, properties


def _size(key: _Key) -> int:
    return REMEMBERED_ENTRY_BYTES + len(key[1]) + sum(len(name) + len(value) for name, value in key[2])
