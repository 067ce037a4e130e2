"""What a broker story compares: topics, subscriptions and messages that were promised are there, and nothing else."""

from __future__ import annotations

from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.stories.broker_model import Left, SubscriptionModel, TopicModel
from support.stories.story_clients import number_of
from support.stories.story_ground import QUIET_S, SUBSCRIPTIONS, StoryGround, Sub
from support.worlds.broker_world import Type
from support.worlds.policy_levels import seconds


class StoryJudging(StoryGround):
    """Existence, deliveries, and all that a reader gets."""

    async def check_existence(self, name: str) -> None:
        """A topic that is gone took nothing along that was promised."""
        model = self.topics[name]
        self.notice_departures()
        if not model.exists or await self.broker_world.broker.registry.exists(TopicName.parse(name)):
            self.checks["kept"] += model.exists
            return
        self.lapse()
        if self.deletes_caught_up:
            for subscription in model.subscriptions.values():
                if not subscription.has_consumer and not model.expected(subscription, 1 << 62):
                    subscription.may_be_gone = True
        lost = model.why_it_must_exist()
        assert not lost, f"{name} was deleted with {lost}; rules {self.namespace_rules} {self.topic_retention[name]}"
        self.checks["deleted"] += 1
        self.tell("was deleted", name)
        model.vanished()
        self.plain_acks = [item for item in self.plain_acks if item[1] != name]
        self.unanswered[name].clear()
        if not TopicName.parse(name).is_partition:
            self.topic_retention[name] = [None]

    async def check_subscriptions(self, name: str) -> None:
        """Every subscription that was promised is there; what may be gone and is, is forgotten."""
        await self.check_existence(name)
        model = self.topics[name]
        if not model.exists:
            return
        try:
            topic = await self.broker_world.broker.registry.get(TopicName.parse(name), create=False)
        except GemingaError:
            return
        self.lapse()
        for subscription in list(model.subscriptions.values()):
            if subscription.name not in topic.subscriptions:
                assert subscription.may_be_gone, f"{name}: subscription {subscription.name} is gone"
                del model.subscriptions[subscription.name]

    async def read_everything(self, name: str, *, is_second: bool = False) -> None:
        """A reader from the beginning gets all that was promised, in order and nothing else."""
        await self.check_existence(name)
        model = self.topics[name]
        if not model.exists:
            return
        promised = model.promised()
        client = await self.client()
        request = pb.CommandSubscribe(
            topic=name,
            subscription="reader",
            subType=Sub.Exclusive,
            consumer_id=1,
            request_id=client.next_request_id(),
            durable=False,
            initialPosition=Sub.Earliest,
        )
        request.start_message_id.ledgerId = request.start_message_id.entryId = (1 << 64) - 1
        answer = await client.request(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        if answer is None or answer.type != Type.SUCCESS:
            client.lose()
            return
        flow = pb.CommandFlow(consumer_id=1, messagePermits=10_000)
        client.send(pb.BaseCommand(type=Type.FLOW, flow=flow))
        seen: list[int] = []
        quiet = 0
        while quiet < 5:
            await seconds(QUIET_S / 5)
            quiet = 0 if client.messages else quiet + 1
            seen += [number_of(payload) for _, payload in client.messages]
            client.messages.clear()
        if client.is_gone:
            return
        client.lose()
        await seconds(0.05)
        self.lapse()
        found = set(seen)
        still = set(model.promised())
        missing = [number for number in promised if number in still and number not in found]
        if missing and not is_second and any(rules.ttl_s for rules in self.namespace_rules):
            # Time to live is looked at each few minutes, for readers too: not twice within seconds.
            await self.read_everything(name, is_second=True)
            return
        assert not missing, f"{name}: a reader did not get {missing} of {promised}; rules {self.namespace_rules}"
        assert found <= model.messages.keys(), (
            f"{name}: a reader got what was never sent: {found - set(model.messages)}"
        )
        first_copies = list(dict.fromkeys(seen))
        # Of one that was sent again the first copy may be deleted already, before those of its neighbours.
        once = [number for number in first_copies if not model.messages[number].is_repeated]
        assert once == sorted(once), f"{name}: out of order: {seen}"
        if self.deduplicates:
            assert len(seen) == len(first_copies), f"{name}: stored twice: {seen}"
        self.tell("read", name, seen, "promised", promised)
        self.checks["read"] += 1

    def check_delivery(self, model: TopicModel, subscription: SubscriptionModel, number: int) -> None:
        message = model.messages.get(number)
        where = f"{model.name} {subscription.name}: message {number}"
        assert message is not None, f"{where} was never sent, or its topic was deleted"
        assert subscription.left.get(number) is not Left.DONE, f"{where} came again after it was acknowledged"
        if SUBSCRIPTIONS[subscription.name] in (Sub.Shared, Sub.Key_Shared):
            assert self.now_ms >= message.deliver_at_ms, f"{where} came early"
        self.checks["delivered"] += 1
