"""Producers behind a hostile network: no hang, no leak, every send ends, nothing acknowledged is lost, order is kept.

1. Faults: connections are cut at any byte, go silent, are refused, or carry garbage and impossible sizes; the broker
   restarts, is taken over, is slow or stalls; sends are cancelled; producers and clients are closed while they send.
   2. The network is healed: everything that waits must end. 3. The topic's log is compared with what the producers
   were told. Every kind of fault is counted where it strikes, and must have struck.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

import geminga.client as gc
from geminga import sim
from geminga.broker.connection.connection import TURN_COMMANDS_MAX
from geminga.runtime import spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.hot import encode_send_receipts
from support.house.weekly_sample import SeedCheck, few_and_blocks
from support.worlds.client_scenario import ClientScenario
from support.worlds.client_world import SLOW, STRUCK, URL, Stored
from support.worlds.scripted_broker import polite, run_against

FAULTS_S = 20.0
#: Virtual seconds in which everything must have ended once the network is healed.
HEALED_S = 60.0
MESSAGES = 120
#: What must have happened in every run of some tens of seeds.
FAULTS = (
    *STRUCK,
    *SLOW,
    "broker.restart",
    "broker.taken over",
    "send cancelled",
    "send timeout",
    "closed while sending",
)


def number_of(payload: bytes) -> int:
    return int(payload.split(b":")[1])


class Traffic:
    """One producer's messages, and what became of each."""

    def __init__(self, stage: ClientScenario, name: str) -> None:
        self.stage = stage
        self.world = world = stage.world
        self.name = name
        self.rng = world.rng("traffic", name)
        self.topic = f"topic-{name}"
        self.sent: list[bytes] = []
        self.results: dict[bytes, gc.MessageId | gc.PulsarException | None] = {}
        self.tasks: list[asyncio.Task[None]] = []
        rng = self.rng
        #: Number of keys; 0: messages have none. With a batch per key, order is kept per key only.
        self.keys = rng.choice([0, 0, 3])
        self.is_chunking = rng.random() < 0.2
        self.options: gc.ProducerArguments = {
            "producer_name": f"producer-{name}",
            "send_timeout_millis": rng.choice([0, 0, 3_000]),
            "batching_enabled": rng.random() < 0.7 and not self.is_chunking,
            "batching_type": gc.BatchingType.KeyBased if self.keys else gc.BatchingType.Default,
            "chunking_enabled": self.is_chunking,
            "chunk_max_message_size": 1000 if self.is_chunking else 0,
            "batching_max_messages": rng.choice([2, 10, 1000]),
            "max_pending_messages": rng.choice([0, 0, 5]),
            "compression_type": rng.choice([gc.CompressionType.NONE, gc.CompressionType.LZ4]),
        }

    def payload(self) -> bytes:
        payload = b"%s:%d:" % (self.name.encode(), len(self.sent))
        return payload + b"x" * self.rng.choice([0, 10, 200, 3000])

    def fields(self, payload: bytes) -> gc.MessageFields:
        return {"partition_key": f"k{number_of(payload) % self.keys}"} if self.keys else {}

    async def run(self, client: gc.Client) -> gc.Producer[bytes]:
        producer = await self.stage.insist(lambda: client.create_producer(self.topic, **self.options))
        for _ in range(MESSAGES):
            if self.rng.random() < 0.3:
                await self.world.sleep(self.rng.uniform(0, 2 * FAULTS_S / MESSAGES))
            payload = self.payload()
            if self.rng.random() < 0.5:
                await self.send_without_waiting(producer, payload)
            else:
                task = spawn(self.send(producer, payload), name=f"send {payload[:20]!r}")
                self.tasks.append(task)
                await self.world.sleep(0)  # it has sent, or waits for room: only then is the order known
                if self.options["max_pending_messages"]:
                    await asyncio.wait([task])
                elif self.rng.random() < 0.1:
                    self.world.loop.call_later(self.rng.uniform(0, 1), task.cancel)
        return producer

    async def send(self, producer: gc.Producer[bytes], payload: bytes) -> None:
        self.sent.append(payload)
        self.results[payload] = None
        try:
            self.results[payload] = await producer.send(payload, **self.fields(payload))
        except gc.PulsarException as error:
            self.results[payload] = error
        except asyncio.CancelledError:
            self.results[payload] = gc.Interrupted("cancelled")
            self.world.points.hits["send cancelled"] += 1
            raise

    async def send_without_waiting(self, producer: gc.Producer[bytes], payload: bytes) -> None:
        def done(error: gc.PulsarException | None, message_id: gc.MessageId | None) -> None:
            assert self.results[payload] is None, "a message has two results"
            self.results[payload] = error or message_id

        while True:
            try:
                producer.send_nowait(payload, done, **self.fields(payload))
            except gc.ProducerQueueIsFull:
                await producer.drain()
            else:
                break
        self.sent.append(payload)
        self.results[payload] = None

    def check(self, stored: list[Stored], *, is_deduplicated: bool, was_closed: bool) -> None:
        """The log against the results; ``was_closed``: before everything had its receipt."""
        unknown: tuple[type[gc.PulsarException], ...] = (gc.Timeout, gc.Interrupted)
        if was_closed:
            unknown = (*unknown, gc.AlreadyClosed)
        missing = [p[:30] for p in self.sent if self.results[p] is None]
        assert not missing, f"sends without a result: {missing}"
        places: dict[bytes, list[Stored]] = {}
        for message in stored:
            places.setdefault(message.payload, []).append(message)
        for payload, result in self.results.items():
            if not isinstance(result, gc.MessageId):
                assert isinstance(result, unknown), repr(result)
                self.world.points.hits["send timeout"] += isinstance(result, gc.Timeout)
                continue
            assert payload in places, f"{payload[:30]!r} was acknowledged as {result} and is lost"
            if result.ledger_id() >= 0:
                claimed = (result.ledger_id(), result.entry_id(), result.batch_index())
                assert claimed in [(m.ledger_id, m.entry_id, m.batch_index) for m in places[payload]]
        numbers = [number_of(payload) for payload in places]
        for key in range(max(self.keys, 1)):
            of_key = [number for number in numbers if not self.keys or number % self.keys == key]
            assert of_key == sorted(of_key), f"order of first occurrences: {of_key}"
        if is_deduplicated:
            twice = [p[:30] for p, found in places.items() if len(found) > 1]
            assert not twice, f"stored twice: {twice}"


