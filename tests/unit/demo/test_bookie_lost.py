"""What the demo counts of copies when a bookie was lost for good."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest
from demo.__main__ import refusal, run_parts
from demo.bookie_lost import Lost
from demo.broker_lost import BrokerLost, told
from demo.events import Events
from demo.verdict import Verdict
from rich.console import Console
from tools.chaos.copies import Copies
from tools.standalone_process import StandaloneProcess

from geminga.wire.bookkeeper.digest import DigestType
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata, LedgerState

STRIPED = LedgerMetadata(
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    fragments=(LedgerFragment(0, ("a", "b", "c")), LedgerFragment(3, ("a", "b", "d"))),
    digest_type=DigestType.CRC32C,
    password=b"",
    created_ms=0,
)
CLOSED = replace(STRIPED, state=LedgerState.CLOSED, last_entry_id=4, length_bytes=5)
#: Entry e is on the bookies e and e + 1, mod 3, of its fragment's ensemble.
WHOLE = {"a": [range(1), range(2, 4)], "b": [range(2), range(3, 5)], "c": [range(1, 3)], "d": [range(4, 5)]}
ALL = frozenset("abcd")


def counted(metadata: LedgerMetadata, listed: dict[str, Sequence[range]], registered: frozenset[str] = ALL) -> Copies:
    copies = Copies()
    copies.count(metadata, registered, listed)
    return copies


@pytest.mark.parametrize("metadata", [STRIPED, CLOSED])
def test_entries_on_their_whole_write_set_lack_nothing(metadata: LedgerMetadata) -> None:
    copies = counted(metadata, WHOLE)
    assert (copies.ledgers, copies.fragments, copies.entries) == (1, 2, 5)
    assert (copies.lacking, copies.naming_lost) == (0, 0)
    assert copies.of_bookie == {"a": 2, "b": 2, "c": 1, "d": 1}


@pytest.mark.parametrize("metadata", [STRIPED, CLOSED])
def test_entry_that_one_of_its_bookies_does_not_list_is_counted_once(metadata: LedgerMetadata) -> None:
    assert counted(metadata, {**WHOLE, "c": [range(2, 3)]}).lacking == 1
    assert counted(metadata, {**WHOLE, "b": [range(1), range(3, 5)], "c": [range(2, 3)]}).lacking == 1


def test_what_a_bookie_has_that_is_not_there_does_not_count() -> None:
    copies = counted(CLOSED, WHOLE, ALL - {"c"})
    assert (copies.lacking, copies.naming_lost) == (2, 1)


def test_closed_ledger_ends_where_it_says_whatever_a_bookie_lists() -> None:
    copies = counted(CLOSED, {**WHOLE, "d": [range(4, 9)]})
    assert (copies.entries, copies.lacking) == (5, 0)
    assert counted(STRIPED, {**WHOLE, "d": [range(4, 9)]}).lacking == 4


def test_run_that_restored_nothing_is_none() -> None:
    lost = Lost(3, 2, killed="c", fragments_of_killed=1)
    lost.see(counted(CLOSED, WHOLE), "d")
    lost.judge(Verdict(0, set(), set()))
    assert lost.fragments_naming_killed == 1
    assert lost.failures() == ["1 fragments name a bookie that is gone"]
    assert "its loss shows nothing" in Lost(3, 2, killed="c").failures()[0]
    assert json.loads(json.dumps(asdict(lost)))["fragments_of_joined"] == 1


@pytest.mark.parametrize("asked", ["0", "2", "8", "-3", "three", "3.5", "٣٣"])
def test_number_of_bookies_that_can_not_be_shown_is_refused(asked: str) -> None:
    assert "expected a number of bookies from 3 to 7" in refusal(asked, txn=False)


def test_cluster_and_transactions_are_not_shown_at_once() -> None:
    assert "expected one of them" in refusal("3", txn=True)
    assert refusal("", txn=True) == ""
    assert refusal("3", "2", txn=True).startswith("BROKERS and TXN are two demonstrations")


@pytest.mark.parametrize("asked", ["0", "6", "-2", "two", "2.0", "٢"])
def test_number_of_brokers_that_can_not_be_shown_is_refused(asked: str) -> None:
    assert "expected a number of brokers from 1 to 5" in refusal("3", asked, txn=False)


@pytest.mark.parametrize("asked", ["many", "-1", "1.5", "٢"])
def test_number_of_kills_that_is_none_is_refused_before_a_broker_is_started(asked: str) -> None:
    assert refusal("", txn=True, kills=asked) == f"KILLS={asked}: expected a number"
    assert refusal("", txn=True, kills="7") == refusal("", txn=False, kills=asked) == ""


def test_parts_of_which_none_can_be_shown_are_no_success(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("demo.__main__.find_spec", lambda name: None)
    broker = StandaloneProcess(tmp_path / "data", log=tmp_path / "log")
    told = run_parts(Console(), broker, Events([], "none"), tmp_path, dedup=False)
    assert told[0].startswith("nothing was shown")


def test_broker_that_served_nothing_shows_nothing() -> None:
    lost = Lost(3, 2, killed="c", fragments_of_killed=1, brokers=2, broker=BrokerLost("pulsar://a:1"))
    assert lost.failures() == ["broker pulsar://a:1 served nothing: its loss shows nothing"]
    lost.broker = BrokerLost("pulsar://a:1", partitions=1)
    assert lost.failures() == []


def test_owners_are_told_with_their_partitions() -> None:
    assert told({1: "b", 0: "a", 2: "b"}) == "a: 0; b: 1, 2"
