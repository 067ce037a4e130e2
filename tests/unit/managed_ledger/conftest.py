"""Run an async test in a simulated world with a managed ledger's surroundings, or with a lake beside them."""

from __future__ import annotations

import pytest

from geminga import sim
from support.worlds.lake_world import LakeWorld
from support.worlds.ledger_world import SMALL, LedgerWorld


@pytest.fixture
def in_world():
    """``in_world(scenario, config)`` runs ``scenario(LedgerWorld)`` in virtual time."""

    def run(scenario, config=SMALL):
        return sim.run(lambda world: scenario(LedgerWorld(world, config)))

    return run


@pytest.fixture
def in_lake_world():
    """``in_lake_world(scenario)`` runs ``scenario(LakeWorld)`` in virtual time."""

    def run(scenario):
        return sim.run(lambda world: scenario(LakeWorld(world)))

    return run
