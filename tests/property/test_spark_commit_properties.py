"""The steps of the exactly-once sink under all orders of crashes, errors and late records: each row once.

``test_every...`` goes through all stories with two faults; the others draw more faults, two drivers, and outages that
are longer than a transaction lives. The controls are sinks that must fail: without a decision, with an abort that does
not look, with one transaction for all attempts of a task, and with decisions that no claim protects.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geminga.model.txn_id import TxnId
from geminga.spark.sink_rules.commit_steps import Append, Decided, End
from geminga.spark.sink_rules.decisions import (
    KEPT_START,
    Claim,
    Ended,
    Kept,
    Prepared,
    SinkState,
    TaskBegun,
    decode,
    encode,
)
from geminga.spark.sink_rules.errors import DecisionLostError, ShutOutError, SinkError
from support.worlds.commit_world import TIMEOUT_MS, Died, Drawn, Driver, Every, Failed, Query, Rules, World, is_told

BATCHES = 2
SEEDS = st.integers(min_value=0, max_value=1 << 32)


def stories(rules: Rules, keeps_outcomes: bool, faults: int = 2) -> int:
    every = Every(faults)
    count = 0
    for path in every.stories():
        query = Query(World(every, keeps_outcomes), rules)
        try:
            query.run(BATCHES)
            query.check(BATCHES)
        except (AssertionError, SinkError) as error:
            raise AssertionError(f"{error!r} after {path}") from error
        count += 1
    return count


@pytest.mark.parametrize("keeps_outcomes", [True, False])
def test_every_story_with_two_faults_ends_with_each_row_once(keeps_outcomes: bool) -> None:
    assert stories(Rules(), keeps_outcomes) > 1500


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("keeps_outcomes", [True, False])
def test_every_story_with_three_faults_ends_with_each_row_once(keeps_outcomes: bool) -> None:
    assert stories(Rules(), keeps_outcomes, faults=3) > 30_000


@given(seed=SEEDS, percent=st.sampled_from([5, 20, 40]), keeps_outcomes=st.booleans())
def test_many_faults_end_with_each_row_once(seed: int, percent: int, keeps_outcomes: bool) -> None:
    query = Query(World(Drawn(seed, percent), keeps_outcomes), Rules())
    query.run(BATCHES + 1, attempts_max=1000)
    query.check(BATCHES + 1)


@given(seed=SEEDS, percent=st.sampled_from([0, 5, 20]), keeps_outcomes=st.booleans())
def test_two_drivers_that_take_turns_end_with_each_row_once(seed: int, percent: int, keeps_outcomes: bool) -> None:
    chooser, turns = Drawn(seed, percent), Drawn(seed + 1, 50)
    world = World(chooser, keeps_outcomes)
    query = Query(world, Rules())
    for batch in range(BATCHES):
        for _ in range(100):
            running = [query.attempt(Driver(world), batch) for _ in range(2)]
            is_committed = False
            while running:
                attempt = running[turns.among(len(running))]
                try:
                    next(attempt)
                except StopIteration:
                    is_committed = True
                except (Died, Failed, ShutOutError):
                    pass
                else:
                    continue
                running.remove(attempt)
            if is_committed:
                break
        else:
            raise AssertionError("no driver ever commits")
    query.check(BATCHES)


@given(seed=SEEDS, keeps_outcomes=st.booleans(), percent=st.sampled_from([10, 30]))
def test_outages_longer_than_a_transaction_lives_are_told_or_mended_and_never_silent(
    seed: int, keeps_outcomes: bool, percent: int
) -> None:
    world = World(Drawn(seed, percent), keeps_outcomes)
    clock = Drawn(seed + 1, 50)
    query = Query(world, Rules())
    try:
        query.run(BATCHES, between=lambda: world.pass_ms(TIMEOUT_MS * clock.among(3)), attempts_max=1000)
    except DecisionLostError as error:
        if not is_told(error):
            raise
        return
    query.check(BATCHES)


# ---- sinks that must fail


def undecided(state, request, wall_ms):
    """Commit what the tasks say, and write nothing down."""
    yield End(tuple(task.txn_id for task in request.tasks), commit=True)
    return Decided.NOW


def blind_abort(state, sink, claim, txn_ids):
    """Abort what Spark says, as most sinks do."""
    yield End(tuple(txn_ids), commit=False)
    return len(txn_ids)


def unclaimed_abort(state, sink, claim, txn_ids):
    """Abort what no decision names that arrived so far."""
    yield Append(TaskBegun(sink, 99, TxnId(9, 9), 0, 0, 0))  # reads the log up to now
    yield End(tuple(one for one in txn_ids if not state.is_decided(one)), commit=False)
    return 0


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (Rules(commit=undecided), "too often"),
        (Rules(abort=blind_abort), r"DecisionLost|aborted|lost"),
        (Rules(abort=unclaimed_abort), r"DecisionLost|aborted|lost"),
        (Rules(is_shared=True), "too often"),
    ],
    ids=["no decision", "blind abort", "abort without claim", "shared transaction"],
)
def test_a_sink_without_one_of_its_rules_is_caught(rules: Rules, expected: str) -> None:
    with pytest.raises(AssertionError, match=expected):
        stories(rules, keeps_outcomes=True)


def test_a_log_whose_decisions_need_no_claim_is_caught(monkeypatch) -> None:
    taken = SinkState.take

    def take(self: SinkState, record, position) -> bool:
        if isinstance(record, Prepared):
            self.claim = record.claim
        return taken(self, record, position)

    monkeypatch.setattr(SinkState, "take", take)
    with pytest.raises(AssertionError, match=r"DecisionLost|aborted|lost"):
        stories(Rules(), keeps_outcomes=True)


# ---- the format

TXNS = st.builds(TxnId, st.integers(0, 1 << 63), st.integers(0, 1 << 63))
TEXTS = st.text(max_size=20)
NUMBERS = st.integers(0, 1 << 31)
TASKS = st.builds(TaskBegun, TEXTS, NUMBERS, TXNS, NUMBERS, NUMBERS, NUMBERS)
PREPARED = st.builds(Prepared, TEXTS, NUMBERS, TEXTS, st.lists(TXNS).map(tuple), NUMBERS, TEXTS, TEXTS, NUMBERS)
RECORDS = st.one_of(
    TASKS,
    PREPARED,
    st.builds(Claim, TEXTS, TEXTS),
    st.builds(Ended, TEXTS, NUMBERS, TEXTS, st.booleans()),
    st.builds(Kept, TEXTS, st.tuples(NUMBERS, NUMBERS), TEXTS, NUMBERS, TEXTS, TEXTS),
    PREPARED.map(lambda one: Kept(one.sink, (1, 2), one.claim, 3, "", "", one)),
)


@given(RECORDS)
@example(Kept("sink", (1, 2), "claim", 3, "run", "topic", query="query"))
@example(Kept("sink", (1, 2), "claim", 3, prepared=Prepared("sink", 4, "claim", (TxnId(5, 6),), 7, decided_ms=8)))
def test_records_are_read_as_they_were_written(record) -> None:
    assert decode(encode(record)) == record
    assert encode(record).startswith(KEPT_START) == isinstance(record, Kept)


@given(st.binary())
def test_what_others_write_is_passed_over(data: bytes) -> None:
    if not data.startswith(b"{"):
        assert decode(data) is None


@pytest.mark.parametrize("data", [b'{"v":1,"sink":"app","batch":5}', b'{"kind":"task","sink":"x"}', b"[]", b"null"])
def test_plans_and_other_documents_are_passed_over(data: bytes) -> None:
    assert decode(data) is None


@pytest.mark.parametrize(
    "data",
    [b'{"v":2,"kind":"task","sink":"x"}', b'{"v":1,"kind":"new","sink":"x"}', b'{"v":1,"kind":"prepared","sink":"x"}'],
)
def test_records_of_a_newer_version_are_an_error_and_no_gap(data: bytes) -> None:
    with pytest.raises(SinkError, match="can not read"):
        decode(data)
