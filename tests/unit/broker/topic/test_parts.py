"""Parts of a topic: made when its rules want them, asked in their order, gone without a trace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import pytest

from geminga.broker.failures import BrokenPart
from geminga.broker.topic.deduplication import TopicDeduplication
from geminga.broker.topic.delays import DelayedDelivery
from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.topic.publish import PublishBatch, Refusal
from geminga.broker.topic.quota_guard import BacklogQuotas
from geminga.broker.topic.registered_parts import PARTS
from geminga.broker.topic.retention import Retention
from geminga.broker.topic.transaction_buffer import TransactionBuffer
from geminga.managed_ledger import AppendResult
from geminga.model.errors import DiskFullError, GemingaError, NotAllowedError
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker
from support.worlds.holding_part import HoldingPart, holder_of, with_parts
from support.worlds.policy_levels import set_namespace, topic_of

NAME = TopicName.parse(TOPIC)


class Witness(TopicPart):
    """Writes down what it is asked and told."""

    __slots__ = ("topic",)

    name: ClassVar[str] = "witness"
    events: ClassVar[list[str]]
    is_on: ClassVar[bool]
    load_error: ClassVar[BaseException | None]

    def __init__(self, topic: PartTopic) -> None:
        self.topic = topic

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        return cls.is_on

    @classmethod
    async def prepare(cls, topic: PartTopic, *, is_wanted: bool) -> None:
        if not is_wanted:
            cls.events.append("clear")

    async def load(self) -> None:
        self.events.append("load")
        if self.load_error is not None:
            raise self.load_error

    def policies_changed(self) -> None:
        self.events.append("policies")

    def admit(self, batch: PublishBatch) -> Iterable[PublishBatch]:
        self.events.append(f"admit {batch.sequence_ids[0][0]}")
        return (batch,)

    def stored(self, batch: PublishBatch, result: AppendResult) -> None:
        self.events.append(f"stored {batch.sequence_ids[0][0]}")

    def failed(self, batch: PublishBatch, error: GemingaError) -> None:
        self.events.append(f"failed {type(error).__name__}")

    def settled(self) -> None:
        self.events.append("settled")

    async def close(self) -> None:
        self.events.append("close")

    def drop(self) -> None:
        self.events.append("drop")

    async def delete(self) -> None:
        self.events.append("delete")


@pytest.fixture
def witness() -> type[Witness]:
    class Fresh(Witness):
        __slots__ = ()

        events: ClassVar[list[str]] = []
        is_on: ClassVar[bool] = True
        load_error: ClassVar[BaseException | None] = None

    return Fresh


class Refusing(TopicPart):
    """Odd sequence ids are not for it."""

    __slots__ = ()

    name: ClassVar[str] = "refusing"

    def __init__(self, topic: PartTopic) -> None:
        del topic

    def admit(self, batch: PublishBatch) -> Iterable[PublishBatch]:
        for at, (sequence_id, _) in enumerate(batch.sequence_ids):
            one = batch.cut(at, at + 1, 1)
            one.refusal = Refusal(NotAllowedError("odd")) if sequence_id % 2 else None
            yield one


def test_topic_without_features_pays_nothing_when_it_publishes() -> None:
    async def scenario(world: BrokerWorld) -> None:
        parts = (await topic_of(world)).parts
        assert parts.admit == parts.stored == parts.failed == parts.settled == parts.hides == parts.read_limit == ()
        assert parts.find(Retention)
        assert parts.find(DelayedDelivery)
        assert not parts.find(BacklogQuotas)
        assert not parts.find(TopicDeduplication)
        assert set(parts.stats()) == {"retention", "persistence", "delayedDelivery"}

    run_with_broker(scenario)


def test_features_are_registered_in_one_order_and_those_that_remember_are_last() -> None:
    assert PARTS[-1] == TopicDeduplication
    assert len({kind.name for kind in (*PARTS, TransactionBuffer)}) == len(PARTS) + 1

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        parts = topic.parts
        assert [hook.__self__.name for hook in parts.stored] == ["backlogQuotas", "deduplication"]  # type: ignore[attr-defined]
        assert "transactionBuffer" not in parts.stats()
        await (await topic.use_transactions()).begin()
        await topic.apply_policies()
        assert [hook.__self__.name for hook in parts.admit][-1] == "transactionBuffer", "behind all that refuse"  # type: ignore[attr-defined]

    run_with_broker(scenario, deduplication=True, backlog_quota_bytes=1000, transaction_coordinator_enabled=True)


def test_part_hears_of_its_topic_in_order(witness: type[Witness]) -> None:
    async def scenario(world: BrokerWorld) -> None:
        with_parts(world.broker, witness)
        client = await world.publisher()
        await client.publish(0)
        assert witness.events == ["load", "policies", "admit 0", "stored 0", "settled"]
        witness.events.clear()
        await world.broker.registry.unload(NAME)
        assert witness.events == ["close"]
        witness.events.clear()
        await world.broker.registry.delete(NAME)
        assert witness.events == ["load", "policies", "delete"]

    run_with_broker(scenario)


def test_part_comes_and_goes_with_its_policy(witness: type[Witness]) -> None:
    async def scenario(world: BrokerWorld) -> None:
        witness.is_on = False
        with_parts(world.broker, witness)
        client = await world.publisher()
        topic = await topic_of(world)
        await client.publish(0)
        assert (witness.events, topic.parts.admit) == (["clear"], ())
        witness.is_on = True
        await topic.apply_policies()
        await client.publish(1)
        await topic.apply_policies()
        witness.is_on = False
        await topic.apply_policies()
        await client.publish(2)
        assert witness.events == [
            *("clear", "load", "policies", "admit 1", "stored 1", "settled"),
            *("policies", "drop", "clear"),
        ]

    run_with_broker(scenario)


def test_what_one_part_refuses_the_next_is_not_asked_and_answers_keep_their_order(witness: type[Witness]) -> None:
    async def scenario(world: BrokerWorld) -> None:
        with_parts(world.broker, Refusing, witness)
        client = await world.publisher()
        frames = []
        client.send_bytes = frames.append  # type: ignore[method-assign]
        for sequence_id in range(4):
            client.send_message(sequence_id)
        client.connection.data_received(b"".join(frames))
        answers = []
        while len(answers) < 4:
            await client.wait_for_news()
            command, _ = client.received.popleft()
            answers.append((command.type, (command.send_receipt or command.send_error).sequence_id))
        assert [kind for kind, _ in answers] == [Type.SEND_RECEIPT, Type.SEND_ERROR] * 2
        asked = [event for event in witness.events if event.startswith("admit")]
        assert asked == ["admit 0", "admit 2"]

    run_with_broker(scenario)


def test_part_that_can_not_load_leaves_a_topic_that_is_not_loaded_and_nothing_of_it(witness: type[Witness]) -> None:
    async def scenario(world: BrokerWorld) -> None:
        witness.load_error = DiskFullError("no bookie")
        with_parts(world.broker, HoldingPart, witness)
        client = await world.client()
        for _ in range(3):
            client.request_producer()
            await client.error()
        assert TOPIC not in world.broker.topics
        assert world.broker.failures.counts[BrokenPart.TOPIC] == 0
        witness.load_error = None
        client.request_producer(producer_id=2)
        await client.expect(Type.PRODUCER_SUCCESS)
        topic = await topic_of(world)
        assert topic.ledger.tail.listener_count == 1
        await client.publish(0, producer_id=2)
        assert witness.events.count("drop") == 0

    run_with_broker(scenario)


def test_part_that_was_switched_on_and_can_not_load_leaves_the_topic_as_it_was(witness: type[Witness]) -> None:
    async def scenario(world: BrokerWorld) -> None:
        witness.is_on = False
        with_parts(world.broker, witness)
        topic = await topic_of(world)
        client = await world.publisher()
        witness.is_on, witness.load_error = True, DiskFullError("no bookie")
        with pytest.raises(DiskFullError):
            await topic.apply_policies()
        await client.publish(0)
        assert topic.parts.admit == ()
        witness.load_error = None
        await topic.apply_policies()
        assert len(topic.parts.admit) == 1

    run_with_broker(scenario)


def test_topic_that_is_closed_while_a_part_loads_does_not_get_it(witness: type[Witness]) -> None:
    async def scenario(world: BrokerWorld) -> None:
        class Closing(HoldingPart):
            __slots__ = ()

            async def load(self) -> None:
                topic: PersistentTopic = self._topic  # type: ignore[assignment]
                await topic.parts.close()

        topic = await topic_of(world)
        topic.parts._kinds = (Closing, witness)
        await topic.apply_policies()
        assert topic.parts.find(Closing) is None
        assert witness.events == []

    run_with_broker(scenario)


def test_limit_that_moves_back_holds_nothing_that_could_be_read() -> None:
    async def scenario(world: BrokerWorld) -> None:
        with_parts(world.broker, HoldingPart)
        client = await world.publisher()
        positions = [Position(*await client.publish(at)) for at in range(3)]
        topic = await topic_of(world)
        holder = holder_of(topic)
        await holder.hold_at(positions[0])
        assert topic.max_read_position == positions[2]
        assert topic.parts.stats()["holding"] == {"readLimit": str(positions[0])}
        last = Position(*await client.publish(3))
        assert topic.max_read_position == positions[2]
        await holder.hold_at(last)
        await holder.hold_at(positions[1])
        assert topic.max_read_position == last

    run_with_broker(scenario)


@pytest.mark.parametrize("minutes", [0, 10, -1])
def test_retention_is_told_to_the_ledger(minutes: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await set_namespace(world, "retention_policies", {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1})
        assert topic.ledger.trimmer.retention_ms == (minutes * 60_000 if minutes >= 0 else -1)

    run_with_broker(scenario)
