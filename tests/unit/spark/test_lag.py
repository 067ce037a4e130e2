"""How far a query is behind, from positions and the times at which ends were seen."""

from __future__ import annotations

from geminga.spark.source_rules.lag import SIGHTINGS_MAX, Lag
from geminga.spark.source_rules.offsets import BEGINNING, ReadPosition


def at(ledger: int, entry: int, index: int = 0) -> ReadPosition:
    return ReadPosition(ledger, entry, index)


def test_nothing_is_behind_where_the_batch_reaches_the_end() -> None:
    lag = Lag()
    assert lag.behind({}, 0) == {"entries": 0, "ms": 0}
    lag.saw({"a": at(1, 5), "b": BEGINNING}, 100)
    assert lag.behind({"a": at(1, 5)}, 900) == {"entries": 0, "ms": 0}


def test_entries_are_summed_over_topics_and_the_oldest_unread_one_gives_the_time() -> None:
    lag = Lag()
    lag.saw({"a": at(1, 5), "b": at(2, 10)}, 100)
    lag.saw({"a": at(1, 8), "b": at(2, 10)}, 300)
    assert lag.behind({"a": at(1, 5), "b": at(2, 4)}, 1000) == {"entries": 9, "ms": 900}
    assert lag.behind({"a": at(1, 6, 3), "b": at(2, 10)}, 1000) == {"entries": 2, "ms": 700}
    assert lag.behind({"a": at(1, 8), "b": at(2, 10)}, 1000) == {"entries": 0, "ms": 0}


def test_ledgers_between_make_it_a_lower_bound() -> None:
    lag = Lag()
    lag.saw({"a": at(7, 3)}, 0)
    assert lag.behind({"a": at(5, 100)}, 10) == {"atLeast": True, "entries": 3, "ms": 10}
    assert lag.behind({}, 10) == {"atLeast": True, "entries": 3, "ms": 10}


def test_topics_that_are_gone_are_forgotten() -> None:
    lag = Lag()
    lag.saw({"a": at(1, 5), "b": at(1, 5)}, 0)
    lag.saw({"b": at(1, 5)}, 10)
    assert lag.behind({"b": at(1, 4)}, 20) == {"entries": 1, "ms": 20}


def test_many_sightings_are_bounded_and_never_tell_too_small_a_lag() -> None:
    lag = Lag()
    for number in range(10 * SIGHTINGS_MAX):
        lag.saw({"a": at(1, number + 1)}, number)
    now = 10 * SIGHTINGS_MAX
    assert lag.behind({}, now)["ms"] == now
    for read in range(1, now):
        told = lag.behind({"a": at(1, read)}, now)
        assert told["entries"] == now - read
        assert now - read <= told["ms"] <= now
