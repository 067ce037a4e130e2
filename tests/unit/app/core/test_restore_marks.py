"""What a store may hold before a backup is restored to it, and how ledgers are spread there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from geminga.app.storage.core.restore_marks import Found, RestoredSizes, goes_on, is_done
from geminga.metadata.core.copying import Marker
from geminga.model.errors import ConfigurationError, DataDirectoryError
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata

MINE, OTHER = Marker("b1", "/copy"), Marker("b2", "/older")
BOOKIES_ALONE = ("/zookeeper", "/ledgers", "/geminga", "/geminga/bookie-marks")


def test_store_in_which_bookies_alone_were_started_is_empty() -> None:
    for paths in (BOOKIES_ALONE, (), ("/ledgers", "/geminga", "/geminga/restorer")):
        assert not goes_on(Found(paths, False, 0), "b1", "zk:there")


@pytest.mark.parametrize(
    ("paths", "has_ledgers", "next_id", "said"),
    [
        ((*BOOKIES_ALONE, "/admin"), False, 0, "it holds /admin"),
        ((*BOOKIES_ALONE, "/geminga/installation"), False, 0, "it holds /geminga/installation"),
        (("/ledgers", "/bookies"), False, 0, "it holds /bookies"),
        (BOOKIES_ALONE, True, 3, "it holds ledgers below /ledgers"),
        (BOOKIES_ALONE, False, 3, "it holds ids given out to 3 ledgers"),
    ],
)
def test_store_with_anything_else_is_refused_by_what_it_holds(
    paths: Sequence[str], has_ledgers: bool, next_id: int, said: str
) -> None:
    with pytest.raises(DataDirectoryError, match=f"zk:there is not empty: {said}. Nothing was changed"):
        goes_on(Found(paths, has_ledgers, next_id), "b1", "zk:there")


def test_part_of_this_backup_goes_on_and_one_of_another_is_refused() -> None:
    anything = ("/admin", *BOOKIES_ALONE)
    assert goes_on(Found(anything, True, 3, restoring=MINE), "b1", "zk:there")
    assert goes_on(Found(anything, True, 3, restoring=MINE, restored=MINE), "b1", "zk:there")
    with pytest.raises(DataDirectoryError, match=r"a part of another backup \(b2, of /older\)"):
        goes_on(Found(anything, True, 3, restoring=OTHER), "b1", "zk:there")
    with pytest.raises(DataDirectoryError, match=r"was made of another backup \(b2, of /older\)"):
        goes_on(Found(anything, True, 3, restored=OTHER), "b1", "zk:there")


def test_done_is_what_this_backup_left_and_nobody_goes_on_with() -> None:
    assert is_done(Found((), True, 3, restored=MINE), "b1")
    assert not is_done(Found((), True, 3, restored=OTHER), "b1")
    assert not is_done(Found((), True, 3, restoring=MINE, restored=MINE), "b1")
    assert not is_done(Found((), False, 0), "b1")


def test_sizes_are_those_of_the_ledger_or_those_given_as_far_as_they_go() -> None:
    ledger = LedgerMetadata(3, 3, 2, (LedgerFragment(0, ("a", "b", "c")),))
    assert RestoredSizes().of(ledger) == (3, 3, 2)
    assert RestoredSizes(2).of(ledger) == (2, 2, 2)
    assert RestoredSizes(5, 2, 1).of(ledger) == (5, 2, 1)
    assert RestoredSizes(write_quorum=4).of(ledger) == (4, 4, 2)
    with pytest.raises(ConfigurationError, match="managedLedgerDefaultEnsembleSize=2, WriteQuorum=0, AckQuorum=3"):
        RestoredSizes(2, 0, 3)
