"""The producers of a broker story: they send again what was not answered, some with clocks that are wrong."""

from __future__ import annotations

from typing import Final

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.stories.broker_model import Message
from support.stories.story_clients import StoryClient
from support.stories.story_ground import StoryGround
from support.worlds.broker_world import Type
from support.worlds.policy_levels import seconds

PRODUCER: Final = "p"
#: How wrong a clock is: an hour slow or fast, not there (it says 0), in the far future.
CLOCK_ERRORS_MS: Final = (-3_600_000, 3_600_000, -(1 << 50), 1 << 50)
SIZES: Final = (10, 10, 200, 3000, 150_000)


class StoryPublishing(StoryGround):
    """One producer of each topic."""

    async def producer(self, name: str) -> StoryClient | None:
        """The topic's producer, connected again if need be; it has sent again what was not answered."""
        client = self.producers.get(name)
        if client is not None:
            return client
        client = await self.client()
        request = pb.CommandProducer(
            topic=name, producer_id=1, request_id=client.next_request_id(), producer_name=PRODUCER
        )
        answer = await client.request(pb.BaseCommand(type=Type.PRODUCER, producer=request))
        if answer is None or answer.type != Type.PRODUCER_SUCCESS:
            client.lose()
            return None
        self.topics[name].exists = True
        self.producers[name] = client
        for message in self.unanswered[name]:
            message.copies_max += not self.deduplicates
            self.send(client, message)
        await self.receipts(name, client)
        return client

    def send(self, client: StoryClient, message: Message) -> None:
        metadata: dict[str, int] = {"publish_time": message.claimed_ms}
        if message.deliver_at_ms:
            metadata["deliver_at_time"] = message.deliver_at_ms
        payload = b"%012d" % message.number + b"x" * (message.size - 12)
        client.send_message(message.number, payload, metadata=metadata, producer_name=PRODUCER)

    async def publish(self, name: str) -> None:
        client = await self.producer(name)
        if client is None:
            return
        for _ in range(self.rng.randint(1, 6)):
            self.number += 1
            now_ms = self.now_ms
            delay_ms = self.rng.choice((0, 0, 0, 0, 3000, 40_000, 400_000))
            size = max(12, self.rng.choice(SIZES))
            error_ms = self.rng.choice(CLOCK_ERRORS_MS) if self.has_wrong_clocks and self.rng.random() < 0.4 else 0
            message = Message(self.number, size, now_ms, now_ms + delay_ms if delay_ms else 0, error_ms)
            self.topics[name].sent(message)
            self.unanswered[name].append(message)
            if client.is_gone:
                break
            self.send(client, message)
            self.tell("sent", name, message)
        await self.receipts(name, client)
        self.tell("unanswered", name, [message.number for message in self.unanswered[name]])

    async def receipts(self, name: str, client: StoryClient) -> None:
        """Wait for them a while; what is answered is promised."""
        for _ in range(40):
            await seconds(0.05)
            for number in client.receipts:
                if any(message.number == number for message in self.unanswered[name]):
                    self.topics[name].stored(number)
                    self.unanswered[name] = [m for m in self.unanswered[name] if m.number != number]
            client.receipts.clear()
            if not self.unanswered[name] or client.is_gone:
                return
