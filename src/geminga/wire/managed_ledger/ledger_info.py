"""``ManagedLedgerInfo``: the value of ``/managed-ledgers/<name>``, as plain values.

Format: docs/formats/managed-ledger.md. Decoding raises :class:`CorruptionError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from geminga.model.errors import CorruptionError
from geminga.model.position import Position
from geminga.wire._generated import managed_ledger_pb2 as pb

#: First bytes of a value of a managed ledger or cursor that Pulsar compressed.
COMPRESSED_MAGIC: Final = b"\x47\x78"
#: Lists of more bytes are compressed: a node holds 1 MiB, which is some 45,000 ledgers, or 6,500 that were offloaded.
PLAIN_BYTES_MAX: Final = 256 * 1024


class LedgerRecord(NamedTuple):
    """One ledger of the list; ``closed_ms`` 0 means it was open when the list was written."""

    ledger_id: int
    entries: int = 0
    size_bytes: int = 0
    closed_ms: int = 0
    #: Pulsar's OffloadContext as found, serialised; empty if none.
    offload_context: bytes = b""
    #: Pulsar's properties of the ledger as found, names and values.
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def is_closed(self) -> bool:
        """Whether the list itself says where the ledger ends."""
        return self.closed_ms > 0


@dataclass(frozen=True, slots=True)
class ManagedLedgerRecord:
    """The whole value."""

    ledgers: tuple[LedgerRecord, ...] = ()
    terminated: Position | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def is_complete(offload_context: bytes) -> bool:
    """Whether an ``OffloadContext`` says that the whole ledger was offloaded; False if it can not be read."""
    message = pb.OffloadContext()
    try:
        message.ParseFromString(offload_context)
    except DecodeError:
        return False
    return bool(message.complete)


def encode_managed_ledger_info(record: ManagedLedgerRecord) -> bytes:
    """The node's value; equal records give equal bytes."""
    message = pb.ManagedLedgerInfo()
    for ledger in record.ledgers:
        info = message.ledgerInfo.add(ledgerId=ledger.ledger_id)
        if ledger.is_closed:
            info.entries = ledger.entries
            info.size = ledger.size_bytes
            info.timestamp = ledger.closed_ms
        if ledger.offload_context:
            info.offloadContext.ParseFromString(ledger.offload_context)
        for key, text in ledger.properties:
            info.properties.add(key=key, value=text)
    if record.terminated is not None:
        message.terminatedPosition.ledgerId = record.terminated.ledger_id
        message.terminatedPosition.entryId = record.terminated.entry_id
    for key in sorted(record.properties):
        message.properties.add(key=key, value=record.properties[key])
    value: bytes = message.SerializeToString(deterministic=True)
    if len(value) <= PLAIN_BYTES_MAX:
        return value
    from geminga.wire.managed_ledger.compressed_info import deflated

    return deflated(value)


def uncompressed(value: bytes, what: str) -> bytes:
    """``value`` as it was before Pulsar compressed it, or as it is. Raises :class:`CorruptionError` with ``what``."""
    if not value.startswith(COMPRESSED_MAGIC):
        return value
    # Loaded by the first value that needs it: few lists are long, and Pulsar compresses none unless it is told to.
    from geminga.wire.managed_ledger.compressed_info import inflated

    return inflated(value, what)


def decode_managed_ledger_info(value: bytes) -> ManagedLedgerRecord:
    """The inverse of :func:`encode_managed_ledger_info`; an empty value is an empty list.

    One that Pulsar compressed is read, too.
    """
    value = uncompressed(value, "ManagedLedgerInfo")
    message = pb.ManagedLedgerInfo()
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise CorruptionError(f"ManagedLedgerInfo does not parse: {error}") from error
    ledgers = tuple(
        LedgerRecord(
            info.ledgerId,
            info.entries,
            info.size,
            info.timestamp,
            info.offloadContext.SerializeToString() if info.HasField("offloadContext") else b"",
            tuple((pair.key, pair.value) for pair in info.properties),
        )
        for info in message.ledgerInfo
    )
    terminated = None
    if message.HasField("terminatedPosition"):
        terminated = Position(message.terminatedPosition.ledgerId, message.terminatedPosition.entryId)
    return ManagedLedgerRecord(ledgers, terminated, {pair.key: pair.value for pair in message.properties})
