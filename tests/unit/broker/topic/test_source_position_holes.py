"""Source positions of a topic of which a ledger can not be read."""

from __future__ import annotations

import json

from geminga.model.position import EARLIEST
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import SOURCE_POSITION
from support.worlds.broker_world import Client, send_frame
from support.worlds.hole_world import Ground, HoleBroker, run_lives

DEDUP = {"deduplication": True}


def test_a_source_position_is_not_taken_away_while_a_hole_may_have_a_newer_one() -> None:
    """It would come back with the file; where the hole is given up, nothing of it counts any more."""
    ground, taken, path = Ground(), [], "/sourcePositions"

    async def copies(client: Client, *positions: str, epoch: int = 0) -> list[bool]:
        """Whether each was stored."""
        await client.create_producer(producer_name="pulsar.repl.east-->standalone", epoch=epoch)
        stored = []
        for position in positions:
            metadata = {
                "replicated_from": "east",
                "properties": [pb.KeyValue(key=SOURCE_POSITION, value=position)],
            }
            client.send_bytes(send_frame(0, producer_name="a", metadata=metadata))
            stored.append((await client.receipt()).message_id.ledgerId < 1 << 62)
        return stored

    async def first(world: HoleBroker) -> None:
        await (await world.topic()).create_subscription("sub", EARLIEST)
        client = await world.client()
        assert all(await copies(client, *(f"3:{number}" for number in range(7))))
        offloaded = await world.offload()
        taken.append(offloaded[1])
        ground.take_file(offloaded[1])

    async def second(world: HoleBroker) -> None:
        await world.topic()
        sources = (await world.get(path))["sources"]
        assert [(each["cluster"], each["position"]) for each in sources] == [("east", "3:6")]
        refusal = await world.ask("DELETE", f"{path}/east")
        assert (refusal.status, refusal.reason) == (
            409,
            "ledgers that may have newer source positions can not be read: see the topic's holes",
        )
        # Nothing was taken away.
        assert await world.get(path) == {"sources": sources, "forgotten": []}
        assert not any(await copies(await world.client(), "3:6"))
        assert (await world.ask("DELETE", f"{path}/nowhere")).status == 404
        assert (await world.ask("PUT", "/holes/skip", {"ledgerId": taken[0]})).status == 200
        answer = await world.ask("DELETE", f"{path}/east")
        assert (answer.status, json.loads(answer.body)) == (200, {"cluster": "east", "position": "3:6"})
        assert all(await copies(await world.client(), "3:0", epoch=1))

    # Deduplication is switched on when the file is gone: before that a snapshot would have passed it.
    run_lives(first, (second, DEDUP), ground=ground)
