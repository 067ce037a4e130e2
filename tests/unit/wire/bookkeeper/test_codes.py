"""Status codes and errors map both ways, and no failure is rounded to "no such entry"."""

from __future__ import annotations

import pytest

from geminga.model.errors import (
    CorruptionError,
    DiskFullError,
    DiskIOError,
    LedgerFencedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageError,
    UnknownEntryError,
    WrongMasterKeyError,
)
from geminga.wire.bookkeeper.codes import StatusCode, error_of_status, status_of_error


@pytest.mark.parametrize(
    "error",
    [
        NoSuchLedgerError,
        NoSuchEntryError,
        DiskIOError,
        LedgerFencedError,
        DiskFullError,
        UnknownEntryError,
        WrongMasterKeyError,
    ],
)
def test_error_survives_the_way_over_the_wire(error):
    assert type(error_of_status(status_of_error(error("x")), "x")) is error


def test_success_is_no_error():
    assert status_of_error(None) is StatusCode.EOK
    assert error_of_status(0, "") is None


@pytest.mark.parametrize("error", [StorageError("x"), CorruptionError("x")])
def test_error_without_a_code_is_an_io_error(error):
    assert status_of_error(error) is StatusCode.EIO


@pytest.mark.parametrize("status", [StatusCode.EBADREQ, StatusCode.EBADVERSION, StatusCode.ETOOMANYREQUESTS, 999])
def test_code_without_an_error_is_never_an_absence(status):
    error = error_of_status(status, "x")
    assert isinstance(error, StorageError)
    assert not isinstance(error, (NoSuchEntryError, NoSuchLedgerError))