async def hostile_network(world: sim.SimWorld) -> None:
    rng = world.rng("scenario")
    is_deduplicated = rng.random() < 0.5
    turn_commands_max = world.rng("turns").choice([1, 3, TURN_COMMANDS_MAX])
    stage = await ClientScenario(world, deduplication=is_deduplicated, turn_commands_max=turn_commands_max).start()
    traffic = [Traffic(stage, name) for name in ("a", "b")]
    ending = rng.choice(["flush", "flush", "close producers", "close client"])

    async def produce(_: sim.SimNode) -> None:
        async with stage.connect() as client:
            producers = await asyncio.gather(*(one.run(client) for one in traffic))
            tasks = [task for one in traffic for task in one.tasks]
            if ending == "flush":
                if tasks:
                    await asyncio.wait(tasks)
                for producer in producers:
                    await producer.flush()
                    assert producer.pending_messages == 0
            elif any(producer.pending_messages for producer in producers):
                world.points.hits["closed while sending"] += 1
            if ending == "close producers":
                await asyncio.gather(*(producer.close() for producer in producers))
            else:
                await client.close()
            if tasks:
                await asyncio.wait(tasks)
            assert client.memory.used_bytes == 0
        assert client.pool.open_connections == 0

    faults = stage.faults(rng, FAULTS_S, partial(stage.restart_or_abandon, rng))
    async with asyncio.timeout(FAULTS_S + HEALED_S + 40):
        await stage.client_node.run(produce)
    await faults
    await stage.check_nothing_left(10)
    for one in traffic:
        name = one.topic
        stored = await stage.broker_node.run(lambda _, name=name: stage.broker.messages(name))
        one.check(stored, is_deduplicated=is_deduplicated, was_closed=ending != "flush")


