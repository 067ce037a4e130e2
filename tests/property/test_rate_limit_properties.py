"""Token buckets against a list of what passed when: never more than a stretch of time is worth, and nobody starves."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.rate_limit import GRAIN_NS, NS_PER_S, Rate, Throttle, TokenBucket, rate_of
from geminga.broker.core.subscribe_rate import ConsumerIdentity, SubscribeCounts, SubscribeRate

rates = st.one_of(st.integers(1, 20), st.integers(1, 1 << 40))
periods = st.one_of(st.just(1), st.integers(1, 3600), st.just(1 << 31))
gaps = st.one_of(st.integers(0, 2 * NS_PER_S), st.integers(0, 1 << 50), st.integers(-(1 << 40), -1))
takes = st.one_of(st.integers(1, 3), st.integers(1, 5000), st.integers(1, 1 << 40))


class ExactBucket:
    """The same with fractions, and a clock that never goes back."""

    def __init__(self, rate: int, period_ns: int) -> None:
        self.rate, self.period_ns, self.tokens = rate, period_ns, Fraction(rate)

    def pass_time(self, ns: int) -> None:
        self.tokens = min(Fraction(self.rate), self.tokens + Fraction(max(0, ns) * self.rate, self.period_ns))


@given(rates, periods, st.lists(st.tuples(gaps, takes), max_size=40))
def test_bucket_is_the_exact_one_and_passes_no_more_than_its_rate(rate, period_s, steps) -> None:
    period_ns, now_ns, time_ns = period_s * NS_PER_S, 1 << 45, 0
    bucket, oracle = TokenBucket(rate, period_ns, now_ns), ExactBucket(rate, period_ns)
    passed: list[tuple[int, int]] = []
    for gap_ns, count in steps:
        now_ns += gap_ns
        time_ns += max(0, gap_ns)
        oracle.pass_time(gap_ns)
        assert bucket.left(now_ns) == oracle.tokens.numerator // oracle.tokens.denominator
        if bucket.left(now_ns) > 0:
            bucket.take(count, now_ns)
            oracle.tokens -= count
            passed.append((time_ns, count))
        bucket.check_invariants()
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            stretch_ns = passed[last][0] - passed[first][0]
            before_last = sum(count for _, count in passed[first:last])
            assert before_last < rate + Fraction(stretch_ns * rate, period_ns)


@given(rates, periods, st.integers(0, 1 << 42))
def test_nobody_starves(rate, period_s, debt) -> None:
    """After the wait that is told there is a token, not much before it is told, and then always more comes."""
    period_ns, now_ns = period_s * NS_PER_S, 5
    bucket = TokenBucket(rate, period_ns, now_ns)
    bucket.take(rate + debt, now_ns)
    for _ in range(3):
        wait_ns = bucket.wait_ns(now_ns)
        assert wait_ns > 0
        assert bucket.left(now_ns + wait_ns) > 0, "it waits long enough"
        now_ns += wait_ns
        owed_ns = Fraction((debt + 1) * period_ns, rate)
        assert wait_ns <= owed_ns + max(GRAIN_NS, Fraction(period_ns, rate)) + 1, "and not much longer"
        assert bucket.wait_ns(now_ns) == 0
        debt = 0
        bucket.take(bucket.left(now_ns), now_ns)


@given(rates, rates, periods, st.lists(st.tuples(st.integers(0, NS_PER_S), takes, st.booleans()), max_size=20))
def test_changed_rate_keeps_what_is_owed_and_never_more_than_a_period(before, after, period_s, steps) -> None:
    now_ns = 0
    bucket = TokenBucket(before, period_s * NS_PER_S, now_ns)
    for gap_ns, count, is_change in steps:
        now_ns += gap_ns
        left = bucket.left(now_ns)
        if is_change:
            bucket.change(after, now_ns)
            assert bucket.left(now_ns) == min(left, after)
        else:
            bucket.take(count, now_ns)
            assert bucket.left(now_ns) == left - count
        bucket.check_invariants()


@given(
    st.integers(0, 50),
    st.integers(0, 5000),
    st.lists(st.tuples(st.integers(0, NS_PER_S), st.integers(1, 30), st.integers(1, 2000)), max_size=30),
)
def test_throttle_passes_while_both_have_tokens_and_serves_in_turn(messages, size_bytes, steps) -> None:
    rate = rate_of(messages, size_bytes)
    assert (rate is None) == (not messages and not size_bytes)
    if rate is None:
        return
    now_ns = 0
    throttle: Throttle[int] = Throttle(rate, now_ns)
    served: list[int] = []
    for who in range(3):
        throttle.wait(who)
        throttle.wait(who)
    for gap_ns, count, size in steps:
        now_ns += gap_ns
        left = throttle.left(now_ns)
        who = throttle.next(now_ns)
        assert (who is not None) == (min(left) > 0), "somebody waits: the first goes exactly if there are both"
        assert (throttle.wait_ns(now_ns) == 0) == (min(left) > 0)
        if who is not None:
            cost = throttle.reserve(throttle.entries_left(now_ns), now_ns)
            throttle.give_back(*cost, now_ns)
            assert throttle.left(now_ns) == left
            throttle.take(1, count, size, now_ns)
            served.append(who)
            throttle.wait(who)
        throttle.check_invariants()
    assert served == [index % 3 for index in range(len(served))]


def test_entries_are_expected_as_large_as_the_largest_lately() -> None:
    throttle: Throttle[int] = Throttle(Rate(messages=1000), 0)
    assert throttle.entries_left(0) == 1, "nobody knows how many messages an entry has"
    throttle.take(1, 1, 10, 0)
    assert throttle.entries_left(0) == 999
    throttle.take(1, 100, 10, 0)
    assert throttle.entries_left(0) == 8, "899 messages in batches of 100"
    throttle.take(1, 1, 10, 0)
    assert throttle.entries_left(0) == 898 // 87


subscribes = st.lists(st.tuples(st.floats(-1, 20), st.integers(0, 2)), max_size=40)


@given(st.integers(1, 4), st.integers(1, 30), subscribes)
def test_subscribes_of_one_consumer_per_period(times, period_s, steps) -> None:
    counts = SubscribeCounts(SubscribeRate(times, period_s), 100.0)
    since, now, seen = 100.0, 100.0, [0, 0, 0]
    for gap, number in steps:
        now += gap
        if now < since or now - since >= period_s:
            since, seen = now, [0, 0, 0]
        assert counts.admit(ConsumerIdentity("/10.0.0.1", "c", number), now) == (seen[number] < times)
        seen[number] = min(times, seen[number] + 1)
