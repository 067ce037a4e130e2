"""What versions of schemas have in common with others that are the same, remembered."""

from __future__ import annotations

from typing import Final

from geminga.broker.schema.core.compatibility import identity_of
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType

#: Of definitions that are remembered; most are those that the store's cache keeps anyway.
REMEMBERED_BYTES_MAX: Final = 16 * 1024 * 1024
#: What one takes beside its definition, bytes; rounded up.
REMEMBERED_ENTRY_BYTES: Final = 512

#: Type, definition and, where they tell what the definition means, properties.
_Key = tuple[SchemaType, bytes, tuple[tuple[str, str], ...]]


class Identities:
    """:func:`~geminga.broker.schema.core.compatibility.identity_of`, which parses definitions, of stored schemas.

    A topic may have very many versions, and each new one is compared with all of them.
    """

    __slots__ = ("_bytes", "_known")

    def __init__(self) -> None:
        #: The longest unused first.
        self._known: dict[_Key, bytes | None] = {}
        self._bytes = 0

    def of(self, info: SchemaInfo) -> bytes | None:
        """None: it is like no other."""
        properties = tuple(sorted(info.properties.items())) if info.type is SchemaType.KEY_VALUE else ()
        key = (info.type, info.schema, properties)
        if key in self._known:
            identity = self._known.pop(key)
        else:
            identity = identity_of(info)
            self._bytes += _size(key)
        self._known[key] = identity
        while self._bytes > REMEMBERED_BYTES_MAX:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._bytes -= _size(oldest)
        return identity


def _size(key: _Key) -> int:
    return REMEMBERED_ENTRY_BYTES + len(key[1]) + sum(len(name) + len(value) for name, value in key[2])
