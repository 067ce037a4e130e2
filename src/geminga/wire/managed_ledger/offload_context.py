"""``OffloadContext`` of a ledger in the list: that, and where, it was offloaded (docs/formats/lake.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from geminga.model.errors import CorruptionError
from geminga.wire._generated import managed_ledger_pb2 as pb

#: The property by which our own contexts are told from those of Pulsar's drivers, and its value.
LAKE_PROPERTY: Final = "geminga.lake"
LAKE_VERSION: Final = 1
_HALF_BITS: Final = 64
_HALF_MASK: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63


class OffloadRecord(NamedTuple):
    """What is registered of one ledger."""

    #: 32 hex digits.
    uid: str
    driver: str
    #: Where the root is; never credentials.
    properties: Mapping[str, str]
    #: The file was read back: it counts.
    is_complete: bool = False
    #: The bookies' copy is deleted, or about to be.
    is_bookkeeper_deleted: bool = False
    #: When it became complete, ms since the epoch; 0: it is not.
    completed_ms: int = 0

    @property
    def is_ours(self) -> bool:
        """Whether it is a lake file; otherwise one of Pulsar's drivers wrote it."""
        return LAKE_PROPERTY in self.properties


def encode_offload_context(record: OffloadRecord) -> bytes:
    """The serialised message; equal records give equal bytes."""
    number = int(record.uid, 16)
    message = pb.OffloadContext(
        uidMsb=_signed(number >> _HALF_BITS), uidLsb=_signed(number & _HALF_MASK), complete=record.is_complete
    )
    message.bookkeeperDeleted = record.is_bookkeeper_deleted
    if record.completed_ms:
        message.timestamp = record.completed_ms
    message.driverMetadata.name = record.driver
    for key in sorted(record.properties):
        message.driverMetadata.properties.add(key=key, value=record.properties[key])
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


def decode_offload_context(value: bytes) -> OffloadRecord:
    """The inverse, whoever wrote it. Raises CorruptionError; also for a lake file of a newer version."""
    message = pb.OffloadContext()
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise CorruptionError(f"OffloadContext: {error}") from error
    properties = {pair.key: pair.value for pair in message.driverMetadata.properties}
    version = properties.get(LAKE_PROPERTY, "1")
    if not version.isdigit() or int(version) > LAKE_VERSION:
        raise CorruptionError(f"a lake file of version {version!r}, newer than {LAKE_VERSION}")
    number = (message.uidMsb & _HALF_MASK) << _HALF_BITS | message.uidLsb & _HALF_MASK
    return OffloadRecord(
        f"{number:032x}",
        message.driverMetadata.name,
        properties,
        message.complete,
        message.bookkeeperDeleted,
        message.timestamp,
    )


def _signed(half: int) -> int:
    return half - (1 << _HALF_BITS) if half & _SIGN else half
