"""The metadata of one ledger as BookKeeper stores it: format version 3.

``BookieMetadataFormatVersion\\t3\\n``, then the varint size of a ``LedgerMetadataFormat`` message, then the message.
Versions 1 and 2 (text, before BookKeeper 4.9) are refused with a sentence.
See ``docs/formats/ledger-metadata.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from geminga.model.errors import CorruptionError, invariant
from geminga.wire._generated.bookkeeper_metadata_pb2 import LedgerMetadataFormat
from geminga.wire.bookkeeper.digest import DigestType
from geminga.wire.pulsar.varint import encode_varint

_PREAMBLE: Final = b"BookieMetadataFormatVersion\t"
_VERSION: Final = b"3"
_VERSION_DIGITS_MAX: Final = 10

#: Of custom metadata: by which groups of bookies the ledger is placed (``isolation``).
META_PLACEMENT: Final = "EnsemblePlacementPolicyConfig"

_NO_CUSTOM_METADATA: Final[Mapping[str, bytes]] = MappingProxyType({})


class LedgerState(IntEnum):
    """``LedgerMetadataFormat.State``."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class LedgerFragment(NamedTuple):
    """From ``first_entry_id`` on, the bookies of ``ensemble``, in this order, hold the ledger's entries."""

    first_entry_id: int
    #: Bookie ids; the index of a bookie decides which entries it holds.
    ensemble: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """What is known of a ledger outside of its entries."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    #: Ascending by first entry id, never empty; the first begins at 0.
    fragments: tuple[LedgerFragment, ...]
    state: LedgerState = LedgerState.OPEN
    #: Valid in state CLOSED; -1 for an empty ledger.
    last_entry_id: int = -1
    #: Payload bytes; valid in state CLOSED.
    length_bytes: int = 0
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b""
    #: Milliseconds since the epoch, None if the writer did not store it.
    created_ms: int | None = None
    custom_metadata: Mapping[str, bytes] = field(default_factory=lambda: _NO_CUSTOM_METADATA)
    #: Random number of the creator; tells it after an unknown outcome whether the node is its own.
    creation_token: int | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the last entry is fixed for ever."""
        return self.state is LedgerState.CLOSED

    @property
    def last_fragment(self) -> LedgerFragment:
        """The fragment that takes new entries."""
        return self.fragments[-1]

    def with_state(self, state: LedgerState) -> LedgerMetadata:
        """The same ledger in another state that is not CLOSED."""
        return replace(self, state=state)

    def closed(self, *, last_entry_id: int, length_bytes: int) -> LedgerMetadata:
        """The same ledger with its end fixed."""
        return replace(self, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length_bytes=length_bytes)

    def with_fragments(self, fragments: Sequence[LedgerFragment]) -> LedgerMetadata:
        """The same ledger on other bookies."""
        return replace(self, fragments=tuple(fragments))

    def check_invariants(self) -> None:
        """Raise InvariantError if these values can not be a ledger's."""
        invariant(
            1 <= self.ack_quorum <= self.write_quorum <= self.ensemble_size,
            f"ledger metadata: need 1 <= Qa <= Qw <= E, have {self.ack_quorum}, {self.write_quorum}, "
            f"{self.ensemble_size}",
        )
        firsts = [fragment.first_entry_id for fragment in self.fragments]
        invariant(
            firsts and firsts[0] == 0 and firsts == sorted(set(firsts)),
            f"ledger metadata: fragments must ascend from 0, have {firsts}",
        )
        invariant(
            all(len(fragment.ensemble) == self.ensemble_size for fragment in self.fragments),
            f"ledger metadata: every ensemble has {self.ensemble_size} bookies, have {self.fragments}",
        )


