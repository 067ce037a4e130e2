"""A world in one process: virtual time, seeded randomness, disks that lose power, networks that break.

::

    async def scenario(world: SimWorld) -> None:
        node = world.node("bookie")
        world.crash_at("journal.group.before_sync")
        with pytest.raises(NodeCrashedError):
            await node.run(write_entries)
        await world.restart(node, check_entries)

    sim.run(scenario, seed=7)

Code under test runs as a task of a node (``node.run``), so that a crash stops it; the scenario's own code runs
outside of any node.
"""

from geminga.sim.disk import SimDisk
from geminga.sim.disk_faults import Fault
from geminga.sim.errors import (
    NodeCrashedError,
    SimDeadlockError,
    SimError,
    SimEscapeError,
    SimLivelockError,
)
from geminga.sim.node import SimNode
from geminga.sim.runner import run, run_in
from geminga.sim.seeds import Failure, Report, run_seeds
from geminga.sim.world import SimWorld

__all__ = [
    "Failure",
    "Fault",
    "NodeCrashedError",
    "Report",
    "SimDeadlockError",
    "SimDisk",
    "SimError",
    "SimEscapeError",
    "SimLivelockError",
    "SimNode",
    "SimWorld",
    "run",
    "run_in",
    "run_seeds",
]
