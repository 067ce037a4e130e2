"""A cluster that hangs holds nobody else's turn; a replicator that stands still begins anew and is counted."""

from __future__ import annotations

import asyncio

from geminga.broker.geo.turns import LINES_MAX, LINES_S, READS_AT_ONCE, READS_AT_ONCE_TO_ONE, ClusterTurns
from geminga.broker.geo.watch import STANDSTILL_S, StandstillWatch
from geminga.runtime import next_turn, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, run_with_broker, send_frame
from support.worlds.other_cluster import join, replicate
from support.worlds.policy_levels import seconds


def test_a_cluster_that_answers_nothing_leaves_the_others_their_turns() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = join(world)
        other.hanging.add("east")
        # One turn is left, for which both replicators of the topic ask; that to the east is the first.
        for _ in range(READS_AT_ONCE - 1):
            await other.shared_turns.acquire()
        await replicate(world, "standalone", "east", "west")
        client = await world.client()
        schema = pb.Schema(name="text", type=pb.Schema.String, schema_data=b"")
        success = await client.create_producer(producer_name="producer", schema=schema)
        client.send_bytes(send_frame(0, b"0", metadata={"schema_version": success.schema_version}))
        await seconds(2)
        assert other.payloads == [b"0"]
        assert {each.cluster: each.backlog for each in other.replicators} == {"east": 1, "west": 0}

    run_with_broker(scenario)


def test_who_steps_aside_takes_a_turn_again_and_what_fails_meanwhile_waits_for_none() -> None:
    async def main() -> None:
        shared = asyncio.Semaphore(1)
        turns = ClusterTurns(shared)
        async with turns.taken() as turn:
            assert shared.locked()
            async with turn.aside():
                assert not shared.locked()
            assert shared.locked()
            try:
                async with turn.aside():
                    await shared.acquire()
                    raise ValueError
            except ValueError:
                shared.release()
        assert not shared.locked()

    asyncio.run(main())


def test_the_log_has_few_lines_of_a_cluster_however_many_topics_are_not_copied_there() -> None:
    turns = ClusterTurns(asyncio.Semaphore(1))
    assert [turns.lines_left(5.0) for _ in range(LINES_MAX + 2)] == [*range(LINES_MAX, -2, -1)]
    assert turns.lines_left(5.0 + LINES_S - 1) < 0
    assert turns.lines_left(5.0 + LINES_S) == LINES_MAX


def test_no_more_than_so_many_to_one_cluster_have_read_something() -> None:
    async def main() -> None:
        turns = ClusterTurns(asyncio.Semaphore(READS_AT_ONCE))
        inside: list[int] = []
        more = asyncio.Event()

        async def hang(number: int) -> None:
            async with turns.taken() as turn, turn.aside():
                inside.append(number)
                await more.wait()

        tasks = [spawn(hang(number), name=f"hang {number}") for number in range(READS_AT_ONCE_TO_ONE + 1)]
        for _ in range(5):
            await next_turn()
        assert len(inside) == READS_AT_ONCE_TO_ONE
        more.set()
        await asyncio.gather(*tasks)
        assert len(inside) == READS_AT_ONCE_TO_ONE + 1

    asyncio.run(main())


def test_a_replicator_that_stands_still_begins_anew_and_is_counted() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, watch = join(world), StandstillWatch()
        other.is_silent = True
        client = await world.publisher(producer_name="producer")
        await replicate(world, "standalone", "west")
        (replicator,) = other.replicators
        clock = world.topic.services.runtime.clock
        watch.add(replicator, clock.monotonic())
        await seconds(STANDSTILL_S + 1)
        # Nothing to copy: it stands still as it should.
        watch.look(clock.monotonic())
        await client.publish(0, b"0")
        await seconds(STANDSTILL_S - 1)
        watch.look(clock.monotonic())
        assert (watch.restarts, other.payloads) == (0, [b"0"])
        other.is_silent = False
        await seconds(2)
        watch.look(clock.monotonic())
        await seconds(2)
        assert (watch.restarts, replicator.restarts, other.payloads) == (1, 1, [b"0", b"0"])
        assert (replicator.backlog, other.links) == (0, 1)
        # What was stopped is watched no more.
        await replicate(world, "standalone")
        watch.look(clock.monotonic())
        assert watch._seen == {}  # what it holds on to

    run_with_broker(scenario)
