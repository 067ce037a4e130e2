"""Which status an error is for which request, and what fits into the answer of a batch read."""

from __future__ import annotations

from struct import pack

import pytest

from geminga.bookie.serving.answering import add_status, batch_entries, lac_of, read_answer
from geminga.model.errors import (
    CorruptionError,
    DiskFullError,
    LedgerFencedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageError,
    WrongMasterKeyError,
)
from geminga.wire.bookkeeper.answers import ReadAnswer
from geminga.wire.bookkeeper.codes import StatusCode
from geminga.wire.bookkeeper.requests import BatchReadRequest, EntryReadRequest
from geminga.wire.bookkeeper.stream import AnswerDecoder


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, StatusCode.EOK),
        (LedgerFencedError("x"), StatusCode.EFENCED),
        (NoSuchLedgerError("deleted"), StatusCode.EFENCED),
        (DiskFullError("x"), StatusCode.EREADONLY),
        (WrongMasterKeyError("x"), StatusCode.EUA),
        (StorageError("x"), StatusCode.EIO),
    ],
)
def test_add_is_refused_so(error, status):
    assert add_status(error) is status


def test_damage_is_no_absence_to_a_reader():
    request = EntryReadRequest(3, 5, 7, 9)
    assert AnswerDecoder(3).feed(read_answer(request, CorruptionError("x"))) == [
        ReadAnswer(5, StatusCode.EIO, 7, 9, None)
    ]


def test_lac_of_an_entry_is_a_hint_from_minus_one_on():
    assert lac_of(pack(">qqq", 7, 9, 8)) == 8
    assert lac_of(pack(">qqq", 7, 9, -1)) == -1
    assert lac_of(pack(">qqq", 7, 9, -(1 << 63))) == -1


def test_batch_ends_at_what_is_not_there_and_at_its_size():
    request = BatchReadRequest(2, 0, 7, 0, 0, 0)
    entries = [b"x" * 30, b"y" * 40, b"z" * 50]
    assert batch_entries(request, [*entries[:2], NoSuchEntryError("x"), entries[2]], 1000) == entries[:2]
    assert batch_entries(request, entries, 36 + 34 + 44) == entries[:2]
    assert batch_entries(request, entries, 36 + 34 + 43) == entries[:1]
    assert batch_entries(request, entries, 0) == entries[:1]
