"""What holds a topic or a subscription, reason by reason."""

from __future__ import annotations

import pytest

from geminga.broker.core.deletion import (
    CAUGHT_UP_MODE,
    USES,
    Hold,
    SubscriptionFacts,
    TopicFacts,
    is_retained,
    system_retention,
    why_subscription_stays,
    why_topic_stays,
)

MODE = "delete_when_no_subscriptions"
IDLE = TopicFacts(idle_ms=60_000)


def why(facts: TopicFacts, mode: str = MODE, retention_ms: int | None = 0) -> Hold | None:
    return why_topic_stays(facts, mode=mode, idle_min_ms=60_000, retention_ms=retention_ms)


@pytest.mark.parametrize("mode", [MODE, CAUGHT_UP_MODE])
@pytest.mark.parametrize(
    ("change", "hold"),
    [
        ({}, None),
        ({"idle_ms": 59_999}, Hold.RECENT),
        ({"is_system": True}, Hold.SYSTEM),
        ({"clients": 1}, Hold.CLIENTS),
        ({"writes": 1}, Hold.WRITES),
        ({"held_back": True}, Hold.HELD_BACK),
        ({"readers": 1}, Hold.READER),
        ({"internal_backlog": 1}, Hold.CURSOR),
    ],
)
def test_topic_is_held_by_each_use(mode: str, change: dict[str, int], hold: Hold | None) -> None:
    assert why(IDLE._replace(**change), mode) is hold
    assert (hold in USES) == (hold not in (None, Hold.RECENT, Hold.SYSTEM))


def test_mode_says_whether_subscriptions_or_their_backlog_hold_a_topic() -> None:
    caught_up, behind = IDLE._replace(subscriptions=1), IDLE._replace(subscriptions=1, backlog=1)
    assert (why(caught_up), why(behind)) == (Hold.SUBSCRIPTIONS, Hold.SUBSCRIPTIONS)
    assert (why(caught_up, CAUGHT_UP_MODE), why(behind, CAUGHT_UP_MODE)) == (None, Hold.BACKLOG)


@pytest.mark.parametrize(
    ("retention_ms", "idle_ms", "stored_ms_ago", "hold"),
    [
        (None, 1 << 40, None, Hold.UNKNOWN),
        (-1, 1 << 40, None, Hold.RETENTION),
        (100_000, 99_999, None, Hold.RETENTION),
        (100_000, 100_000, None, None),
        (100_000, 100_000, 99_999, Hold.RETENTION),
        (100_000, 100_000, 100_000, None),
        (0, 60_000, 0, None),
    ],
)
def test_retention_counts_from_the_last_use_and_from_the_newest_closed_ledger(
    retention_ms: int | None, idle_ms: int, stored_ms_ago: int | None, hold: Hold | None
) -> None:
    assert why(TopicFacts(idle_ms, stored_ms_ago), retention_ms=retention_ms) is hold


def test_retention_of_nothing_is_none_and_without_limit_is_for_ever() -> None:
    assert [is_retained(age, 0) for age in (0, 1)] == [False, False]
    assert [is_retained(age, -1) for age in (0, 1 << 50)] == [True, True]


def test_system_topic_keeps_everything_until_a_cursor_of_its_own_says_what_is_needed() -> None:
    assert system_retention(False) == (-1, -1)
    assert system_retention(True) == (0, 0)


@pytest.mark.parametrize(
    ("change", "expiry_ms", "hold"),
    [
        ({}, 1000, None),
        ({}, 0, Hold.NEVER),
        ({"is_durable": False}, 1000, Hold.NEVER),
        ({"consumers": 1}, 1000, Hold.CLIENTS),
        ({"is_moving": True}, 1000, Hold.MOVING),
        ({"idle_ms": 1000}, 1000, Hold.RECENT),
        ({"loaded_ms": 299}, 1000, Hold.RECENT),
    ],
)
def test_subscription_is_held_by_each_use(change: dict[str, int], expiry_ms: int, hold: Hold | None) -> None:
    facts = SubscriptionFacts(idle_ms=1001, loaded_ms=300)._replace(**change)
    assert why_subscription_stays(facts, expiry_ms=expiry_ms, settle_ms=300) is hold
