"""ManagedLedgerInfo as docs/formats/managed-ledger.md shows it."""

from __future__ import annotations

import pytest

from geminga.model.errors import CorruptionError
from geminga.model.position import Position
from geminga.wire._generated import managed_ledger_pb2 as pb
from geminga.wire.managed_ledger import (
    LedgerRecord,
    ManagedLedgerRecord,
    decode_managed_ledger_info,
    encode_managed_ledger_info,
)

WORKED_EXAMPLE = bytes.fromhex("0a12080310d0860318c096b1022080d095ffbc310a020807")


def test_ledger_info_of_the_format_page_is_encoded_so():
    record = ManagedLedgerRecord((LedgerRecord(3, 50_000, 5_000_000, 1_700_000_000_000), LedgerRecord(7)))
    assert encode_managed_ledger_info(record) == WORKED_EXAMPLE
    assert decode_managed_ledger_info(WORKED_EXAMPLE) == record


def test_ledger_info_with_everything_comes_back():
    offload = pb.OffloadContext(uidMsb=1, uidLsb=2, complete=True, timestamp=5).SerializeToString()
    record = ManagedLedgerRecord(
        (LedgerRecord(1, 2, 3, 4, offload, (("k", "v"), ("k", "w"))), LedgerRecord(9)),
        Position(9, 4),
        {"b": "2", "a": "1"},
    )
    assert decode_managed_ledger_info(encode_managed_ledger_info(record)) == record


def test_ledger_info_of_an_empty_node_is_an_empty_list():
    assert decode_managed_ledger_info(b"") == ManagedLedgerRecord()


def test_ledger_info_that_is_damaged_is_refused():
    with pytest.raises(CorruptionError, match="does not parse"):
        decode_managed_ledger_info(WORKED_EXAMPLE[:-1])
