"""A whole broker under random policies against a model that says what must still be readable.

Whatever sweeps, expires, evicts, trims, unloads and crashes: what a policy in force retains, a subscription was
promised or a reader may read is there. Planted defects, the one this test was made for first, must be noticed in
few seeds.
"""

from __future__ import annotations

import logging
import os

import pytest

from geminga.sim import SimWorld, run_in, run_seeds
from support.broker_story import BrokerStory, broker_story

SEEDS = int(os.environ.get("GEMINGA_SEEDS", "60"))
SEEDS_LONG = int(os.environ.get("GEMINGA_SEEDS_LONG", "2000"))
#: A planted defect must be noticed within so many seeds.
NOTICED_WITHIN = 200


@pytest.fixture(autouse=True)
def _no_log(caplog):
    caplog.set_level(logging.CRITICAL, logger="geminga")


def test_whatever_a_broker_deletes_nothing_promised_is_gone():
    run_seeds(broker_story, range(SEEDS)).check()


def test_stories_compare_something():
    checks = {"read": 0, "delivered": 0, "deleted": 0, "kept": 0}
    for seed in range(10):
        world = SimWorld(seed)
        story = BrokerStory(world)
        run_in(world, lambda _, story=story: story.run())
        checks = {kind: count + story.checks[kind] for kind, count in checks.items()}
    assert checks["read"] > 20
    assert checks["delivered"] > 200
    assert checks["deleted"] > 5
    assert checks["kept"] > 200


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_whatever_a_broker_deletes_nothing_promised_is_gone_over_many_seeds(capsys):
    report = run_seeds(broker_story, range(10_000, 10_000 + SEEDS_LONG))
    with capsys.disabled():
        print("\n" + report.table())
    report.check()