def test_redirects_without_end_are_a_named_error() -> None:
    lookups: list[int] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type != pb.BaseCommand.LOOKUP:
            return polite(command)
        lookups.append(1)
        answer = pb.CommandLookupTopicResponse(
            request_id=command.lookupTopic.request_id,
            brokerServiceUrl=URL,
            response=pb.CommandLookupTopicResponse.Redirect,
            authoritative=True,
        )
        return [
            commands.encode_command(pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer))
        ]

    async def scenario(client: gc.Client) -> None:
        with pytest.raises(gc.LookupError, match="redirects"):
            await client.create_producer("topic")

    run_against(script, scenario)
    assert len(lookups) % 21 == 0


def test_broker_that_never_answers_is_a_timeout() -> None:
    async def scenario(client: gc.Client) -> None:
        with pytest.raises((gc.Timeout, gc.ConnectError)):
            await client.create_producer("topic")

    run_against(lambda command: [], scenario)
    for silent in ("LOOKUP", "PRODUCER", "PARTITIONED_METADATA"):
        kind = pb.BaseCommand.Type.Value(silent)
        run_against(lambda command, kind=kind: [] if command.type == kind else polite(command), scenario)


def test_broker_that_takes_sends_and_never_answers_lets_them_time_out() -> None:
    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer("topic", send_timeout_millis=3000)
        with pytest.raises(gc.Timeout, match="unknown"):
            await producer.send(b"lost?")
        producer.send_nowait(b"lost too?")
        with pytest.raises(gc.Timeout):
            await producer.flush()
        await producer.flush()
        assert (producer.pending_messages, client.memory.used_bytes) == (0, 0)

    run_against(polite, scenario)


def test_producer_closed_in_the_read_that_made_it_comes_back() -> None:
    made: list[int] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        answers = polite(command)
        if command.type == pb.BaseCommand.PRODUCER:
            made.append(1)
            if len(made) < 3:
                answers.append(commands.close_producer(command.producer.producer_id, (1 << 64) - 1))
                return [b"".join(answers)]
        if command.type == pb.BaseCommand.SEND:
            return [encode_send_receipts(command.send.producer_id, 1, 2, 1, [(command.send.sequence_id,) * 2])]
        return answers

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer("topic")
        assert await producer.send(b"x") == gc.MessageId(-1, 1, 2)

    run_against(script, scenario)
    assert len(made) == 3


@pytest.mark.slow
@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
@pytest.mark.parametrize("fault", ["cut up", "cut down"])
def test_a_connection_cut_after_any_byte_is_survived(fault: str, stride: int) -> None:
    """A first connection that ends after so and so many bytes, until it lives to the end: each time what was sent
    comes, and what was acknowledged stays acknowledged."""

    async def main(world: sim.SimWorld) -> int:
        stage = await ClientScenario(world, deduplication=True).start()

        async def once(place: int) -> bool:
            struck = world.points.hits[f"network.{fault}"]
            stage.proxy.planned = [(fault, place)]
            async with asyncio.timeout(60), stage.connect() as client:
                options: gc.ConsumerArguments = {"ack_receipt_enabled": True, "ack_group_time_ms": 0}
                consumer = await client.subscribe("topic", "sub", **options)
                producer = await client.create_producer("topic")
                assert isinstance(await producer.send(b"%d" % place), gc.MessageId)
                data = b""
                while data != b"%d" % place:
                    message = await consumer.receive()
                    data = message.data()
                    assert int(data) == place, "an acknowledged message came again"
                    await consumer.acknowledge(message)
            return world.points.hits[f"network.{fault}"] > struck

        place = 0
        while await stage.client_node.run(lambda _, place=place: once(place)):
            place += stride
        (topic,) = stage.broker.broker.topics.values()
        assert topic.subscriptions["sub"].cursor.backlog_count == 0
        return place

    assert sim.run(main) > 200


