"""What a client wants kept along with a cumulative acknowledgment (``CommandAck.properties``): names, a number each.

As in Pulsar they are those of the subscription's position: each cumulative acknowledgment that moves it replaces
them, with none if it brings none. What is kept is written with every state of the cursor, so there is little of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from geminga.model.errors import NotAllowedError
from geminga.wire.pulsar.varint import signed64

#: Bytes of the names and numbers of one acknowledgment.
BYTES_MAX: Final = 4096
#: Of a number, at most.
_NUMBER_BYTES: Final = 10
NO_PROPERTIES: Final[Mapping[str, int]] = {}


def ack_properties(pairs: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    """Name -> number, as a Java ``long``; the last of a name counts; NotAllowedError beyond the bound."""
    found = {name: signed64(number) for name, number in pairs}
    size_bytes = sum(len(name.encode()) + _NUMBER_BYTES for name in found)
    if size_bytes > BYTES_MAX:
        raise NotAllowedError(f"The properties of an acknowledgment take {size_bytes} bytes, at most {BYTES_MAX}")
    return found or NO_PROPERTIES
