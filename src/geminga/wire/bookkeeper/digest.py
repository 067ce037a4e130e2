"""Entry digests: the header and checksum that BookKeeper's client puts before each payload.

::

    offset  size  field
    0       8     ledger id              int64, big endian
    8       8     entry id               int64
    16      8     last add confirmed     int64, -1 if none; confirmed when this entry was sent
    24      8     length                 int64, payload bytes of the ledger up to and with this entry
    32      n     digest                 over bytes 0-31 and the payload: CRC32C 4, CRC32 8, HMAC-SHA1 20, DUMMY 0
    32 + n  ...   payload

A writer that announces its last add confirmed by itself sends ledger id, LAC (8 bytes each) and the digest over them.

CRC32C is a uint32, CRC32 the same value widened to int64, both big endian. The key of the HMAC is
SHA1("mac" + password), the master key that a bookie checks is SHA1("ledger" + password).
The client makes and checks digests; a bookie reads only the header. See ``docs/formats/entry-digest.md``.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from geminga.model.bookie_port import EntryData
from geminga.model.crc32c import crc32c
from geminga.model.errors import CorruptionError

#: Passwords whose master key is kept; ledgers of one cluster nearly always have the same.
MASTER_KEYS_CACHED_MAX: Final = 64
#: Bytes before the digest.
HEADER_BYTES: Final = 32
#: Bytes before the payload with CRC32C.
CRC32C_PREFIX_BYTES: Final = 36

_HEADER: Final = struct.Struct(">qqqq")
_HEADER_CRC32C: Final = struct.Struct(">qqqqI")
_IDS: Final = struct.Struct(">qq")


class DigestType(IntEnum):
    """``LedgerMetadataFormat.DigestType``; HMAC is called MAC in BookKeeper's API."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


class EntryHeader(NamedTuple):
    """The first 32 bytes of an entry."""

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    #: Payload bytes of the ledger up to and with this entry.
    length_bytes: int


class EntryDigest(Protocol):
    """Makes and checks the entries of one ledger."""

    @property
    def overhead_bytes(self) -> int:
        """Bytes before the payload."""
        ...

    def encode(
        self, ledger_id: int, first_entry_id: int, lac: int, length: int, payloads: Sequence[bytes]
    ) -> list[bytes]:
        """Whole entries for consecutive payloads; ``length`` is the ledger's length before them."""
        ...

    def payload(self, ledger_id: int, entry_id: int, entry: EntryData) -> bytes | CorruptionError:
        """The payload of a whole entry, or what is wrong with it (an error as a value)."""
        ...

    def encode_lac(self, ledger_id: int, lac: int) -> bytes:
        """A last add confirmed as a writer announces it without an entry."""
        ...

    def announced_lac(self, ledger_id: int, packet: bytes) -> int | CorruptionError:
        """What :meth:`encode_lac` was given, or what is wrong with the bytes (an error as a value)."""
        ...


def read_header(entry: EntryData) -> EntryHeader:
    """The header of a whole entry, not checked; raises CorruptionError if the entry is shorter than a header."""
    if len(entry) < HEADER_BYTES:
        raise CorruptionError(f"entry of {len(entry)} bytes is shorter than its header of {HEADER_BYTES}")
    return EntryHeader._make(_HEADER.unpack_from(entry))


@lru_cache(maxsize=MASTER_KEYS_CACHED_MAX)
def master_key(password: bytes) -> bytes:
    """What a bookie is shown to prove the right to write or fence a ledger (20 bytes)."""
    return hashlib.sha1(b"ledger" + password).digest()


def encode_entries(
    ledger_id: int, first_entry_id: int, lac: int, length: int, payloads: Sequence[bytes]
) -> list[bytes]:
    """Whole CRC32C entries for consecutive payloads; the hot path of every publish (about 0.5 us an entry)."""
    crc = crc32c
    pack = _HEADER.pack
    pack_with_crc = _HEADER_CRC32C.pack
    entry_id = first_entry_id
    entries: list[bytes] = []
    add = entries.append
    for payload in payloads:
        length += len(payload)
        value = crc(payload, crc(pack(ledger_id, entry_id, lac, length)))
        add(pack_with_crc(ledger_id, entry_id, lac, length, value) + payload)
        entry_id += 1
    return entries


class Crc32cDigest:
    """CRC32C, what Pulsar uses unless told otherwise."""

    __slots__ = ()
    overhead_bytes = CRC32C_PREFIX_BYTES

    encode = staticmethod(encode_entries)

    def payload(self, ledger_id: int, entry_id: int, entry: EntryData) -> bytes | CorruptionError:
        """See :class:`EntryDigest`."""
        if len(entry) < CRC32C_PREFIX_BYTES:
            return _too_short(ledger_id, entry_id, entry, CRC32C_PREFIX_BYTES)
        found_ledger, found_entry, _, _, stored = _HEADER_CRC32C.unpack_from(entry)
        payload = bytes(entry[CRC32C_PREFIX_BYTES:])
        if crc32c(payload, crc32c(entry[:HEADER_BYTES])) != stored:
            return CorruptionError(f"ledger {ledger_id} entry {entry_id}: CRC32C of the stored entry does not match")
        if found_ledger != ledger_id or found_entry != entry_id:
            return _wrong_entry(ledger_id, entry_id, found_ledger, found_entry)
        return payload

    def encode_lac(self, ledger_id: int, lac: int) -> bytes:
        """See :class:`EntryDigest`."""
        ids = _IDS.pack(ledger_id, lac)
        return ids + crc32c(ids).to_bytes(4, "big")

    def announced_lac(self, ledger_id: int, packet: bytes) -> int | CorruptionError:
        """See :class:`EntryDigest`."""
        return _checked_lac(ledger_id, packet, self.encode_lac)


