"""Entries that give no message: what waits for the last message of a topic, or for one message only, gets on."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.client._table_view import TableView
from geminga.runtime import next_turn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from support.worlds.scripted_broker import run_against
from support.worlds.scripted_consumer import ConsumerScript, Type, entry_bytes, message_frame

COVERED = (TableView,)

VALUE = entry_bytes([b"value"], partition_key="k")
CHUNK = entry_bytes([b"half"], uuid="u", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=8)
DAMAGED = VALUE[:-1] + b"?"
BROKEN = entry_bytes([b"no batch"], num_messages_in_batch=3)
ENCRYPTED = entry_bytes([b"secret"], encryption_keys=[pb.EncryptionKeys(key="missing", value=b"x")])
UNDELIVERABLE = {"chunk": CHUNK, "damaged": DAMAGED, "broken": BROKEN, "encrypted": ENCRYPTED}


class TopicScript(ConsumerScript):
    """Sends entries as permits allow, from the first one after each SUBSCRIBE; knows the last message's id."""

    def __init__(self, entries: list[bytes]) -> None:
        super().__init__(entries)
        self._next = 0
        self._permits = 0

    def __call__(self, command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.SUBSCRIBE:
            self._next = self._permits = 0
        if command.type == Type.GET_LAST_MESSAGE_ID:
            answer = pb.CommandGetLastMessageIdResponse(request_id=command.getLastMessageId.request_id)
            answer.last_message_id.ledgerId, answer.last_message_id.entryId = 1, len(self.entries) - 1
            answered = pb.BaseCommand(type=Type.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=answer)
            return [commands.encode_command(answered)]
        if command.type == Type.FLOW:
            self._permits += command.flow.messagePermits
            return self.send(command.flow.consumer_id)
        return super().__call__(command)

    def send(self, consumer_id: int) -> list[bytes]:
        """What may go out now."""
        end = min(len(self.entries), self._next + self._permits)
        frames = [message_frame(consumer_id, number, self.entries[number]) for number in range(self._next, end)]
        self._permits -= end - self._next
        self._next = end
        return frames


@pytest.mark.parametrize("prefetch", [{}, {"prefetch_limit_bytes": 1 << 20}], ids=["", "one by one"])
@pytest.mark.parametrize("last", UNDELIVERABLE)
def test_table_view_is_made_although_the_last_entry_can_not_be_delivered(last: str, prefetch: dict[str, int]) -> None:
    """Also where it comes again together with what was received before."""

    async def scenario(client):
        async with await client.create_table_view("t") as view:
            assert dict(view.items()) == {"k": b"value"}
            await view.refresh()

    run_against(TopicScript([VALUE, UNDELIVERABLE[last]]), scenario, **prefetch)


@pytest.mark.parametrize("last", UNDELIVERABLE)
def test_reader_that_asks_first_never_waits_for_an_entry_that_can_not_be_delivered(last: str) -> None:
    async def scenario(client):
        async with await client.create_reader("t", gc.MessageId.earliest) as reader:
            found = []
            while await reader.has_message_available():
                found.append((await reader.read_next()).data())
            assert found == [b"value"]

    run_against(TopicScript([VALUE, UNDELIVERABLE[last]]), scenario)


@pytest.mark.parametrize("first", UNDELIVERABLE)
def test_without_prefetching_the_message_behind_what_can_not_be_delivered_comes(first: str) -> None:
    async def scenario(client):
        consumer = await client.subscribe("t", "s", receiver_queue_size=0)
        assert (await consumer.receive(5000)).data() == b"value"

    run_against(TopicScript([UNDELIVERABLE[first], VALUE]), scenario)


class BrokerThatNamesTheMessageFirst(TopicScript):
    """Says what the last message is before it sends it, as Apache Pulsar's may."""

    def __init__(self, entries: list[bytes]) -> None:
        super().__init__(entries)
        self._consumer_id: int | None = None

    def __call__(self, command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.FLOW and self._consumer_id is None:
            self._consumer_id = command.flow.consumer_id
            self._permits += command.flow.messagePermits
            return []
        frames = super().__call__(command)
        if command.type == Type.GET_LAST_MESSAGE_ID and self._consumer_id is not None:
            frames += self.send(self._consumer_id)
        return frames


@pytest.mark.parametrize("entry", [VALUE, CHUNK])
def test_who_asks_does_not_wait_for_the_message_that_somebody_else_receives(entry: bytes) -> None:
    async def scenario(client):
        loop = asyncio.get_running_loop()
        async with await client.create_reader("t", gc.MessageId.earliest) as reader:
            receiving = asyncio.ensure_future(reader.read_next())
            await next_turn()
            begun = loop.time()
            await reader.has_message_available()
            assert loop.time() - begun < 1
            if entry is VALUE:
                assert (await receiving).data() == b"value"
            assert not await reader.has_message_available()
            receiving.cancel()

    run_against(BrokerThatNamesTheMessageFirst([entry]), scenario)


def test_others_that_wait_get_their_message_while_somebody_asks_whether_there_is_one() -> None:
    script = TopicScript([VALUE] * 3)

    async def scenario(client):
        async with await client.create_reader("t", gc.MessageId.earliest) as reader:
            asking = asyncio.ensure_future(reader.has_message_available())
            receiving = [asyncio.ensure_future(reader.read_next()) for _ in range(3)]
            await asyncio.gather(*receiving)
            await asking
            assert not await reader.has_message_available()

    run_against(script, scenario)