def encode_ledger_metadata(metadata: LedgerMetadata) -> bytes:
    """The bytes of the metadata node."""
    metadata.check_invariants()
    message = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        ackQuorumSize=metadata.ack_quorum,
        length=metadata.length_bytes,
        lastEntryId=metadata.last_entry_id,
        state=metadata.state.name,
        digestType=metadata.digest_type.name,
        password=metadata.password,
    )
    if metadata.created_ms is not None:
        message.ctime = metadata.created_ms
    if metadata.creation_token is not None:
        message.cToken = metadata.creation_token
    for key, value in metadata.custom_metadata.items():
        message.customMetadata.add(key=key, value=value)
    for fragment in metadata.fragments:
        message.segment.add(firstEntryId=fragment.first_entry_id, ensembleMember=fragment.ensemble)
    body = message.SerializeToString()
    return b"".join((_PREAMBLE, _VERSION, b"\n", encode_varint(len(body)), body))


def decode_ledger_metadata(value: bytes, ledger_id: int) -> LedgerMetadata:
    """The inverse; raises CorruptionError saying what of ledger ``ledger_id``'s metadata is damaged or too old."""
    message = LedgerMetadataFormat()
    try:
        message.ParseFromString(_body(value, ledger_id))
    except DecodeError as error:
        raise CorruptionError(f"metadata of ledger {ledger_id}: {error}") from error
    ack_quorum = message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize
    is_closed = message.state == LedgerMetadataFormat.CLOSED
    metadata = LedgerMetadata(
        ensemble_size=message.ensembleSize,
        write_quorum=message.quorumSize,
        ack_quorum=ack_quorum,
        # BookKeeper reads them in any order.
        fragments=tuple(
            sorted(
                (LedgerFragment(s.firstEntryId, tuple(s.ensembleMember)) for s in message.segment),
                key=lambda fragment: fragment.first_entry_id,
            )
        ),
        state=LedgerState(message.state),
        last_entry_id=message.lastEntryId if is_closed else -1,
        length_bytes=message.length if is_closed else 0,
        digest_type=DigestType(message.digestType),
        password=message.password,
        created_ms=message.ctime if message.HasField("ctime") else None,
        custom_metadata={entry.key: entry.value for entry in message.customMetadata} or _NO_CUSTOM_METADATA,
        creation_token=message.cToken if message.HasField("cToken") else None,
    )
    if not (
        metadata.fragments
        and metadata.fragments[0].first_entry_id == 0
        and len({fragment.first_entry_id for fragment in metadata.fragments}) == len(metadata.fragments)
        and 1 <= metadata.ack_quorum <= metadata.write_quorum <= metadata.ensemble_size
        and all(len(fragment.ensemble) == metadata.ensemble_size for fragment in metadata.fragments)
        # protobuf gives bytes for what is no UTF-8.
        and all(isinstance(bookie_id, str) for fragment in metadata.fragments for bookie_id in fragment.ensemble)
    ):
        raise CorruptionError(f"metadata of ledger {ledger_id}: quorums and fragments contradict each other")
    return metadata


def _body(value: bytes, ledger_id: int) -> bytes:
    if not value.startswith(_PREAMBLE):
        raise CorruptionError(f"metadata of ledger {ledger_id}: does not begin with {_PREAMBLE!r}")
    line_end = value.find(b"\n", len(_PREAMBLE), len(_PREAMBLE) + _VERSION_DIGITS_MAX + 1)
    version = value[len(_PREAMBLE) : line_end] if line_end >= 0 else b""
    if version != _VERSION:
        found = version.decode("ascii", "replace")
        raise CorruptionError(f"metadata of ledger {ledger_id}: format version {found!r}, this program reads 3")
    size, start = _read_varint(value, line_end + 1)
    if start < 0 or start + size > len(value):
        raise CorruptionError(f"metadata of ledger {ledger_id}: cut off, {len(value)} bytes")
    return value[start : start + size]


def _read_varint(value: bytes, offset: int) -> tuple[int, int]:
    """(number, offset behind it), or (0, -1) if it is cut off or longer than five bytes."""
    number = 0
    for index, byte in enumerate(value[offset : offset + 5]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, offset + index + 1
    return 0, -1
