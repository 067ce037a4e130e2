"""When filters that failed are asked again."""

from __future__ import annotations

from geminga.broker.core.filter_troubles import RETRY_FIRST_MS, RETRY_MAX_MS, TROUBLES_MAX, FilterTroubles, wait_ms


def test_waits_double_up_to_the_longest():
    assert [wait_ms(failures) for failures in (0, 1, 2, 3)] == [1000, 1000, 2000, 4000]
    assert wait_ms(50) == RETRY_MAX_MS


def test_filters_that_failed_are_not_asked_until_their_time():
    troubles = FilterTroubles()
    assert troubles.failed(("a",), "slow", 10) == RETRY_FIRST_MS
    found = troubles.of(("a",), 10 + RETRY_FIRST_MS - 1)
    assert found is not None
    assert found.reason == "slow"
    assert troubles.of(("a",), 10 + RETRY_FIRST_MS) is None
    assert troubles.of(("a", "b"), 10) is None
    assert troubles.failed(("a",), "slow", 2000) == 2 * RETRY_FIRST_MS


def test_an_answer_ends_the_trouble():
    troubles = FilterTroubles()
    troubles.failed(("a",), "slow", 0)
    troubles.answered(("a",))
    assert troubles.of(("a",), 0) is None
    assert troubles.failed(("a",), "slow", 0) == RETRY_FIRST_MS


def test_so_many_are_remembered():
    troubles = FilterTroubles()
    for number in range(TROUBLES_MAX + 5):
        troubles.failed((str(number),), "slow", number)
    assert len(troubles.all()) == TROUBLES_MAX
    assert troubles.of(("0",), 0) is None
    assert troubles.of((str(TROUBLES_MAX + 4),), TROUBLES_MAX) is not None
