"""A log of decisions whose beginning goes: whoever reads what is left comes to the same, and each row is there once.

Drivers and cleaners take turns, record by record; all of them die anywhere, and what they sent may arrive late. The
controls are cleaners that must be caught.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.txn_id import TxnId
from geminga.spark.sink_rules import log_survey
from geminga.spark.sink_rules.decisions import Claim, Kept, SinkState, TaskBegun, encode
from geminga.spark.sink_rules.errors import ShutOutError, SinkError
from geminga.spark.sink_rules.log_survey import CLEAN_AFTER_RECORDS, HOLD_MAX_MS, LogSurvey
from support.worlds.commit_world import SINK, TIMEOUT_MS, Died, Drawn, Driver, Every, Failed, Query, Rules, World

BATCHES = 3
SEEDS = st.integers(min_value=0, max_value=1 << 32)
OTHERS = 4


def other(world: World, number: int) -> None:
    """A record of a sink that never commits again."""
    world.log.append(encode(Claim(f"other{number % OTHERS}", str(number))))


def cleaned(world: World, cleaner: Iterator[None]) -> None:
    for _ in cleaner:
        pass
    world.pass_ms(1)


@pytest.mark.parametrize("faults", [1, pytest.param(2, marks=pytest.mark.long)])
def test_every_story_with_faults_and_a_cleaner_between_the_starts_ends_with_each_row_once(faults: int) -> None:
    every = Every(faults)
    count = gone = 0
    for path in every.stories():
        world = World(every)
        query = Query(world, Rules())

        def between(world: World = world) -> None:
            cleaned(world, world.clean())

        try:
            between()
            query.run(2, between=between)
            between()
            query.check(2)
            world.check_what_is_left()
        except (AssertionError, SinkError) as error:
            raise AssertionError(f"{error!r} after {path}") from error
        count, gone = count + 1, gone + bool(world.gone)
    assert count > (50, 1000)[faults - 1]
    assert gone > count // 2


@given(seed=SEEDS, percent=st.sampled_from([0, 5, 20]), recent=st.sampled_from([0, 3, 10]))
def test_drivers_and_cleaners_that_take_turns_end_with_each_row_once(seed: int, percent: int, recent: int) -> None:
    turns_with_cleaners(seed, percent, recent)


def turns_with_cleaners(seed: int, percent: int, recent: int) -> None:
    chooser, turns = Drawn(seed, percent), Drawn(seed + 1, 60)
    world = World(chooser)
    query = Query(world, Rules())
    drivers = [Driver(world) for _ in range(2)]
    for batch in range(BATCHES):
        for _ in range(100):
            other(world, turns.among(100))
            running = [query.attempt(driver, batch) for driver in drivers]
            running += [world.clean(recent) for _ in range(1 + turns.among(2))]
            attempts = running[:2]
            is_committed = False
            while running:
                one = running[turns.among(len(running))]
                try:
                    next(one)
                except StopIteration:
                    is_committed |= one in attempts
                    if one in attempts and drivers[attempts.index(one)].log.state.prepared is not None:
                        drivers[attempts.index(one)] = Driver(world)
                except (Died, Failed, ShutOutError):
                    drivers[attempts.index(one)] = Driver(world)
                else:
                    continue
                running.remove(one)
            if is_committed:
                break
        else:
            raise AssertionError("no driver ever commits")
    query.check(BATCHES)
    world.check_what_is_left()


def test_log_is_bounded_however_many_batches_and_sinks_that_are_over() -> None:
    world = World(Drawn(1, 0))
    query, driver = Query(world, Rules()), Driver(world)
    left = []
    for batch in range(400):
        other(world, batch)
        for _ in query.attempt(driver, batch):
            pass
        world.pass_ms(TIMEOUT_MS)
        if batch % 20 == 19:
            for _ in world.clean(recent_records=10):
                pass
            left.append(len(world.log) - world.needless)
    assert max(left) <= 20 + OTHERS, left
    assert len(world.log) > 2000


# ---- one by one


def survey_of(*records: object, now_ms: int = 0) -> LogSurvey:
    survey = LogSurvey(now_ms, recent_records=0)
    for place, record in enumerate(records):
        survey.take(record if isinstance(record, bytes) else encode(record), (0, place))  # type: ignore[arg-type]
    return survey


def test_transaction_that_may_be_open_holds_its_record_and_a_clock_of_another_century_does_not() -> None:
    def task(until: int) -> TaskBegun:
        return TaskBegun(SINK, 0, TxnId(0, until), 0, 0, until)

    claim = Claim(SINK, "a")
    assert survey_of(task(999), claim, claim, now_ms=1000).needless() == (0, 1)
    assert survey_of(claim, task(1001), claim, now_ms=1000).needless() == (0, 0)
    assert survey_of(claim, task(1000 + HOLD_MAX_MS + 1), claim, now_ms=1000).needless() == (0, 1)


def test_log_with_a_record_of_a_newer_version_or_with_too_many_sinks_stays(monkeypatch) -> None:
    claims = [Claim(SINK, "a"), Claim(SINK, "b")]
    foreign = survey_of(*claims, b'{"v":2,"kind":"claim","sink":"x"}')
    assert (foreign.needless(), foreign.to_keep()) == (None, [])
    assert survey_of(*claims, b'{"sink":"x","batch":4}', b"a plan of somebody").needless() == (0, 0)
    monkeypatch.setattr(log_survey, "SINKS_MAX", 1)
    crowded = survey_of(*claims, Claim("other", "c"))
    assert (crowded.needless(), crowded.to_keep()) == (None, [])


def test_log_of_few_records_for_each_sink_is_not_written_again() -> None:
    claims = [Claim(f"sink{number}", "a") for number in range(10)]
    assert survey_of(*claims, *claims).to_keep() == []
    assert len(survey_of(*claims, *claims, *claims).to_keep()) == 9  # the last record's sink is recent
    assert CLEAN_AFTER_RECORDS > 0


# ---- cleaners that must be caught


@pytest.mark.parametrize("plant", ["a late one counts", "base at the newest claim", "all goes", "claim is forgotten"])
def test_a_cleaner_without_one_of_its_rules_is_caught(monkeypatch, plant: str) -> None:
    taken, kept = SinkState.take, SinkState.kept
    if plant == "a late one counts":

        def take(self: SinkState, record, position) -> bool:
            if isinstance(record, Kept):
                self.claim_at = self.decided_at = (-1, -1)
            return taken(self, record, position)

        monkeypatch.setattr(SinkState, "take", take)
    elif plant == "base at the newest claim":
        take_of_sink = log_survey._Sink.take

        def take_newest(self: log_survey._Sink, record, here) -> None:
            take_of_sink(self, record, here)
            self.base = self.claim

        monkeypatch.setattr(log_survey._Sink, "take", take_newest)
    elif plant == "all goes":
        monkeypatch.setattr(LogSurvey, "needless", lambda self: self.last)
    else:
        monkeypatch.setattr(
            SinkState, "kept", lambda self, sink, at: Kept(sink, at, "", self.committed, "", "", self.prepared)
        )
        assert kept is not SinkState.kept
    with pytest.raises((AssertionError, SinkError)):
        for seed in range(300):
            turns_with_cleaners(seed, 20, 0)
