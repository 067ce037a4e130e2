"""Offload policies on a topic."""

from __future__ import annotations

from geminga.broker.topic.offload import Offload
from geminga.managed_ledger import ManagedLedgerConfig
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import NAME, Publisher, run_quietly, set_namespace, topic_of


def test_policies_that_can_not_be_followed_leave_what_was_offloaded_as_they_say():
    async def scenario(world: BrokerWorld) -> None:
        # As after a move of the broker's lake.
        kept = {
            "managedLedgerOffloadDriver": "filesystem",
            "fileSystemURI": "/older/lake",
            "managedLedgerOffloadThresholdInBytes": 0,
            "managedLedgerOffloadDeletionLagInMillis": -1,
            "managedLedgerOffloadedReadPriority": "BOOKKEEPER_FIRST",
        }
        await set_namespace(world, "offload_policies", kept)
        await (await Publisher.open(world)).publish()
        for _ in range(2):
            part = (await topic_of(world)).parts.find(Offload)
            assert part is not None
            assert "is not in file:///newer/lake" in part.refusal
            policy = part.offloading.policy
            assert (policy.driver, policy.deletion_lag_ms, policy.is_bookkeeper_first) == ("", -1, True)
            await world.broker.registry.unload(NAME)

    run_quietly(
        scenario,
        ledger_config=ManagedLedgerConfig(offload_driver="filesystem", offload_directory="/newer/lake"),
    )
