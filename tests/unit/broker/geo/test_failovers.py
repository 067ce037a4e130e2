"""A consumer fails over between two clusters a hundred times: nothing is lost, and little is seen again."""

from __future__ import annotations

import asyncio

import pytest

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import split_entry
from support.worlds.broker_world import Client, Type
from support.worlds.cluster_mesh import ClusterMesh, run_mesh
from support.worlds.policy_levels import seconds
from unit.broker.geo.test_subscriptions import SHARED, acknowledge, loaded

#: A producer of each cluster sends so often, and the consumer looks so often at what came.
SEND_S = 0.25
LOOK_S = 0.05
#: Of docs/geo-replication.md, where links are up: what was acknowledged since the last snapshot that was told. The
#: interval, the way of the markers (each link waits at most its pause after a cut), and an interval until it is told.
SEEN_AGAIN_S = 2.5


class Story:
    """What was sent, and when each message was acknowledged first."""

    def __init__(self, mesh: ClusterMesh) -> None:
        self.mesh = mesh
        self.rng = mesh.worlds["east"].runtime.rng
        self.sent: list[str] = []
        self.acknowledged_s: dict[str, float] = {}
        #: Of each message that was seen again: how long ago it was acknowledged when its consumer went.
        self.again_s: list[float] = []
        self.gone_s = 0.0
        self.is_over = False

    async def publish(self, name: str, client: Client) -> None:
        number = 0
        while not self.is_over:
            self.sent.append(f"{name} {number}")
            await client.publish(number, self.sent[-1].encode())
            number += 1
            await seconds(SEND_S)

    async def consume(self, name: str, lasting_s: float) -> None:
        """In one cluster; then it is gone."""
        clock = asyncio.get_running_loop().time
        consumer = await self.mesh.client(name)
        await consumer.subscribe(subType=SHARED, replicate_subscription_state=True, permits=1_000_000)
        until_s = clock() + lasting_s
        highest = dict.fromkeys(self.mesh.worlds, -1)
        while clock() < until_s:
            while consumer.received:
                command, entry = consumer.received.popleft()
                assert command.type != Type.ERROR
                if command.type == Type.MESSAGE:
                    self._saw(entry, command.message.message_id, consumer, highest, clock())
            await seconds(LOOK_S)
        self.gone_s = clock()
        consumer.lose()

    def _saw(
        self, entry: bytes, message_id: pb.MessageIdData, consumer: Client, highest: dict[str, int], now_s: float
    ) -> None:
        text = entry[split_entry(entry)[1] :].decode()
        producer, number = text.split()
        assert int(number) > highest[producer], f"{text} came behind {highest[producer]} of its producer"
        highest[producer] = int(number)
        before_s = self.acknowledged_s.setdefault(text, now_s)
        if before_s < now_s:
            self.again_s.append(self.gone_s - before_s)
        acknowledge(consumer, message_id)


@pytest.mark.parametrize("failovers", [10, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("is_cut", [False, True], ids=["links up", "the cluster it leaves is cut off"])
def test_a_consumer_that_fails_over_loses_nothing_and_sees_little_again(failovers: int, *, is_cut: bool) -> None:
    seed = 37

    async def scenario(mesh: ClusterMesh) -> Story:
        story = Story(mesh)
        clients = await loaded(mesh)
        publishing = [asyncio.ensure_future(story.publish(name, client)) for name, client in clients.items()]
        names = [*mesh.worlds]
        for number in range(failovers):
            name = names[number % 2]
            await story.consume(name, 4 + 3 * story.rng.random())
            if is_cut:
                mesh.cut_off(name)
                await story.consume(names[1 - number % 2], 0.5 + 1.5 * story.rng.random())
                mesh.mend()
        story.is_over = True
        await asyncio.gather(*publishing)
        await story.consume(names[0], 60)
        return story

    story = run_mesh(scenario, "east", "west", seed=seed)
    print(f"seed {seed}: {len(story.sent)} messages, {len(story.again_s)} seen again, at most {max(story.again_s)} s")
    assert len(story.sent) > 2 * failovers * 4 / SEND_S * 0.9
    assert story.sent[-1] in story.acknowledged_s
    assert [text for text in story.sent if text not in story.acknowledged_s] == []
    assert 0 < max(story.again_s) <= SEEN_AGAIN_S
