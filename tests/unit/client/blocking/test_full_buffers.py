"""The blocking producer without room, over real sockets: what waited is gone once it left, and an end waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import pytest

import geminga.client as gc
from geminga.client import blocking
from geminga.runtime.loop_thread import CallbackThread, LoopThread, loop_thread
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.hot import encode_send_receipts
from support.house.uncollected import uncollected
from support.worlds.scripted_broker import Scripted, polite

TOPIC = "persistent://public/default/topic"
SEND_TIMEOUT_MS = 30


@contextmanager
def broker(*, gives_receipts: bool) -> Iterator[str]:
    """Its URL."""
    thread, urls = LoopThread(), list[str]()

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == pb.BaseCommand.LOOKUP:
            return [commands.lookup_connect(command.lookupTopic.request_id, urls[0], "", is_authoritative=True)]
        if gives_receipts and command.type == pb.BaseCommand.SEND:
            send = command.send
            return [encode_send_receipts(send.producer_id, 1, send.sequence_id, 1, [(send.sequence_id,) * 2])]
        return polite(command)

    async def listen() -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(lambda: Scripted(script), "127.0.0.1", 0)

    server = thread.run(listen)
    urls.append(f"pulsar://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    yield urls[0]
    thread.call(server.close)
    thread.stop()


@pytest.fixture
def silent_url() -> Iterator[str]:
    """A broker that gives no receipts."""
    with broker(gives_receipts=False) as url:
        yield url


def test_message_that_waited_for_memory_waits_for_no_collector(silent_url: str) -> None:
    """A program that sends without waiting had each message that found no memory twice."""
    heard: list[gc.PulsarException | None] = []
    with blocking.connect(silent_url, memory_limit_bytes=1000) as client:
        producer = client.create_producer(TOPIC, batching_enabled=False, send_timeout_millis=SEND_TIMEOUT_MS)

        def send(count: int) -> None:
            heard.clear()
            for _ in range(count):
                producer.send_nowait(bytes(1000), lambda error, _: heard.append(error))
            with pytest.raises(gc.PulsarException):
                producer.send(b"last")
            producer.flush()

        send(2)
        with uncollected() as found:
            send(5)
            assert [type(error) for error in heard] == [gc.Timeout] * 5
            heard.clear()
        assert found == []


def test_the_clients_end_waits_for_messages_that_are_on_their_way_to_the_loop() -> None:
    heard: list[gc.PulsarException | None] = []
    with broker(gives_receipts=True) as url, blocking.connect(url) as client:
        producer = client.create_producer(TOPIC, batching_enabled=False, max_pending_messages=1)
        for _ in range(100):
            producer.send_nowait(b"x", lambda error, _: heard.append(error))
        client.close()
        told: SimpleQueue[None] = SimpleQueue()
        loop_thread().call_back(lambda: told.put(None))  # behind all that were told
        told.get(timeout=60)
    assert heard == [None] * 100


@pytest.mark.parametrize("what", ["producer", "client"])
def test_an_end_waits_no_longer_for_room_than_the_operation_timeout(silent_url: str, what: str, caplog) -> None:
    with blocking.connect(silent_url, operation_timeout_ms=50) as client:
        producer = client.create_producer(TOPIC, batching_enabled=False, max_pending_messages=1, send_timeout_millis=0)
        for _ in range(10):
            producer.send_nowait(b"x")
        ended: SimpleQueue[None] = SimpleQueue()
        closing = CallbackThread("closing")
        closing.put({"producer": producer.close, "client": client.close}[what])
        closing.put(lambda: ended.put(None))
        ended.get(timeout=20)
        with pytest.raises(gc.AlreadyClosed):
            producer.flush()
    assert any("nobody heard" in record.getMessage() for record in caplog.records)
