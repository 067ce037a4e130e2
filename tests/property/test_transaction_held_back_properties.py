"""Alarms of transactions that hold topics back, against a list of who was told of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.model.txn_id import TxnId
from geminga.transaction.core.held_back import ALARMS_PER_PERIOD, NAMED_MAX, PERIOD_MS, HeldBack, Hold

THRESHOLD_MS = 1_000

#: Numbers of transactions, places that wait for them, and how long each waits already.
looks = st.lists(
    st.tuples(
        st.integers(0, PERIOD_MS // 2),
        st.dictionaries(
            st.tuples(st.integers(0, 30), st.integers(0, 5)), st.integers(0, 2 * THRESHOLD_MS), max_size=40
        ),
    ),
    max_size=12,
)


@given(looks)
def test_each_is_told_once_while_it_holds_and_few_at_a_time(
    found: list[tuple[int, dict[tuple[int, int], int]]],
) -> None:
    held_back = HeldBack(THRESHOLD_MS)
    now_ms, told, times = 1_000_000, set[TxnId](), list[int]()
    for pause_ms, waits in found:
        now_ms += pause_ms
        holds = [Hold(TxnId(0, number), now_ms - ms, f"t{place}") for (number, place), ms in waits.items()]
        report = held_back.look(holds, now_ms)
        longest: dict[TxnId, int] = {}
        for hold in holds:
            longest[hold.txn_id] = max(longest.get(hold.txn_id, 0), now_ms - hold.since_ms)
        told &= longest.keys()
        wanted = {txn_id for txn_id, ms in longest.items() if ms >= THRESHOLD_MS} - told
        given_now = [alarm.txn_id for alarm in report.alarms]
        assert len(set(given_now)) == len(given_now)
        assert set(given_now) <= wanted
        assert len(given_now) + report.waiting == len(wanted)
        # Whoever waits for a place does so behind those who hold for longer.
        left = [longest[txn_id] for txn_id in wanted - set(given_now)]
        assert not left or not given_now or max(left) <= min(longest[txn_id] for txn_id in given_now)
        if report.waiting:
            recent = sum(1 for at_ms in times if now_ms - at_ms < PERIOD_MS) + len(given_now)
            assert recent >= ALARMS_PER_PERIOD
        for alarm in report.alarms:
            mine = sorted((hold for hold in holds if hold.txn_id == alarm.txn_id), key=lambda hold: hold.since_ms)
            assert alarm.total == len(mine)
            assert [hold.since_ms for hold in alarm.holds] == [hold.since_ms for hold in mine[:NAMED_MAX]]
            assert alarm.held_ms == longest[alarm.txn_id]
        told |= set(given_now)
        times += [now_ms] * len(given_now)
    # In no stretch of half a period are there more than two periods' worth.
    for at_ms in times:
        assert sum(1 for other in times if 0 <= other - at_ms < PERIOD_MS // 2) <= 2 * ALARMS_PER_PERIOD
    assert held_back.alarm_count == len(times)


@given(st.lists(st.integers(0, 1 << 40), max_size=5))
def test_threshold_of_nothing_tells_nothing(since: list[int]) -> None:
    held_back = HeldBack(0)
    holds = [Hold(TxnId(0, number), since_ms, "t") for number, since_ms in enumerate(since)]
    assert held_back.look(holds, 1 << 41) == ((), 0)


def test_clock_that_is_set_back_silences_nobody_for_good() -> None:
    held_back = HeldBack(THRESHOLD_MS)
    many = [Hold(TxnId(0, number), 0, "t") for number in range(3 * ALARMS_PER_PERIOD)]
    assert len(held_back.look(many, 10 * PERIOD_MS).alarms) == ALARMS_PER_PERIOD
    assert len(held_back.look(many, 5 * PERIOD_MS).alarms) == ALARMS_PER_PERIOD


def test_what_is_held_is_told_in_words() -> None:
    held_back = HeldBack(THRESHOLD_MS)
    txn_id = TxnId(1, 2)
    holds = [
        Hold(txn_id, 30, "persistent://a/b/late"),
        Hold(txn_id, 10, "persistent://a/b/first", producer="p"),
        Hold(txn_id, 20, "persistent://a/b/c", subscription="s"),
        Hold(txn_id, 40, "persistent://a/b/later"),
    ]
    (alarm,) = held_back.look(holds, 5_000).alarms
    assert (alarm.txn_id, alarm.held_ms, alarm.total) == (txn_id, 4_990, 4)
    expected = "persistent://a/b/first (producer p), s of persistent://a/b/c, persistent://a/b/late and 1 more"
    assert alarm.what == expected


def test_those_who_wait_are_told_of_in_the_next_period() -> None:
    held_back = HeldBack(THRESHOLD_MS)
    many = [Hold(TxnId(0, number), number, "t") for number in range(ALARMS_PER_PERIOD + 5)]
    report = held_back.look(many, PERIOD_MS)
    assert [alarm.txn_id.number for alarm in report.alarms] == list(range(ALARMS_PER_PERIOD))
    assert report.waiting == 5
    assert held_back.look(many, 2 * PERIOD_MS - 1) == ((), 5)
    report = held_back.look(many, 2 * PERIOD_MS)
    assert [alarm.txn_id.number for alarm in report.alarms] == list(range(ALARMS_PER_PERIOD, ALARMS_PER_PERIOD + 5))
    assert report.waiting == 0
