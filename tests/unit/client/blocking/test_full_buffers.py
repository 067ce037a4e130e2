"""The blocking producer at the client's limit of memory, over real sockets: what waited there is gone once it left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import geminga.client as gc
from geminga.client import blocking
from geminga.runtime.loop_thread import LoopThread
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from support.house.uncollected import uncollected
from support.worlds.scripted_broker import Scripted, polite

TOPIC = "persistent://public/default/topic"
SEND_TIMEOUT_MS = 30


@pytest.fixture
def silent_url() -> Iterator[str]:
    """A broker that gives no receipts."""
    thread, urls = LoopThread(), list[str]()

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type == pb.BaseCommand.LOOKUP:
            return [commands.lookup_connect(command.lookupTopic.request_id, urls[0], "", is_authoritative=True)]
        return polite(command)

    async def listen() -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(lambda: Scripted(script), "127.0.0.1", 0)

    server = thread.run(listen)
    urls.append(f"pulsar://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    yield urls[0]
    thread.call(server.close)
    thread.stop()


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
