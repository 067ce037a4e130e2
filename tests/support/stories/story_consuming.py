"""The consumers of a broker story: they come and go, acknowledge, give back, seek, and drain what is left."""

from __future__ import annotations

from typing import Final

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.stories.story_clients import Consumer, number_of
from support.stories.story_ground import QUIET_S, SUBSCRIPTIONS, Sub
from support.stories.story_judging import StoryJudging
from support.worlds.broker_world import Type
from support.worlds.policy_levels import seconds

#: Milliseconds after its time by which a delayed message must be there, beside its tick.
LATENESS_MS: Final = 2500


class StoryConsuming(StoryJudging):
    """Durable subscriptions, each with one consumer at most."""

    async def subscribe(self, topic: str, name: str | None = None) -> Consumer | None:
        """A consumer on a durable subscription that has none."""
        name = name or self.rng.choice(sorted(SUBSCRIPTIONS))
        model = self.topics[topic]
        if any(c.topic == topic and c.subscription.name == name for c in self.consumers):
            return None
        await self.check_subscriptions(topic)
        earliest = self.rng.random() < 0.6
        known = model.subscriptions.get(name)
        if known is None:
            known = model.subscribed(name, self.now_ms, earliest=earliest)
            known.may_be_gone = True
        client = await self.client()
        request = pb.CommandSubscribe(
            topic=topic,
            subscription=name,
            subType=SUBSCRIPTIONS[name],
            consumer_id=1,
            request_id=client.next_request_id(),
            initialPosition=Sub.Earliest if earliest else Sub.Latest,
        )
        answer = await client.request(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        if answer is None or answer.type != Type.SUCCESS:
            client.lose()
            return None
        model.exists = True
        if model.subscriptions.get(name) is not known:
            known = model.subscribed(name, self.now_ms, earliest=earliest)
        known.may_be_gone, known.has_consumer = False, True
        consumer = Consumer(client, topic, known)
        self.consumers.append(consumer)
        self.tell("subscribed", topic, name, "earliest" if earliest else "latest", known.left)
        return consumer

    async def receive(self, consumer: Consumer, permits: int) -> list[int]:
        """Ask for messages and take what comes until nothing more does; each must be one that may come."""
        client, model = consumer.client, self.topics[consumer.topic]
        flow = pb.CommandFlow(consumer_id=1, messagePermits=permits)
        client.send(pb.BaseCommand(type=Type.FLOW, flow=flow))
        numbers: list[int] = []
        quiet = 0
        while quiet < 5 and not client.is_gone:
            await seconds(QUIET_S / 5)
            quiet += 1
            for command, payload in client.messages:
                quiet = 0
                number = number_of(payload)
                numbers.append(number)
                self.check_delivery(model, consumer.subscription, number)
                consumer.held[number] = command.message_id
            client.messages.clear()
        self.tell("received", consumer.topic, consumer.subscription.name, numbers)
        return numbers

    async def consume(self) -> None:
        if not self.consumers:
            return
        consumer = self.rng.choice(self.consumers)
        await self.receive(consumer, self.rng.choice((1, 5, 50)))
        if not consumer.held or consumer.client.is_gone:
            return
        subscription = consumer.subscription
        may_be_cumulative = SUBSCRIPTIONS[subscription.name] in (Sub.Exclusive, Sub.Failover)
        numbers = sorted(consumer.held)
        cumulative = may_be_cumulative and self.rng.random() < 0.4
        chosen = [self.rng.choice(numbers)] if cumulative else [n for n in numbers if self.rng.random() < 0.6]
        if not chosen:
            redeliver = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
            if not may_be_cumulative:
                redeliver.message_ids.extend(consumer.held.values())
            command = pb.BaseCommand(
                type=Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=redeliver
            )
            consumer.client.send(command)
            consumer.held.clear()
            return
        await self.acknowledge(consumer, chosen, cumulative=cumulative)

    async def acknowledge(self, consumer: Consumer, chosen: list[int], *, cumulative: bool) -> None:
        subscription, model = consumer.subscription, self.topics[consumer.topic]
        ids = [consumer.held[number] for number in chosen]
        affected = [n for n in model.messages if n <= chosen[0]] if cumulative else chosen
        if cumulative and any(model.messages[n].is_repeated or not model.messages[n].is_stored for n in affected):
            # Where copies lie in the log, numbers are not positions.
            affected_surely: list[int] = []
            affected = sorted(model.messages)
        else:
            affected_surely = affected
        for number in affected:
            subscription.unsure(number)
            consumer.held.pop(number, None)
        self.lapse()
        if self.rng.random() < 0.4:
            self.tell("acknowledged plainly", consumer.topic, subscription.name, chosen, "cumulative" * cumulative)
            consumer.acknowledge(ids, cumulative=cumulative, request_id=None)
            self.plain_acks += [(self.now_ms, consumer.topic, subscription, n) for n in affected_surely]
            await seconds(0.01)
            return
        request_id = consumer.client.next_request_id()
        consumer.acknowledge(ids, cumulative=cumulative, request_id=request_id)
        self.tell("acknowledged", consumer.topic, subscription.name, chosen, "cumulative" * cumulative)
        for _ in range(40):
            await seconds(0.05)
            while consumer.client.received:
                answer = consumer.client.received.popleft()[0]
                if answer.type == Type.ACK_RESPONSE and answer.ackResponse.request_id == request_id:
                    if not answer.ackResponse.HasField("error"):
                        self.plain_acks += [(0, consumer.topic, subscription, n) for n in affected_surely]
                        self.settle_plain_acks(0)
                    return
            if consumer.client.is_gone:
                return

    async def unsubscribe(self) -> None:
        if not self.consumers:
            return
        consumer = self.rng.choice(self.consumers)
        consumer.subscription.may_be_gone = True
        self.lapse()
        request = pb.CommandUnsubscribe(consumer_id=1, request_id=consumer.client.next_request_id())
        answer = await consumer.client.request(pb.BaseCommand(type=Type.UNSUBSCRIBE, unsubscribe=request))
        self.tell("unsubscribed", consumer.topic, consumer.subscription.name, answer)
        self.forget(consumer)
        if answer is None:
            # It may go any moment, or be made anew: nobody knows what it holds.
            for number in self.topics[consumer.topic].messages:
                consumer.subscription.unsure(number)
        elif answer.type == Type.SUCCESS:
            self.topics[consumer.topic].subscriptions.pop(consumer.subscription.name, None)

    async def seek(self) -> None:
        if not self.consumers:
            return
        consumer = self.rng.choice(self.consumers)
        model, subscription = self.topics[consumer.topic], consumer.subscription
        target: int | None = None
        request = pb.CommandSeek(consumer_id=1, request_id=consumer.client.next_request_id())
        if consumer.held and self.rng.random() < 0.5:
            target = self.rng.choice(sorted(consumer.held))
            request.message_id.CopyFrom(consumer.held[target])
        elif self.rng.random() < 0.7:
            target = 0
            request.message_id.ledgerId = request.message_id.entryId = (1 << 64) - 1
        else:
            request.message_id.ledgerId = request.message_id.entryId = (1 << 63) - 1
        is_exact = target in (0, None) or not any(m.is_repeated for m in model.messages.values())
        for number in model.messages:
            subscription.unsure(number)
        self.plain_acks = [item for item in self.plain_acks if item[2] is not subscription]
        answer = await consumer.client.request(pb.BaseCommand(type=Type.SEEK, seek=request))
        self.tell("sought", consumer.topic, subscription.name, target, answer)
        if answer is not None and answer.type == Type.SUCCESS and is_exact:
            model.sought(subscription, target)
        consumer.held.clear()
        self.notice_departures()

    async def drain(self, topic: str, name: str) -> None:
        """A consumer with room for all gets everything that is left and due, if there is such a subscription."""
        if name not in self.topics[topic].subscriptions:
            return
        consumer = await self.subscribe(topic, name)
        if consumer is None:
            return
        received = set(await self.receive(consumer, 10_000))
        self.lapse()
        due_ms = self.now_ms - int(QUIET_S * 1000) - LATENESS_MS
        expected = self.topics[topic].expected(consumer.subscription, due_ms)
        if not consumer.client.is_gone:
            missing = [number for number in expected if number not in received]
            assert not missing, f"{topic} {name}: {missing} of {expected} did not come; got {sorted(received)}"
            self.forget(consumer)
            await seconds(0.05)
