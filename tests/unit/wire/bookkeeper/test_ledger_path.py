"""Paths as BookKeeper's HierarchicalLedgerManager makes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.wire.bookkeeper.ledger_path import (
    HIERARCHICAL_LAYOUT,
    depth_below,
    is_known_layout,
    is_ledger_leaf,
    ledger_id_of_path,
    ledger_path,
)


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (0, "/ledgers/00/0000/L0000"),
        (1, "/ledgers/00/0000/L0001"),
        (1234567890, "/ledgers/12/3456/L7890"),
        ((1 << 31) - 2, "/ledgers/21/4748/L3646"),
        ((1 << 31) - 1, "/ledgers/000/0000/0021/4748/L3647"),
        ((1 << 63) - 1, "/ledgers/922/3372/0368/5477/L5807"),
    ],
)
def test_path_of_known_ids(ledger_id, path):
    assert ledger_path(ledger_id) == path
    assert ledger_id_of_path(path) == ledger_id


@given(st.integers(0, (1 << 63) - 1))
def test_path_gives_the_id_back(ledger_id):
    assert ledger_id_of_path(ledger_path(ledger_id)) == ledger_id


@pytest.mark.parametrize("ledger_id", [-1, 1 << 63])
def test_impossible_id_is_refused(ledger_id):
    with pytest.raises(ValueError):
        ledger_path(ledger_id)


@pytest.mark.parametrize("path", ["/ledgers", "/ledgers/idgen", "/ledgers/00/0000/X0001", "/other/00/0000/L0001"])
def test_other_paths_are_no_ledgers(path):
    assert ledger_id_of_path(path) is None


def test_levels_below_the_root():
    assert [depth_below(name) for name in ("00", "000", "idgen", "available", "0000")] == [2, 4, None, None, None]
    assert [is_ledger_leaf(name) for name in ("L0001", "L1", "0001")] == [True, False, False]


@pytest.mark.parametrize(
    ("note", "is_known"),
    [
        (HIERARCHICAL_LAYOUT, True),
        (HIERARCHICAL_LAYOUT + b"\n", True),
        (b"1\nhierarchical:1", True),
        (b"2\norg.apache.bookkeeper.meta.LegacyHierarchicalLedgerManagerFactory:1", True),
        (b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1", False),
        (b"2\norg.apache.bookkeeper.meta.MSLedgerManagerFactory:1", False),
        (b"1\nflat:1", False),
        (b"", False),
        (b"HierarchicalLedgerManagerFactory", False),
    ],
)
def test_layouts_whose_paths_are_known(note, is_known):
    assert is_known_layout(note) == is_known
