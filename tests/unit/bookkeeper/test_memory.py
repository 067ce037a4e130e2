"""The bookie in memory keeps the port's contract, and the pool serves it."""

from __future__ import annotations

import pytest

from geminga.bookkeeper import LacResult, LocalBookiePool, MemoryBookie
from geminga.model.bookie_port import Availability
from geminga.model.errors import (
    DiskIOError,
    LedgerFencedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageError,
)


@pytest.fixture
def bookie():
    return MemoryBookie(replies_at_once=True)


def add(bookie, first, *entries, ledger=1, recovery=False, key=b"k"):
    results = []
    bookie.add_entries(
        ledger,
        range(first, first + len(entries)),
        entries,
        master_key=key,
        recovery=recovery,
        done=lambda _, error: results.append(error),
    )
    return results[0] if results else "no reply"


def read(bookie, *entry_ids, ledger=1):
    results = []
    bookie.read_entries(ledger, entry_ids, results.append)
    return results[0]


def lac(bookie, ledger=1):
    results = []
    bookie.read_lac(ledger, done=results.append)
    return results[0]


def fence(bookie, ledger=1):
    results = []
    bookie.fence(ledger, master_key=b"k", done=results.append)
    return results[0]


def test_added_entries_are_read_back(bookie):
    assert add(bookie, 0, b"a", b"b") is None
    assert add(bookie, 1, b"b") is None
    assert read(bookie, 1, 0) == [b"b", b"a"]
    assert lac(bookie) == LacResult(1, b"b", None)


def test_absence_is_told_apart(bookie):
    assert isinstance(read(bookie, 0)[0], NoSuchLedgerError)
    assert isinstance(lac(bookie), NoSuchLedgerError)
    add(bookie, 0, b"a")
    assert isinstance(read(bookie, 3)[0], NoSuchEntryError)


def test_fenced_ledger_takes_recovery_adds_only(bookie):
    assert fence(bookie) is None
    assert lac(bookie) == LacResult(-1, None, None)
    assert isinstance(add(bookie, 0, b"a"), LedgerFencedError)
    assert add(bookie, 0, b"a", recovery=True) is None


def test_wrong_master_key_is_refused(bookie):
    add(bookie, 0, b"a")
    assert isinstance(add(bookie, 1, b"b", key=b"other"), StorageError)


def test_switches_do_what_they_say(bookie):
    bookie.fail(DiskIOError("x"))
    assert isinstance(add(bookie, 0, b"a"), DiskIOError)
    assert bookie.entry(1, 0) is None
    bookie.stores_before_error = True
    assert isinstance(add(bookie, 0, b"a"), DiskIOError)
    assert bookie.entry(1, 0) == b"a"
    assert isinstance(fence(bookie), DiskIOError)
    assert isinstance(lac(bookie), DiskIOError)
    bookie.fail(None)
    bookie.holds_replies = True
    assert add(bookie, 1, b"b") == "no reply"
    assert bookie.entry_ids(1) == [0, 1]


def test_pool_shows_writable_bookies_and_reaches_all():
    bookies = {"b": MemoryBookie(), "a": MemoryBookie(), "c": MemoryBookie()}
    pool = LocalBookiePool(bookies)
    bookies["a"].is_writable = False
    pool.unavailable.add("c")
    assert pool.available() == ["b"]
    assert pool.get("a") is bookies["a"]


def test_unknown_bookie_fails_every_call_and_never_says_absent():
    unknown = LocalBookiePool({}).get("x")
    errors = [add(unknown, 0, b"a"), read(unknown, 0)[0], fence(unknown), lac(unknown)]
    assert all(isinstance(error, StorageError) for error in errors)
    assert not any(isinstance(error, (NoSuchEntryError, NoSuchLedgerError)) for error in errors)


def test_pool_tells_which_bookie_changed():
    bookies = {name: MemoryBookie() for name in "ab"}
    pool, heard = LocalBookiePool(bookies), []
    pool.watch(lambda name, now: heard.append((name, now)))
    bookies["b"].is_writable = False
    bookies["a"].go_down(DiskIOError("gone"))
    bookies["a"].come_back()
    assert heard == [("b", Availability.READ_ONLY), ("a", Availability.DOWN), ("a", Availability.WRITABLE)]
    assert pool.available() == ["a"]


def test_bookie_that_the_pool_does_not_have_fails_every_call_without_an_absence():
    bookie, answers = LocalBookiePool({}).get("x"), []
    bookie.add_entries(
        1, (4, 7), [b"", b""], master_key=b"", recovery=True, done=lambda ids, e: answers.append((ids, e))
    )
    [(entry_ids, error)] = answers
    assert entry_ids == (4, 7)
    answers[:] = [error]
    bookie.write_lac(1, b"", master_key=b"", done=answers.append)
    bookie.list_entries(1, done=answers.append)
    bookie.read_info(done=answers.append)
    bookie.read_lac(1, done=answers.append)
    assert [type(answer) for answer in answers] == [StorageError] * 5
    assert (bookie.is_writable, bookie.availability) == (False, Availability.DOWN)
