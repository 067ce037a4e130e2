"""BookKeeper's formats that client and bookie share: digests, ledger metadata, paths, codes, the bookie protocol."""

from geminga.wire.bookkeeper.digest import DigestType, EntryDigest, EntryHeader, digest_for, master_key, read_header
from geminga.wire.bookkeeper.ledger_metadata import (
    LedgerFragment,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from geminga.wire.bookkeeper.ledger_path import LEDGERS_ROOT, ledger_id_of_path, ledger_path

__all__ = [
    "LEDGERS_ROOT",
    "DigestType",
    "EntryDigest",
    "EntryHeader",
    "LedgerFragment",
    "LedgerMetadata",
    "LedgerState",
    "decode_ledger_metadata",
    "digest_for",
    "encode_ledger_metadata",
    "ledger_id_of_path",
    "ledger_path",
    "master_key",
    "read_header",
]
