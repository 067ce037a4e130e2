"""Adds in version 2: cut anywhere, the answers are the same; whatever comes in whatever order, each entry ends once."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from geminga.bookkeeper.core.adds_under_way import NO_ANSWER, AddsUnderWay
from geminga.wire.bookkeeper import v2
from geminga.wire.bookkeeper.add_stream import AddAnswerDecoder, AddRun, add_parts
from geminga.wire.bookkeeper.codes import StatusCode
from geminga.wire.bookkeeper.requests import AddRequest
from geminga.wire.bookkeeper.stream import RequestDecoder

KEY = bytes(range(20))
STATUSES = (StatusCode.EOK, StatusCode.EFENCED, StatusCode.EREADONLY)
STRANGE = st.sampled_from([pack(">I", 25), pack(">I", 23), b"\x00\x00\x00\x18\x02\x02\x00\x00", b"\xff" * 4])


def answers_of(runs: Sequence[tuple[int, int, int, StatusCode]]) -> bytes:
    return b"".join(
        v2.encode_add_answers([AddRequest(2, 0, ledger_id, entry_id, KEY, b"", False)], status)
        for ledger_id, first, count, status in runs
        for entry_id in range(first, first + count)
    )


RUNS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(1, 6), st.sampled_from(STATUSES)), max_size=8
)


@given(RUNS, st.lists(st.integers(1, 70), max_size=12), st.none() | STRANGE)
def test_answers_cut_anywhere_are_those_of_the_general_decoder(runs, sizes, strange) -> None:
    data = answers_of(runs) + (strange + bytes(40) if strange else b"")
    told: list[tuple[int, int, int]] = []
    decoder = AddAnswerDecoder()
    position = 0
    for size in [*sizes, len(data)]:
        for run in decoder.feed(data[position : position + size]):
            assert run.first < run.stop
            told += [(run.ledger_id, entry_id, run.status) for entry_id in range(run.first, run.stop)]
        position += size
    expected = [
        (ledger_id, entry_id, int(status))
        for ledger_id, first, count, status in runs
        for entry_id in range(first, first + count)
    ]
    assert told == expected
    assert (decoder.error is not None) == (strange is not None)
    assert strange is None or decoder.feed(answers_of(runs)) == []


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=9))
def test_requests_are_those_that_a_bookie_reads(payloads) -> None:
    entries = [pack(">qqq", 7, entry_id, -1) + payload for entry_id, payload in enumerate(payloads)]
    data = b"".join(add_parts(KEY, entries))
    assert data == b"".join(v2.encode_add(KEY, entry, recovery=False) for entry in entries)
    requests = RequestDecoder().feed(data)
    assert [request.entry for request in requests if isinstance(request, AddRequest)] == entries


class AddsStory(RuleBasedStateMachine):
    """Against a plain table of what each entry of each call was told."""

    def __init__(self) -> None:
        super().__init__()
        self.adds = AddsUnderWay()
        self.now_s = 0.0
        #: (ledger id, entry id) of what has no answer -> number of its call.
        self.open: dict[tuple[int, int], int] = {}
        #: By call: what it must be told, and what it was told.
        self.expected: list[dict[int, int]] = []
        self.told: list[dict[int, int]] = []
        self.sizes: list[int] = []
        self.sent_s: list[float] = []
        self.ends: dict[int, int] = {}

    def _send(self, ledger_id: int, entry_ids: Sequence[int]) -> None:
        number = len(self.told)
        told: dict[int, int] = {}

        def done(ids: Sequence[int], error: object) -> None:
            raise AssertionError("the core tells nobody")

        self.told.append(told)
        self.expected.append({})
        self.sizes.append(len(entry_ids))
        self.sent_s.append(self.now_s)
        outstanding = [entry_id for ledger, entry_id in self.open if ledger == ledger_id]
        takes = self.adds.takes(ledger_id, entry_ids)
        # What is under way is never taken; beyond all of it everything is.
        assert not takes or not {(ledger_id, entry_id) for entry_id in entry_ids} & self.open.keys()
        assert takes or entry_ids[0] <= max(self.ends.get(ledger_id, 0), *outstanding, 0)
        if not takes:
            return
        self.adds.sent(ledger_id, entry_ids, 10 * len(entry_ids), self.now_s + 5, _Done(number, done))
        self.ends[ledger_id] = entry_ids[-1]
        self.open.update({(ledger_id, entry_id): number for entry_id in entry_ids})

    @rule(ledger_id=st.integers(0, 2), first=st.integers(0, 30), count=st.integers(1, 6))
    def send_a_run(self, ledger_id: int, first: int, count: int) -> None:
        self._send(ledger_id, range(first, first + count) if count > 1 else (first,))

    @rule(ledger_id=st.integers(0, 2), count=st.integers(1, 6))
    def send_what_follows(self, ledger_id: int, count: int) -> None:
        first = self.ends.get(ledger_id, -1) + 1
        self._send(ledger_id, range(first, first + count))

    @rule(ledger_id=st.integers(0, 2), first=st.integers(0, 30), step=st.integers(2, 3), count=st.integers(2, 5))
    def send_a_share(self, ledger_id: int, first: int, step: int, count: int) -> None:
        self._send(ledger_id, tuple(range(first, first + step * count, step)))

    @rule(
        ledger_id=st.integers(0, 2),
        first=st.integers(0, 40),
        count=st.integers(1, 12),
        status=st.sampled_from(STATUSES),
    )
    def answer_anything(self, ledger_id: int, first: int, count: int, status: StatusCode) -> None:
        for entry_id in range(first, first + count):
            number = self.open.pop((ledger_id, entry_id), None)
            if number is not None:
                self.expected[number][entry_id] = int(status)
        self._take(self.adds.answered([AddRun(ledger_id, first, first + count, int(status))]))

    @precondition(lambda self: self.open)
    @rule(count=st.integers(1, 12), status=st.sampled_from(STATUSES))
    def answer_the_oldest(self, count: int, status: StatusCode) -> None:
        ledger_id, first = next(iter(self.open))
        self.answer_anything(ledger_id, first, count, status)

    @rule(seconds=st.integers(0, 4))
    def time_passes(self, seconds: int) -> None:
        self.now_s += seconds
        self._give_up({number for number in self.open.values() if self.sent_s[number] + 5 <= self.now_s})
        self._take(self.adds.expire(self.now_s))
        waiting = self.adds.next_deadline_s
        assert (waiting is None) == (not self.open)
        assert waiting is None or waiting > self.now_s

    @rule()
    def connection_is_lost(self) -> None:
        self._give_up(set(self.open.values()))
        self._take(self.adds.fail_all())
        assert not self.adds.size_bytes

    def _give_up(self, numbers: set[int]) -> None:
        for (ledger_id, entry_id), number in list(self.open.items()):
            if number in numbers:
                del self.open[ledger_id, entry_id]
                self.expected[number][entry_id] = NO_ANSWER

    def _take(self, outcomes) -> None:
        for done, _, entry_ids, status in outcomes:
            told = self.told[done.number]
            assert not set(entry_ids) & told.keys()
            told.update(dict.fromkeys(entry_ids, status))

    @invariant()
    def each_is_told_once_and_what_was_refused_at_once(self) -> None:
        self.adds.check_invariants()
        for number, (expected, told) in enumerate(zip(self.expected, self.told, strict=True)):
            assert told.items() <= expected.items()
            if number not in self.open.values():
                assert told == expected
            # Good ones may wait for the rest of their call, others do not.
            assert all(expected[entry_id] == StatusCode.EOK for entry_id in expected.keys() - told.keys())


class _Done:
    """Stands for a callback: the call's number."""

    def __init__(self, number: int, call) -> None:
        self.number = number
        self._call = call

    def __call__(self, ids: Sequence[int], error: object) -> None:
        self._call(ids, error)


TestAddsStory = AddsStory.TestCase
