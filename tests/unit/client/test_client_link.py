"""Coming back after a loss: the broker's word where to go, errors that end it, waiting for exclusive access."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re

import pytest

import geminga.client as gc
from geminga import sim
from geminga.client._api.interceptors import ProducerInterceptor
from geminga.client._client import Client
from geminga.client._transport.link import AWAY_TOLD_MS, LASTED_MS, Link
from geminga.model.errors import ServerError
from geminga.runtime import next_turn, wait_ms
from geminga.runtime.log import WARNING_INTERVAL_S
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.hot import encode_send_receipts
from support.worlds.client_scenario import ClientScenario
from support.worlds.client_world import PORT, URL, BrokerOnNode
from support.worlds.scripted_broker import Scripted, polite, run_against, run_with_broker

Type = pb.BaseCommand


def receipt(command: pb.BaseCommand) -> list[bytes]:
    return [encode_send_receipts(command.send.producer_id, 1, 2, 1, [(command.send.sequence_id,) * 2])]


def close_producer(assigned_url: str = "", producer_id: int = 0) -> bytes:
    request = pb.CommandCloseProducer(producer_id=producer_id, request_id=(1 << 64) - 1)
    if assigned_url:
        request.assignedBrokerServiceUrl = assigned_url
    return commands.encode_command(pb.BaseCommand(type=Type.CLOSE_PRODUCER, close_producer=request))


def test_assigned_broker_is_used_without_lookup() -> None:
    lookups: list[int] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.LOOKUP:
            lookups.append(1)
        if command.type == Type.SEND:
            return [*receipt(command), close_producer(URL if command.send.sequence_id == 0 else "")]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        assert isinstance(client, Client)
        producer = await client.create_producer("t")
        assert isinstance(producer._link, Link)
        await producer.send(b"first")
        await producer.send(b"second")
        assert len(lookups) == 1
        await producer.send(b"third")
        assert len(lookups) == 2

    run_against(script, scenario)


@pytest.mark.parametrize("url", ["nonsense", "pulsar://", "pulsar://host:0", "kafka://host:9092"])
@pytest.mark.parametrize("told_by", ["close", "lookup", "migrated"])
def test_address_that_is_none_is_asked_for_again(url: str, told_by: str) -> None:
    looked_up: list[int] = []

    def ended() -> bytes:
        if told_by == "migrated":
            moved = pb.CommandTopicMigrated(resource_id=0, resource_type=pb.CommandTopicMigrated.Producer)
            moved.brokerServiceUrl = url
            return commands.encode_command(pb.BaseCommand(type=Type.TOPIC_MIGRATED, topicMigrated=moved))
        return close_producer(url if told_by == "close" else "")

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.LOOKUP:
            looked_up.append(1)
            if told_by == "lookup" and len(looked_up) == 2:
                request_id = command.lookupTopic.request_id
                return [commands.lookup_connect(request_id, url, "", is_authoritative=True)]
        if command.type == Type.SEND and len(looked_up) == 1:
            return [ended()]
        return receipt(command) if command.type == Type.SEND else polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer("t")
        assert isinstance(await producer.send(b"x"), gc.MessageId)

    run_against(script, scenario)
    assert len(looked_up) == (3 if told_by == "lookup" else 2)


def test_assigned_broker_behind_a_proxy_is_reached_through_the_proxy() -> None:
    connects: list[str] = []
    lookups: list[int] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.CONNECT:
            connects.append(command.connect.proxy_to_broker_url)
        if command.type == Type.LOOKUP:
            lookups.append(1)
            found = {"is_authoritative": True, "is_through_service_url": True}
            return [commands.lookup_connect(command.lookupTopic.request_id, "pulsar://hidden:6650", "", **found)]
        if command.type == Type.SEND:
            is_first = command.send.sequence_id == 0
            return [*receipt(command), *([close_producer("pulsar://next:6650")] if is_first else [])]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer("t")
        await producer.send(b"first")
        await producer.send(b"second")

    run_against(script, scenario)
    assert (connects, len(lookups)) == (["", "hidden:6650", "next:6650"], 1)


@pytest.mark.parametrize("kind", [gc.TopicNotFound, gc.ProducerFenced, gc.AuthorizationError, gc.TopicTerminated])
def test_error_that_time_does_not_mend_ends_the_producer(kind: type[gc.PulsarException]) -> None:
    made: list[int] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.PRODUCER:
            made.append(1)
            if len(made) > 1:
                return [commands.error(command.producer.request_id, kind.server_error, "over")]
        return [close_producer()] if command.type == Type.SEND else polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer("t")
        with pytest.raises(kind, match="over"):
            await producer.send(b"x")
        with pytest.raises(kind, match="over"):
            producer.send_nowait(b"y")
        await producer.close()

    run_against(script, scenario)
    assert len(made) == 2


def test_who_does_not_come_back_is_told_of_now_and_again_and_when_he_is_back(caplog) -> None:
    """A consumer that waits for messages raises nothing: the log alone says that its broker is away."""
    away = [False]

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.SEND:
            return [close_producer(producer_id=command.send.producer_id)] if away[0] else receipt(command)
        if command.type == Type.LOOKUP and away[0]:
            return [commands.lookup_failed(command.lookupTopic.request_id, ServerError.SERVICE_NOT_READY, "away")]
        return polite(command)

    def told(level: int) -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.levelno == level]
        caplog.clear()
        return found

    async def scenario(client: gc.Client) -> None:
        producers = [await client.create_producer(f"t{number}", send_timeout_millis=0) for number in range(3)]
        away[0] = True
        for producer in producers:
            producer.send_nowait(b"x")
        await wait_ms(AWAY_TOLD_MS - 1_000)
        assert told(logging.WARNING) == []
        await wait_ms(2_000)
        # One line for all of them.
        (line,) = told(logging.WARNING)
        assert re.fullmatch(r"the producer of persistent://public/default/t\d is away for 10.\d s, and .*: away", line)
        await wait_ms(WARNING_INTERVAL_S * 1_000 - 3_000)
        assert told(logging.WARNING) == []
        await wait_ms(3_000)
        assert len(told(logging.WARNING)) == 1
        away[0] = False
        for producer in producers:
            await producer.flush()
        back = told(logging.INFO)
        assert sum(" is back after 7" in line for line in back) == len(producers)

    with caplog.at_level(logging.INFO, logger="geminga.client"):
        run_against(script, scenario, maximum_backoff_ms=500)


def test_consumer_says_of_what_subscription_it_is_while_it_is_away(caplog) -> None:

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        await client.subscribe("t", "billing")
        await broker.abandon()
        await wait_ms(1_000)

    with caplog.at_level(logging.INFO, logger="geminga.client._transport.link"):
        run_with_broker(scenario)
    assert "the consumer (billing) of persistent://public/default/t is back after " in caplog.text


@pytest.mark.parametrize("kind", [gc.ProducerBusy, gc.ServiceUnitNotReady, gc.BrokerMetadataError])
def test_error_that_time_mends_is_tried_again(kind: type[gc.PulsarException]) -> None:
    made: list[int] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.PRODUCER:
            made.append(1)
            if 1 < len(made) < 5:
                return [commands.error(command.producer.request_id, kind.server_error, "not yet")]
        if command.type == Type.SEND:
            return [close_producer()] if len(made) == 1 else receipt(command)
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer("t")
        assert (await producer.send(b"x")).entry_id() == 2

    run_against(script, scenario)
    assert len(made) == 5


def test_producer_that_is_accepted_and_can_not_store_comes_back_less_and_less_often() -> None:
    made: list[float] = []
    refused = 10

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.PRODUCER:
            made.append(asyncio.get_running_loop().time())
        if command.type == Type.SEND:
            can_store = len(made) > refused and (len(made) > refused + 1 or command.send.sequence_id == 0)
            return receipt(command) if can_store else [close_producer()]
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer("t", send_timeout_millis=0)
        await producer.send(b"first")
        await wait_ms(LASTED_MS)
        # What worked for a while starts small again when it is lost.
        await producer.send(b"second")

    run_against(script, scenario, initial_backoff_ms=100, maximum_backoff_ms=60_000)
    waits = [later - earlier for earlier, later in itertools.pairwise(made)]
    assert len(waits) == refused + 1
    growing, last = waits[:-1], waits[-1] - LASTED_MS / 1000
    assert all(wait >= 1.2 * before or wait > 4 for before, wait in itertools.pairwise(growing))
    assert 4 < growing[-1] < 6
    assert last < 0.5


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("closed", [True, False])
def test_exclusive_access_may_come_at_once_or_later_and_is_asked_for_again_when_closed(
    joined: bool, closed: bool
) -> None:
    asked: list[int] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.PRODUCER:
            asked.append(1)
            answer = {"last_sequence_id": -1, "schema_version": b"", "topic_epoch": 7}
            request_id = command.producer.request_id
            waiting = commands.producer_success(request_id, "p", is_ready=False, **answer)
            ready = commands.producer_success(request_id, "p", is_ready=True, **answer)
            then = close_producer() if closed and len(asked) == 1 else ready
            return [waiting + then] if joined else [waiting, then]
        return receipt(command) if command.type == Type.SEND else polite(command)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer("t", access_mode=gc.ProducerAccessMode.WaitForExclusive)
        await producer.send(b"x")

    run_against(script, scenario)
    assert len(asked) == 1 + closed


def test_waiting_for_access_ends_when_the_caller_gives_up() -> None:
    left: list[int] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.PRODUCER:
            answer = {"last_sequence_id": -1, "schema_version": b"", "topic_epoch": None}
            return [commands.producer_success(command.producer.request_id, "p", is_ready=False, **answer)]
        if command.type == Type.CLOSE_PRODUCER:
            left.append(command.close_producer.producer_id)
        return polite(command)

    async def scenario(client: gc.Client) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(50):
                await client.create_producer("t", access_mode=gc.ProducerAccessMode.WaitForExclusive)
        await wait_ms(100)

    run_against(script, scenario)
    assert left == [0]


def test_interceptor_may_leave_everything_as_it_is() -> None:
    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer("t", interceptors=[ProducerInterceptor()])
        await producer.send(b"x")
        await producer.close()

    run_against(lambda c: receipt(c) if c.type == Type.SEND else polite(c), scenario)


@pytest.mark.parametrize("closes", ["twice", "with the client", "cut off"])
def test_interceptor_hears_of_the_end_once_whoever_ends_it(closes: str) -> None:
    heard: list[str] = []

    class Hearing(ProducerInterceptor):
        def close(self) -> None:
            heard.append("closed")

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer("t", interceptors=[Hearing()])
        if closes == "twice":
            await producer.close()
            await producer.close()
        elif closes == "with the client":
            await client.close()
        else:
            closing = asyncio.ensure_future(producer.close())
            await next_turn()
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            await wait_ms(1000)
        assert heard == ["closed"]
        assert not client.is_in_use

    run_against(polite, scenario)
    assert heard == ["closed"]


@pytest.mark.parametrize(
    ("start", "is_told_at_first", "there"),
    [
        (gc.MessageId.latest, True, gc.MessageId.latest),
        (gc.MessageId.earliest, True, gc.MessageId.earliest),
        (gc.MessageId.latest, False, gc.MessageId.earliest),
    ],
)
def test_reader_led_to_another_cluster_begins_there_with_what_is_new_to_it(
    start: gc.MessageId, is_told_at_first: bool, there: gc.MessageId
) -> None:
    """Who was attached here wants everything of there, who was never, and asks for what is new, nothing older."""
    asked: list[gc.MessageId] = []

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.GET_LAST_MESSAGE_ID:
            return [commands.error(command.getLastMessageId.request_id, pb.MetadataError, "no such consumer")]
        if command.type != Type.SUBSCRIBE:
            return polite(command)
        request = command.subscribe
        asked.append(gc.MessageId.from_data(request.start_message_id))
        if len(asked) == 2:
            return [commands.success(request.request_id)]
        moved = commands.topic_migrated(request.consumer_id, URL, "", is_producer=False)
        if is_told_at_first:
            return [moved, commands.error(request.request_id, pb.ServiceNotReady, "it moved")]
        return [commands.success(request.request_id), moved]

    async def scenario(client: gc.Client) -> None:
        async with client.create_reader("topic", start):
            while len(asked) < 2:
                await wait_ms(10)
        assert asked == [start, there]

    run_against(script, scenario)


@pytest.mark.parametrize("call", ["get_topic_partitions", "create_producer", "get_schema"])
def test_a_broker_that_does_not_answer_connect_is_waited_for_no_longer_than_the_operation_timeout(call: str) -> None:
    async def scenario(client: gc.Client) -> None:
        began = asyncio.get_running_loop().time()
        with pytest.raises(gc.Timeout, match="no connection to pulsar://proxy:6650 within 2000 ms"):
            await getattr(client, call)("t")
        assert asyncio.get_running_loop().time() - began == pytest.approx(2.0, abs=0.1)

    run_against(lambda command: [], scenario, operation_timeout_ms=2000, connection_timeout_ms=10_000)


def test_each_address_has_its_part_of_the_operation_timeout() -> None:
    async def main(world: sim.SimWorld) -> None:
        server = world.node("proxy")
        for number, script in enumerate([lambda command: [], lambda command: [], polite]):
            await server.run(
                lambda _, number=number, script=script: server.runtime.network.listen(
                    lambda: Scripted(script), "0.0.0.0", PORT + number
                )
            )
        on_stage = ClientScenario(world)
        urls = ",".join(f"proxy:{PORT + number}" for number in range(3))

        async def ask(_: sim.SimNode) -> float:
            url, runtime = f"pulsar://{urls}", on_stage.client_node.runtime
            async with gc.connect(url, runtime=runtime, operation_timeout_ms=6000) as client:
                began = asyncio.get_running_loop().time()
                assert await client.get_topic_partitions("t") == ["persistent://public/default/t"]
                return asyncio.get_running_loop().time() - began

        assert await on_stage.client_node.run(ask) == pytest.approx(4.0, abs=0.1)

    sim.run(main)
