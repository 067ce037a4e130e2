"""A client whose cluster a provider names: whether a cluster answers, and what ends with a move."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

import geminga.client as gc
from geminga.client._api.service_targets import FailoverClient, ServiceTarget
from geminga.client._client import Client
from geminga.client._transport.coordinators import ASSIGN_TOPIC
from geminga.client._transport.switching import Switching
from geminga.runtime import Raised, attempt_await, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.hot import encode_partitions
from support.worlds.scripted_consumer import singles
from support.worlds.scripted_coordinator import CoordinatorScript
from unit.client.failover.test_failover import Clusters, run, url


class Waiting:
    """A provider that does what its test does."""

    first = ServiceTarget(url("east"))
    told: FailoverClient

    async def watch(self, client: FailoverClient) -> None:
        self.told = client
        await asyncio.Event().wait()


# After two minutes the pauses between attempts are long: they were another cluster's.
@pytest.mark.parametrize("away_s", [1, 110, 120, 130])
def test_what_is_under_way_ends_with_the_move_and_nothing_moves_for_a_url_that_is_none(away_s: int) -> None:
    provider = Waiting()

    async def scenario(client: gc.Client, clusters: Clusters) -> None:
        assert isinstance(client, Client)
        producer = await client.create_producer("t", batching_enabled=False)
        switching = provider.told
        assert await switching.reaches(ServiceTarget(url("west")), 1)
        clusters.silent.add("west")
        assert not await switching.reaches(ServiceTarget(url("west")), 1)
        with pytest.raises(gc.InvalidUrl):
            switching.go_on_with(ServiceTarget("west"))
        await producer.send(b"first")
        # A connection that is being made to a cluster that hangs is not waited for.
        switching.go_on_with(ServiceTarget(url("west")))
        await clusters.world.sleep(away_s)
        began_s = clusters.world.now
        switching.go_on_with(ServiceTarget(url("north")))
        await clusters.world.sleep(0.5)
        assert client.pool.open_connections == 1, "it comes there before anybody wants it"
        await producer.send(b"second")
        assert clusters.world.now - began_s < 1
        assert clusters.sent == {"east": [0], "west": [], "north": [1]}
        assert client.pool.open_connections == 1

    run(provider, scenario)


def test_what_waits_in_a_transaction_and_what_comes_to_it_never_reaches_another_cluster() -> None:
    """The id names another transaction there, or none."""
    provider = Waiting()
    told: dict[str, list[int]] = {"east": [], "west": [], "north": []}
    acked: list[str] = []
    script = CoordinatorScript(singles(2))

    async def scenario(client: gc.Client, clusters: Clusters) -> None:
        def answers(name: str, command: pb.BaseCommand) -> list[bytes]:
            if command.type == pb.BaseCommand.LOOKUP:
                return of_the_cluster(name, command)
            if command.type == pb.BaseCommand.SEND:
                told[name].append(command.send.txnid_least_bits if command.send.HasField("txnid_least_bits") else -1)
            if command.type == pb.BaseCommand.ACK and command.ack.HasField("txnid_least_bits"):
                acked.append(name)
            is_silent = name == "east" and is_cut and command.type in (pb.BaseCommand.SEND, pb.BaseCommand.ACK)
            return [] if is_silent else script(command)

        is_cut = False
        of_the_cluster = clusters.answers
        clusters.answers = answers  # type: ignore[method-assign]
        alone = await client.create_producer("t", batching_enabled=False)
        batched = await client.create_producer("u", batching_max_publish_delay_ms=600_000)
        consumer = await client.subscribe("v", "s")
        txn = await client.transaction(timeout=600)
        await alone.send(b"1", txn=txn)
        await batched.send(b"1", txn=txn)
        await consumer.acknowledge(await consumer.receive(), txn=txn)
        assert (told["east"], acked) == ([txn.id.number] * 2, ["east"])
        is_cut = True
        waiting = spawn(attempt_await(alone.send(b"2", txn=txn)), name="waits")
        second = await consumer.receive()
        acknowledging = spawn(attempt_await(consumer.acknowledge(second, txn=txn)), name="acknowledges")
        batched.send_nowait(b"2", txn=txn)
        await clusters.world.sleep(1)
        provider.told.go_on_with(ServiceTarget(url("west")))
        moved_s = clusters.world.now
        with pytest.raises(gc.TransactionNotFound, match="another cluster"):
            await consumer.acknowledge(second, txn=txn)
        assert clusters.world.now == moved_s
        for _ in range(2):
            with pytest.raises(gc.TransactionNotFound, match="another cluster"):
                alone.send_nowait(b"3", txn=txn)
            await clusters.world.sleep(1)
        for task in (waiting, acknowledging):
            outcome = await task
            assert isinstance(outcome, Raised)
            assert isinstance(outcome.error, gc.TransactionNotFound)
        # Each was told to who sent it.
        await alone.flush()
        for refused in (
            batched.flush(),
            alone.send(b"5", txn=txn),
            txn.commit(),
        ):
            with pytest.raises(gc.TransactionNotFound, match="another cluster"):
                await refused
        await alone.send(b"6")
        async with client.transaction() as another:
            await alone.send(b"7", txn=another)
        assert told["west"] == [-1, another.id.number]
        assert set(acked) == {"east"}

    run(provider, scenario)


def test_transactions_after_a_move_begin_at_the_coordinators_of_the_other_cluster() -> None:
    provider = Waiting()
    counts = {"east": 4, "west": 1, "north": 3}
    heard: list[tuple[str, str, int]] = []
    script = CoordinatorScript()

    async def scenario(client: gc.Client, clusters: Clusters) -> None:
        def answers(name: str, command: pb.BaseCommand) -> list[bytes]:
            if command.type == pb.BaseCommand.PARTITIONED_METADATA:
                request = command.partitionMetadata
                assert request.topic == ASSIGN_TOPIC
                return [encode_partitions(request.request_id, counts[name])]
            if command.type == pb.BaseCommand.LOOKUP:
                assert int(command.lookupTopic.topic.rpartition("-")[2]) < counts[name], "that partition is not there"
                return of_the_cluster(name, command)
            if command.type == pb.BaseCommand.NEW_TXN:
                heard.append((name, "begun", command.newTxn.tc_id))
            if command.type == pb.BaseCommand.END_TXN:
                heard.append((name, "ended", command.endTxn.txnid_most_bits))
            return script(command)

        of_the_cluster = clusters.answers
        clusters.answers = answers  # type: ignore[method-assign]
        stale: list[gc.Transaction] = []
        for name, turns in (("east", 8), ("west", 3), ("north", 6)):
            if name != "east":
                provider.told.go_on_with(ServiceTarget(url(name)))
            # Who begun elsewhere names another transaction here: nobody's is ended by mistake.
            for number, txn in enumerate(stale):
                if number % 2:
                    await txn.abort()
                    assert txn.state is gc.TransactionState.ABORTED
                else:
                    with pytest.raises(gc.TransactionNotFound, match="another cluster"):
                        await txn.commit()
                    assert txn.state is gc.TransactionState.ERROR
            stale = [await client.transaction() for _ in range(turns)]
            begun = [coordinator for cluster, what, coordinator in heard if (cluster, what) == (name, "begun")]
            assert len(begun) == turns
            assert set(begun) == set(range(counts[name]))
        assert all(what == "begun" for _, what, _ in heard)

    run(provider, scenario)


def test_an_entry_stream_ends_with_the_move_unless_it_began_at_the_beginning_and_nothing_was_taken() -> None:
    """What it hands out has positions, which mean other messages over there."""
    provider = Waiting()

    async def scenario(client: gc.Client, clusters: Clusters) -> None:
        streams: list[gc.EntryStream[gc.EntryBatch]] = [client.entry_stream("t", start) for start in ((5, 3), (-1, -1))]
        for stream in streams:
            await gc.open_batches(stream)
        provider.told.go_on_with(ServiceTarget(url("west")))
        with pytest.raises(gc.OperationNotSupported, match=r"went on with another cluster.* the last .* is 5:2"):
            await streams[0].take(5000)
        assert await streams[1].take(5000) == []
        assert streams[1].attached_count == 2
        for stream in streams:
            await stream.close()

    run(provider, scenario)


@pytest.mark.parametrize("stored", [0, 1, 2])
def test_rest_of_a_chunked_message_never_reaches_another_cluster_without_its_first_parts(stored: int) -> None:
    provider = Waiting()
    chunks: dict[str, list[int]] = {"east": [], "west": [], "north": []}

    async def scenario(client: gc.Client, clusters: Clusters) -> None:
        def answers(name: str, command: pb.BaseCommand) -> list[bytes]:
            if command.type == pb.BaseCommand.SEND:
                chunks[name].append(command.send.sequence_id)
                if name == "east" and len(chunks["east"]) > stored:
                    return []
            return of_the_cluster(name, command)

        of_the_cluster = clusters.answers
        clusters.answers = answers  # type: ignore[method-assign]
        producer = await client.create_producer("t", batching_enabled=False, chunking_enabled=True)
        large = spawn(attempt_await(producer.send(bytes(12 * 1024 * 1024))), name="large")
        await clusters.world.sleep(5)
        small = spawn(attempt_await(producer.send(b"small")), name="small")
        await clusters.world.sleep(1)
        assert chunks["east"][:3] == [0, 0, 0]
        provider.told.go_on_with(ServiceTarget(url("west")))
        outcome = await large
        assert not isinstance(await small, Raised)
        if stored:
            assert isinstance(outcome, Raised)
            assert isinstance(outcome.error, gc.NotConnected)
            assert chunks["west"] == [1]
        else:
            assert not isinstance(outcome, Raised)
            assert chunks["west"] == [0, 0, 0, 1]
        # The next loss is of the same cluster: what it has of a message is there.
        await producer.send(bytes(12 * 1024 * 1024))
        assert chunks["west"][-3:] == [2, 2, 2]

    run(provider, scenario)


def test_a_cluster_without_tls_is_none_for_a_client_whose_proxy_goes_by_it() -> None:
    provider = Waiting()

    async def scenario(client: gc.Client, clusters: Clusters) -> None:
        assert isinstance(client, Client)
        producer = await client.create_producer("t", batching_enabled=False)
        proxied = replace(client.options, proxy_service_url="pulsar+ssl://proxy", proxy_protocol="SNI")
        switching = Switching(provider.told.runtime, client.pool, proxied, provider, iter(range(100)).__next__)
        assert not await switching.reaches(ServiceTarget(url("west")), 1)
        with pytest.raises(gc.InvalidUrl, match="has no TLS"):
            switching.go_on_with(ServiceTarget(url("west")))
        await producer.send(b"where it was")
        assert clusters.sent["east"] == [0]

    run(provider, scenario)