@pytest.mark.parametrize("step", ["create", "send", "flush", "drain", "close", "client close"])
def test_cancelling_at_every_await_leaves_nothing_behind(step: str) -> None:
    """Each step is cancelled after 0, 1, 2, ... turns of the loop; afterwards the client still works."""

    async def main(world: sim.SimWorld) -> int:
        stage = await ClientScenario(world).start()

        async def once(delay_s: float) -> bool:
            async with stage.connect() as client:
                producer = None if step == "create" else await client.create_producer("topic", send_timeout_millis=0)
                if producer is not None:
                    for _ in range(3):
                        producer.send_nowait(b"before")
                work = {
                    "create": lambda: client.create_producer("topic"),
                    "send": lambda: producer.send(b"cancelled"),
                    "flush": lambda: producer.flush(),
                    "drain": lambda: producer.drain(),
                    "close": lambda: producer.close(),
                    "client close": lambda: client.close(),
                }[step]
                task = spawn(work(), name=step)
                await world.sleep(delay_s)
                is_done = task.done()
                task.cancel()
                await asyncio.wait([task])
                if step in ("create", "send", "flush", "drain"):
                    other = await client.create_producer("topic")
                    await other.send(b"works")
                    if producer is not None:
                        await producer.send(b"works too")
            assert client.pool.open_connections == 0
            assert client.memory.used_bytes == 0
            return is_done

        rounds = 0
        async with asyncio.timeout(500):
            while not await stage.client_node.run(lambda _, delay_s=rounds * 0.0001: once(delay_s)):
                rounds += 1
        await stage.check_nothing_left()
        assert stage.broker.broker.topics
        for topic in stage.broker.broker.topics.values():
            assert not topic.producers, "a producer of a cancelled step stayed on the broker"
        return rounds

    assert sim.run(main) >= (0 if step == "drain" else 3)


@pytest.mark.parametrize("what", ["create", "send"])
def test_closing_the_client_meanwhile_gives_a_named_error(what: str) -> None:
    """The client is closed 0, 0.1, 0.2, ... ms after a step began, which ends with its result or an error's name."""

    async def main(world: sim.SimWorld) -> set[str]:
        stage = await ClientScenario(world).start()

        async def once(delay_s: float) -> str:
            client = stage.connect()
            if what == "create":
                task = spawn(outcome(client.create_producer("topic")), name=what)
            else:
                producer = await client.create_producer("topic")
                task = spawn(outcome(producer.send(b"x")), name=what)
            await world.sleep(delay_s)
            await client.close()
            await asyncio.wait([task])
            return task.result()

        async def outcome(step) -> str:
            try:
                return type(await step).__name__
            except gc.PulsarException as error:
                return type(error).__name__

        async with asyncio.timeout(500):
            return {await stage.client_node.run(lambda _, n=n: once(n * 0.0001)) for n in range(100)}

    outcomes = sim.run(main)
    expected = {"create": {"AlreadyClosed", "TopicProducer"}, "send": {"AlreadyClosed", "MessageId"}}[what]
    assert outcomes <= expected | {"NotConnected"}
    assert len(outcomes) > 1 or what == "send"


@pytest.mark.slow
@few_and_blocks(range(1000), least=20, most=200, many=range(1000, 2000), block=50, hits_min=1)
def test_producers_survive_a_hostile_network(check: SeedCheck) -> None:
    check(hostile_network, FAULTS)
