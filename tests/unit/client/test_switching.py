"""A client whose cluster a provider names: whether a cluster answers, and what ends with a move."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.client._api.service_targets import FailoverClient, ServiceTarget
from geminga.client._client import Client
from unit.client.failover.test_failover import Clusters, run, url


class Waiting:
    """A provider that does what its test does."""

    first = ServiceTarget(url("east"))
    told: FailoverClient

    async def watch(self, client: FailoverClient) -> None:
        self.told = client
        await asyncio.Event().wait()


def test_what_is_under_way_ends_with_the_move_and_nothing_moves_for_a_url_that_is_none() -> None:
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
        await clusters.world.sleep(1)
        began_s = clusters.world.now
        switching.go_on_with(ServiceTarget(url("north")))
        await producer.send(b"second")
        assert clusters.world.now - began_s < 1
        assert clusters.sent == {"east": [0], "west": [], "north": [1]}
        assert client.pool.open_connections == 1

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
