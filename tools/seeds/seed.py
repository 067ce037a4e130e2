"""One seed. (A module of its own: processes that work on seeds can not import ``__main__``.)"""

from __future__ import annotations

import importlib
import logging
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from geminga.sim import SimWorld
    from support.clusters.token_ring import Ring

#: The one whose faults are struck by name (:func:`_run_ring`).
TRANSACTIONS: Final = "transactions"
#: Scenario -> module and function.
SCENARIOS: Final = {
    "storage": ("support.stories.storage_story", "storage_story"),
    "storage-beyond": ("support.stories.storage_story", "beyond_story"),
    "misfortune": ("support.stories.misfortune_story", "misfortune_story"),
    "takeover": ("support.stories.ledger_takeover", "ledger_takeover"),
    "bundles": ("support.clusters.bundle_brokers", "bundle_brokers"),
    "brokers": ("support.clusters.two_brokers", "two_brokers"),
    "cluster": ("support.clusters.cluster_story", "cluster_story"),
    "cluster-deletions": ("support.clusters.cluster_deletions", "cluster_deletions"),
    "leaks": ("support.stories.leaks_story", "leaks"),
    "cluster-transactions": ("support.clusters.cluster_transactions", "cluster_transactions"),
    "mesh": ("support.clusters.mesh_story", "mesh"),
    "migration": ("support.clusters.migration_story", "migration"),
    "cluster-operations": ("support.clusters.cluster_operations", "cluster_operations"),
}
#: As lines of the log name transactions, which were there before the others.
RING_SCENARIO: Final = "token_ring"


def run_seed(scenario: str, seed: int) -> dict[str, Any]:
    """One seed, as a line of the log."""
    from geminga.sim import SimWorld

    told_before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    world = SimWorld(seed)
    started = time.process_time()
    error = None
    told: dict[str, Any] = {}
    try:
        with redirect_stderr(StringIO()):
            _run_ring(world, told) if scenario == TRANSACTIONS else _run_story(world, scenario, told)
    except Exception as raised:
        error = "".join(traceback.format_exception(raised))
    finally:
        logging.disable(told_before)
    name = RING_SCENARIO if scenario == TRANSACTIONS else scenario
    line: dict[str, Any] = {"scenario": name, "seed": seed, "ok": error is None, **told}
    line["history"] = world.trace.digest()
    line["cpu_s"] = round(time.process_time() - started, 3)
    if error is not None:
        line["error"] = error
    return line


def _run_ring(world: SimWorld, told: dict[str, Any]) -> None:
    from geminga.sim import run_in
    from support.clusters.token_ring import Ring

    rings: list[Ring] = []

    async def story(world: SimWorld) -> None:
        rings.append(Ring(world))
        await rings[0].run()

    try:
        run_in(world, story)
    finally:
        if rings:
            told.update(rings[0].told()._asdict())


def _run_story(world: SimWorld, scenario: str, told: dict[str, Any]) -> None:
    from geminga.sim import run_in

    module, name = SCENARIOS[scenario]
    story: Callable[[SimWorld], Any] = getattr(importlib.import_module(module), name)
    try:
        run_in(world, story)
    finally:
        told.update(
            struck=dict(world.points.hits),
            crashes=world.crashes,
            virtual_s=round(world.now, 3),
            steps=world.loop.steps,
        )
