"""The auditor's election: one at a time, the next one when it goes."""

from __future__ import annotations

import pytest

from geminga.metadata.core.faults import WriteFault
from geminga.replication.election import Election
from geminga.wire.bookkeeper.under_replication import ELECTION_PATH, decode_vote
from support.worlds.replication_world import ReplicationWorld, run_replication


def test_the_oldest_vote_is_the_auditors():
    async def main(world: ReplicationWorld) -> None:
        first, second, third = (Election(world.session(), name) for name in "abc")
        assert [await one.is_elected() for one in (first, second, third)] == [True, False, False]
        node = await world.store.get(ELECTION_PATH)
        assert node is not None
        assert decode_vote(node.value, "election") == "a"
        # Of somebody who votes in another way.
        await world.store.put(f"{ELECTION_PATH}/strange", b"", expected_version=None)
        await first.leave()
        assert [await one.is_elected() for one in (second, third, first)] == [True, False, False]

    run_replication(main)


def test_a_session_that_ends_takes_its_vote_along():
    async def main(world: ReplicationWorld) -> None:
        session = world.session()
        first, second = Election(session, "a"), Election(world.session(), "b")
        assert await first.is_elected()
        assert not await second.is_elected()
        session.expire_session()
        await world.world.sleep(1)
        assert await second.is_elected()
        assert not await first.is_elected()
        assert len(await world.store.children(ELECTION_PATH)) == 2

    run_replication(main)


def test_the_vote_of_a_former_session_is_not_taken_for_ones_own():
    async def main(world: ReplicationWorld) -> None:
        before, now = Election(world.session(), "a"), Election(world.session(), "a")
        assert await before.is_elected()
        # The process was started again, and its former session has not ended yet.
        assert not await now.is_elected()
        await before.leave()
        assert await now.is_elected()

    run_replication(main)


@pytest.mark.parametrize("fault", [WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
def test_a_vote_of_unknown_outcome_is_found_or_made_anew(fault):
    async def main(world: ReplicationWorld) -> None:
        session = world.session()
        election = Election(session, "a")
        session.faults.next_writes.append(fault)
        assert not await election.is_elected() or fault is WriteFault.UNKNOWN_AFTER
        assert await election.is_elected()
        assert len(await world.store.children(ELECTION_PATH)) == 1

    run_replication(main)
