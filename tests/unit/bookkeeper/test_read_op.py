"""Reads over fragments and replicas: which bookie is asked for what, and in how many calls."""

from __future__ import annotations

import pytest

from geminga.bookkeeper import LocalBookiePool, MemoryBookie
from geminga.bookkeeper.core.distribution import Distribution
from geminga.bookkeeper.core.read_attempts import StickyReplica
from geminga.bookkeeper.read_op import ReadOp, fragment_of, read_single
from geminga.bookkeeper.replicas import Replicas
from geminga.model.errors import CorruptionError, NoSuchEntryError, StorageError
from geminga.wire.bookkeeper.digest import DigestType, digest_for
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment

DIGEST = digest_for(DigestType.CRC32C, b"")
PAYLOADS = [f"payload {i}".encode() for i in range(8)]


class CountingBookie(MemoryBookie):
    """Remembers what it was asked to read."""

    def __init__(self):
        super().__init__(replies_at_once=True)
        self.asked = []

    def read_entries(self, ledger_id, entry_ids, done, *, bytes_max=None):
        self.asked.append(list(entry_ids))
        super().read_entries(ledger_id, entry_ids, done, bytes_max=bytes_max)


def filled(distribution, fragments, ledger_id=4):
    bookies = {name: CountingBookie() for fragment in fragments for name in fragment.ensemble}
    for entry_id, entry in enumerate(DIGEST.encode(ledger_id, 0, -1, 0, PAYLOADS)):
        ensemble = fragment_of(fragments, entry_id).ensemble
        for index in distribution.write_set(entry_id):
            bookies[ensemble[index]].add_entries(
                ledger_id, [entry_id], [entry], master_key=b"", recovery=False, done=lambda *_: None
            )
    return bookies


def read(bookies, distribution, fragments, first, last, ledger_id=4):
    results = []
    replicas, entry_ids = Replicas(LocalBookiePool(bookies), lambda: 0.0), range(first, last + 1)
    sticky = StickyReplica(distribution, ledger_id) if distribution.is_uniform else None
    ReadOp(replicas, DIGEST, distribution, fragments, ledger_id, entry_ids, results.append, sticky=sticky).start()
    assert len(results) == 1
    return results[0]


def test_uniform_ledger_is_read_in_one_call_of_one_bookie():
    distribution, fragments = Distribution(3, 3, 2), (LedgerFragment(0, ("a", "b", "c")),)
    bookies = filled(distribution, fragments)
    assert read(bookies, distribution, fragments, 2, 6) == PAYLOADS[2:7]
    assert [bookie.asked for bookie in bookies.values()] == [[], [[2, 3, 4, 5, 6]], []]


def test_striped_ledger_is_read_in_one_call_of_each_bookie():
    distribution, fragments = Distribution(3, 2, 2), (LedgerFragment(0, ("a", "b", "c")),)
    bookies = filled(distribution, fragments)
    assert read(bookies, distribution, fragments, 0, 7) == PAYLOADS
    assert [bookie.asked for bookie in bookies.values()] == [[[0, 3, 6]], [[1, 4, 7]], [[2, 5]]]


def test_read_over_fragments_asks_the_bookies_of_each():
    distribution = Distribution(1, 1, 1)
    fragments = (LedgerFragment(0, ("a",)), LedgerFragment(3, ("b",)), LedgerFragment(5, ("a",)))
    bookies = filled(distribution, fragments)
    assert read(bookies, distribution, fragments, 1, 6) == PAYLOADS[1:7]
    assert (bookies["a"].asked, bookies["b"].asked) == ([[1, 2, 5, 6]], [[3, 4]])


def test_only_what_failed_is_asked_again():
    distribution, fragments = Distribution(3, 3, 2), (LedgerFragment(0, ("a", "b", "c")),)
    bookies = filled(distribution, fragments)
    bookies["b"].corrupt(4, 3)
    bookies["c"].forget_entry(4, 3)
    assert read(bookies, distribution, fragments, 2, 4) == PAYLOADS[2:5]
    assert (bookies["c"].asked, bookies["a"].asked) == ([[3]], [[3]])


def test_entry_that_no_replica_has_is_the_worst_of_their_errors():
    distribution, fragments = Distribution(2, 2, 2), (LedgerFragment(0, ("a", "b")),)
    bookies = filled(distribution, fragments)
    bookies["a"].corrupt(4, 1)
    bookies["b"].forget_entry(4, 1)
    assert isinstance(read(bookies, distribution, fragments, 0, 2), CorruptionError)


def test_of_several_entries_that_no_replica_has_the_first_is_reported():
    distribution, fragments = Distribution(3, 2, 2), (LedgerFragment(0, ("a", "b", "c")),)
    bookies = filled(distribution, fragments)
    # The bookie that is asked first has the later one.
    for entry_id in (2, 4):
        for index in distribution.write_set(entry_id):
            bookies["abc"[index]].forget_entry(4, entry_id)
    error = read(bookies, distribution, fragments, 1, 4)
    assert isinstance(error, NoSuchEntryError)
    assert "4:2" in str(error)


def test_single_bookie_read_reports_the_first_bad_entry():
    bookies = filled(Distribution(1, 1, 1), (LedgerFragment(0, ("a",)),))
    bookies["a"].forget_entry(4, 2)
    results = []
    read_single(LocalBookiePool(bookies), "a", DIGEST, 4, range(2), results.append)
    read_single(LocalBookiePool(bookies), "a", DIGEST, 4, range(4), results.append)
    assert results[0] == PAYLOADS[:2]
    assert isinstance(results[1], NoSuchEntryError)


def test_entry_before_every_fragment_is_an_error():
    with pytest.raises(StorageError):
        fragment_of((LedgerFragment(5, ("a",)),), 4)