class _PlainDigest:
    """The rarer digests share one slow path; a subclass says how its bytes are made."""

    __slots__ = ()
    _name = ""
    _size_bytes = 0

    def _code(self, header: bytes, payload: bytes) -> bytes:
        raise AssertionError("a subclass says how its digest is made")

    @property
    def overhead_bytes(self) -> int:
        """See :class:`EntryDigest`."""
        return HEADER_BYTES + self._size_bytes

    def encode(
        self, ledger_id: int, first_entry_id: int, lac: int, length: int, payloads: Sequence[bytes]
    ) -> list[bytes]:
        """See :class:`EntryDigest`."""
        entries = []
        for entry_id, payload in enumerate(payloads, first_entry_id):
            length += len(payload)
            header = _HEADER.pack(ledger_id, entry_id, lac, length)
            entries.append(header + self._code(header, payload) + payload)
        return entries

    def payload(self, ledger_id: int, entry_id: int, entry: EntryData) -> bytes | CorruptionError:
        """See :class:`EntryDigest`."""
        prefix = HEADER_BYTES + self._size_bytes
        if len(entry) < prefix:
            return _too_short(ledger_id, entry_id, entry, prefix)
        entry = bytes(entry)
        header, payload = entry[:HEADER_BYTES], entry[prefix:]
        if not hmac.compare_digest(self._code(header, payload), entry[HEADER_BYTES:prefix]):
            return CorruptionError(
                f"ledger {ledger_id} entry {entry_id}: {self._name} of the stored entry does not match"
            )
        found_ledger, found_entry = _IDS.unpack_from(entry)
        if found_ledger != ledger_id or found_entry != entry_id:
            return _wrong_entry(ledger_id, entry_id, found_ledger, found_entry)
        return payload

    def encode_lac(self, ledger_id: int, lac: int) -> bytes:
        """See :class:`EntryDigest`."""
        ids = _IDS.pack(ledger_id, lac)
        return ids + self._code(ids, b"")

    def announced_lac(self, ledger_id: int, packet: bytes) -> int | CorruptionError:
        """See :class:`EntryDigest`."""
        return _checked_lac(ledger_id, packet, self.encode_lac)


class Crc32Digest(_PlainDigest):
    """CRC32 (the zlib polynomial) in eight bytes, of older ledgers."""

    __slots__ = ()
    _name = "CRC32"
    _size_bytes = 8

    def _code(self, header: bytes, payload: bytes) -> bytes:
        return zlib.crc32(payload, zlib.crc32(header)).to_bytes(8, "big")


class MacDigest(_PlainDigest):
    """HMAC-SHA1 keyed by the ledger's password."""

    __slots__ = ("_key",)
    _name = "HMAC-SHA1"
    _size_bytes = 20

    def __init__(self, password: bytes) -> None:
        self._key = hashlib.sha1(b"mac" + password).digest()

    def _code(self, header: bytes, payload: bytes) -> bytes:
        return hmac.digest(self._key, header + payload, "sha1")


class DummyDigest(_PlainDigest):
    """No digest: ids are checked, damage is not found."""

    __slots__ = ()
    _name = "DUMMY"

    def _code(self, header: bytes, payload: bytes) -> bytes:
        return b""


_CRC32C_DIGEST: Final = Crc32cDigest()
_CRC32_DIGEST: Final = Crc32Digest()
_DUMMY_DIGEST: Final = DummyDigest()


def digest_for(digest_type: DigestType, password: bytes) -> EntryDigest:
    """The digest of a ledger whose metadata says ``digest_type``."""
    if digest_type is DigestType.CRC32C:
        return _CRC32C_DIGEST
    if digest_type is DigestType.HMAC:
        return MacDigest(password)
    if digest_type is DigestType.CRC32:
        return _CRC32_DIGEST
    return _DUMMY_DIGEST


def read_lac_ids(packet: bytes) -> tuple[int, int]:
    """(ledger id, LAC) of an announced last add confirmed, not checked; raises CorruptionError if it is too short."""
    if len(packet) < _IDS.size:
        raise CorruptionError(f"an announced LAC of {len(packet)} bytes is shorter than its ids of {_IDS.size}")
    ledger_id, lac = _IDS.unpack_from(packet)
    return ledger_id, lac


def _checked_lac(ledger_id: int, packet: bytes, encode: Callable[[int, int], bytes]) -> int | CorruptionError:
    if len(packet) < _IDS.size:
        return CorruptionError(f"ledger {ledger_id}: an announced LAC of {len(packet)} bytes")
    found_ledger, lac = _IDS.unpack_from(packet)
    if found_ledger != ledger_id or not hmac.compare_digest(packet, encode(ledger_id, lac)):
        return CorruptionError(f"ledger {ledger_id}: the announced LAC does not match its digest")
    return int(lac)


def _too_short(ledger_id: int, entry_id: int, entry: EntryData, prefix: int) -> CorruptionError:
    return CorruptionError(f"ledger {ledger_id} entry {entry_id}: {len(entry)} bytes, its header alone has {prefix}")


def _wrong_entry(ledger_id: int, entry_id: int, found_ledger: int, found_entry: int) -> CorruptionError:
    return CorruptionError(
        f"ledger {ledger_id} entry {entry_id}: the bookie returned ledger {found_ledger} entry {found_entry}"
    )
