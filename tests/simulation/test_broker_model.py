"""A whole broker under random policies against a model that says what must still be readable.

Whatever sweeps, expires, evicts, trims, unloads and crashes: what a policy in force retains, a subscription was
promised or a reader may read is there. Planted defects, the one this test was made for first, must be noticed in
few seeds.
"""

from __future__ import annotations

import pytest

from geminga.broker.core import deletion
from geminga.broker.core.deletion import Hold
from geminga.broker.subscription import seek
from geminga.broker.subscription.messages import entry_timestamp_ms
from geminga.broker.topic import quota_guard
from geminga.broker.upkeep import inactive_topics
from geminga.broker.upkeep import policies as upkeep
from geminga.managed_ledger import trimming
from geminga.managed_ledger.rules import trim as core_trim
from geminga.sim import SimWorld, run_in, run_seeds
from support.house.noted_seeds import noted_seed
from support.house.weekly_sample import SeedCheck, few_and_many, few_seeds, many_seeds, sampled
from support.stories.broker_story import BrokerStory, broker_story

pytestmark = pytest.mark.usefixtures("no_log")

#: A planted defect must be noticed within so many seeds.
NOTICED_WITHIN = 200


@few_and_many(range(2000), least=few_seeds(5), many=many_seeds(2000), timeout_s=3600)
def test_whatever_a_broker_deletes_nothing_promised_is_gone(check: SeedCheck) -> None:
    check(broker_story)


def test_stories_compare_something():
    stories = []

    async def kept_story(world: SimWorld) -> None:
        stories.append(BrokerStory(world))
        await stories[-1].run()

    for seed in range(10):
        run_in(SimWorld(seed), kept_story)
    checks = {kind: sum(story.checks[kind] for story in stories) for kind in stories[0].checks}
    assert checks["read"] > 20
    assert checks["delivered"] > 200
    assert checks["deleted"] > 2
    assert checks["kept"] > 200


def idle_topics_are_not_retained(patch: pytest.MonkeyPatch) -> None:
    """As it was: an idle topic without subscriptions went, whatever its retention."""
    patch.setattr(deletion, "is_retained", lambda age_ms, retention_ms: False)


def idle_topics_are_judged_without_subscriptions(patch: pytest.MonkeyPatch) -> None:
    judge = deletion.why_topic_stays
    patch.setattr(
        inactive_topics, "why_topic_stays", lambda facts, **rules: judge(facts._replace(subscriptions=0), **rules)
    )


def trim_keeps_nothing(patch: pytest.MonkeyPatch) -> None:
    trim = trimming.ledgers_to_trim
    patch.setattr(trimming, "ledgers_to_trim", lambda *known, **rules: trim(*known, **{**rules, "retention_ms": 0}))


def trim_asks_no_cursor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(core_trim, "is_consumed", lambda info, slowest: True)


def expiry_comes_too_soon(patch: pytest.MonkeyPatch) -> None:
    expire = seek.expire
    patch.setattr(seek, "expire", lambda subscription, age_ms, **more: expire(subscription, age_ms // 10, **more))


def expiry_searches_by_halves(patch: pytest.MonkeyPatch) -> None:
    """As it was: one message that said it was old took all before it along."""

    async def expire(subscription, older_than_ms, *, is_wanted=lambda: True):
        limit = subscription.now_ms() - older_than_ms
        last = await subscription.topic.ledger.reader.find_last(lambda entry: entry_timestamp_ms(entry.data) < limit)
        return is_wanted() and seek.expire_up_to(subscription, last)

    patch.setattr(seek, "expire", expire)


def subscriptions_expire_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(upkeep, "why_subscription_stays", lambda facts, **rules: Hold.CLIENTS if facts.consumers else None)


def eviction_leaves_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quota_guard, "eviction_target", lambda limit: 0)


PLANTS = (
    idle_topics_are_not_retained,
    idle_topics_are_judged_without_subscriptions,
    trim_keeps_nothing,
    trim_asks_no_cursor,
    expiry_comes_too_soon,
    expiry_searches_by_halves,
    subscriptions_expire_at_once,
    eviction_leaves_nothing,
)


@pytest.mark.parametrize("plant", sampled("defects of deletions", PLANTS, 3))
def test_planted_defects_are_noticed(monkeypatch, capsys, plant):
    noted = noted_seed("broker_story", plant.__name__)
    seeds = range(NOTICED_WITHIN) if noted is None else [noted, *range(NOTICED_WITHIN)]
    plant(monkeypatch)
    report = run_seeds(broker_story, seeds, failures_max=1)
    with capsys.disabled():
        print(f"\n{plant.__name__}: noticed in seed {report.seeds} of {NOTICED_WITHIN}")
    assert report.failures, f"{NOTICED_WITHIN} seeds did not notice"
    assert isinstance(report.failures[0].error, AssertionError)
