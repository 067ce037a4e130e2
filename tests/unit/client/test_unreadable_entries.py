"""Entries that a consumer can not read: damaged bytes, broken batches, chunks that never come whole."""

from __future__ import annotations

import pytest

import geminga.client as gc
from geminga.client._consuming.acknowledgment import CHUNKED_MAX, Acknowledgment
from geminga.client.consumer_rules.chunk_assembly import LARGEST_HELD_MAX, PIECE_OVERHEAD_BYTES
from geminga.client.consumer_rules.discards import Discard
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.compression import ZLIB, compress
from support.worlds.scripted_broker import run_against
from support.worlds.scripted_consumer import ConsumerScript, Type, entry_bytes, singles, take
from support.worlds.scripted_coordinator import CUT

SHARED = gc.ConsumerType.Shared


def test_damaged_bytes_cost_the_connection_first_and_are_discarded_when_they_stay_damaged() -> None:
    damaged = bytearray(entry_bytes([b"damaged"]))
    damaged[-1] ^= 1
    script = ConsumerScript([bytes(damaged), entry_bytes([b"fine"])])

    async def scenario(client):
        consumer = await client.subscribe("t", "s")
        assert (await consumer.receive(5000)).data() == b"fine"
        await wait_ms(500)
        assert len(script.of(Type.SUBSCRIBE)) == 2
        ((_, ack),) = script.of(Type.ACK)
        assert ack.ack.validation_error == pb.CommandAck.ChecksumMismatch
        assert consumer.stats().entries_discarded == 2

    run_against(script, scenario)


def test_bytes_without_checksum_that_can_not_be_read_count_as_damaged_on_the_way() -> None:
    whole = entry_bytes([b"whole"])
    script = ConsumerScript([b"\x00\x00\x00\x03abc" + whole])

    def healing(command):
        answers = script(command)
        if command.type == Type.FLOW:
            script.entries = [whole]
        return answers

    async def scenario(client):
        consumer = await client.subscribe("t", "s")
        assert (await consumer.receive(5000)).data() == b"whole"
        assert script.of(Type.ACK) == []

    run_against(healing, scenario)


@pytest.mark.parametrize("why", [Discard.BROKEN, Discard.DECOMPRESSION])
def test_broken_batches_and_bad_compression_are_acknowledged_with_the_reason(why) -> None:
    if why is Discard.BROKEN:
        bad = entry_bytes([b"no batch"], num_messages_in_batch=3)
        expected = pb.CommandAck.BatchDeSerializeError
    else:
        bad = entry_bytes([b"no lz4"], compression=pb.LZ4, uncompressed_size=100)
        expected = pb.CommandAck.DecompressionError
    script = ConsumerScript([bad, entry_bytes([b"fine"])])

    async def scenario(client):
        consumer = await client.subscribe("t", "s")
        assert (await consumer.receive(5000)).data() == b"fine"
        await wait_ms(50)
        ((_, ack),) = script.of(Type.ACK)
        assert ack.ack.validation_error == expected

    run_against(script, scenario)


@pytest.mark.parametrize("claimed", [-3, 0, 3, 1 << 30])
@pytest.mark.parametrize("index_acks", [True, False])
def test_a_batch_of_an_impossible_number_of_messages_keeps_nobody_up(claimed: int, index_acks: bool) -> None:
    """Brokers of Apache's take any number."""
    script = ConsumerScript([entry_bytes([b"no batch"], num_messages_in_batch=claimed), *singles(1)])

    async def scenario(client):
        consumer = await client.subscribe("t", "s", batch_index_ack_enabled=index_acks)
        assert (await consumer.receive(5000)).data() == b"0"
        await wait_ms(500)
        assert script.acked() == [0]
        assert len(script.of(Type.SUBSCRIBE)) == 1

    run_against(script, scenario)


def parts_of(uuid: str, *parts: int) -> list[bytes]:
    """Entries of a message of three chunks."""
    fields = {"uuid": uuid, "num_chunks_from_msg": 3, "total_chunk_msg_size": 9}
    return [entry_bytes([b"%s%dx" % (uuid.encode(), part)], chunk_id=part, **fields) for part in parts]


@pytest.mark.parametrize(
    ("parts", "again"),
    [
        pytest.param((0, 1, 1, 2), [2], id="one in the middle"),
        pytest.param((0, 1, 0, 1, 2), [0, 1], id="from the first on"),
        pytest.param((0, 1, 2, 2), [3], id="the last"),
        pytest.param((0, 1, 2, 1, 2), [3, 4], id="from the middle on, after it was whole"),
    ],
)
def test_chunks_that_a_producer_sent_again_after_a_loss_keep_no_message_away_and_bring_none_again(
    parts: tuple[int, ...], again: list[int]
) -> None:
    """A connection may be lost between a chunk and its receipt: then it is stored twice."""
    script = ConsumerScript([*parts_of("m", *parts), *singles(1)])

    async def scenario(client):
        consumer = await client.subscribe(
            "t", "s", negative_ack_redelivery_delay_ms=1000, expire_time_of_incomplete_chunked_message_ms=0
        )
        whole, single = await take(consumer, 2)
        assert (whole.data(), single.data()) == (b"m0xm1xm2x", b"0")
        await wait_ms(5000)
        assert script.acked() == again
        assert not script.of(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES)
        await consumer.acknowledge(whole)
        await wait_ms(500)
        assert sorted(script.acked()) == list(range(len(parts)))

    run_against(script, scenario)


@pytest.mark.parametrize("kind", [SHARED, gc.ConsumerType.Exclusive])
def test_all_chunks_of_a_message_are_acknowledged_though_its_connection_was_lost_since_it_came(kind) -> None:
    scripted = ConsumerScript(parts_of("m", 0, 1, 2))

    def script(command):
        # Another consumer has them by now, or they are on their way.
        scripted.entries = [] if scripted.of(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES) else scripted.entries
        answers = scripted(command)
        return [CUT] if command.type == Type.REDELIVER_UNACKNOWLEDGED_MESSAGES else answers

    async def scenario(client):
        consumer = await client.subscribe("t", "s", consumer_type=kind)
        message = await consumer.receive(5000)
        await consumer.redeliver_unacknowledged_messages()
        await wait_ms(1000)
        assert len(scripted.of(Type.SUBSCRIBE)) == 2
        await consumer.acknowledge(message)
        await wait_ms(500)
        assert sorted(scripted.acked()) == [0, 1, 2]

    run_against(script, scenario)


def test_chunks_of_messages_that_are_never_acknowledged_are_remembered_of_few() -> None:
    acks = Acknowledgment.__new__(Acknowledgment)
    acks._chunked = {}
    for number in range(2 * CHUNKED_MAX):
        acks.chunked((1, number), [(1, number)])
    assert list(acks._chunked) == [(1, number) for number in range(CHUNKED_MAX, 2 * CHUNKED_MAX)]


def test_incomplete_chunks_give_way_and_are_asked_for_again_or_acknowledged() -> None:
    def chunk(uuid, part, of=2):
        return entry_bytes([b"xx"], uuid=uuid, chunk_id=part, num_chunks_from_msg=of, total_chunk_msg_size=2 * of)

    for auto_ack in (True, False):
        script = ConsumerScript([chunk("a", 0), chunk("b", 0), chunk("b", 1), chunk("c", 1)])

        async def scenario(client, auto_ack=auto_ack, script=script):
            consumer = await client.subscribe(
                "t",
                "s",
                consumer_type=SHARED,
                max_pending_chunked_message=1,
                auto_ack_oldest_chunked_message_on_queue_full=auto_ack,
                negative_ack_redelivery_delay_ms=100,
                expire_time_of_incomplete_chunked_message_ms=0,
            )
            message = await consumer.receive(1000)
            assert message.data() == b"xxxx"
            assert message.message_id().entry_id() == 2
            first = message.message_id().first_chunk_message_id()
            assert first is not None
            assert first.entry_id() == 1
            await consumer.acknowledge(message)
            await wait_ms(500)
            redelivered = [
                one.entryId
                for _, command in script.of(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES)
                for one in command.redeliverUnacknowledgedMessages.message_ids
            ]
            assert sorted(script.acked()) == ([0, 1, 2, 3] if auto_ack else [1, 2])
            assert redelivered == ([] if auto_ack else [0, 3])

        run_against(script, scenario)


def redelivered(script: ConsumerScript) -> list[int]:
    """Entry ids of all that was asked for again, in order."""
    return [
        one.entryId
        for _, command in script.of(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES)
        for one in command.redeliverUnacknowledgedMessages.message_ids
    ]


def test_of_an_old_message_that_gave_way_to_others_nothing_is_acknowledged() -> None:
    """It is older than parts are waited for, as all of a backlog may be, and whole at the broker."""
    entries = [*parts_of("a", 0, 1), *parts_of("b", 0), *parts_of("a", 2), *parts_of("b", 1, 2), *parts_of("c", 1)]
    script = ConsumerScript(entries)

    async def scenario(client):
        consumer = await client.subscribe(
            "t",
            "s",
            consumer_type=SHARED,
            max_pending_chunked_message=1,
            negative_ack_redelivery_delay_ms=100,
            expire_time_of_incomplete_chunked_message_ms=2000,
        )
        await consumer.acknowledge(await consumer.receive(1000))
        await wait_ms(500)
        assert redelivered(script) == [0, 1, 3]
        assert sorted(script.acked()) == [2, 4, 5, 6], "the message, and the part whose beginning is gone"

    run_against(script, scenario)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_chunked_message_beyond_the_limit_stays_in_its_topic_and_is_named(is_compressed: bool, caplog) -> None:
    payload = bytes(3000)
    packed = compress(ZLIB, payload) if is_compressed else payload
    fields = {"compression": pb.ZLIB, "uncompressed_size": len(payload)} if is_compressed else {}
    half = len(packed) // 2
    parts = [
        entry_bytes(
            [part], uuid="m", chunk_id=number, num_chunks_from_msg=2, total_chunk_msg_size=len(packed), **fields
        )
        for number, part in enumerate((packed[:half], packed[half:]))
    ]
    script = ConsumerScript([*parts, *singles(1)])

    async def scenario(client, limit: int, expected: list[bytes]) -> None:
        consumer = await client.subscribe("t", "s", chunked_message_bytes_max=limit)
        for one in expected:
            assert (await consumer.receive(1000)).data() == one
        await wait_ms(500)
        assert script.acked() == []

    run_against(script, lambda client: scenario(client, 2999, [b"0"]))
    text = "t: entry 1:1 is of a message too large to put together (chunked_message_bytes_max=2999), and stays"
    assert text in caplog.text
    script = ConsumerScript([*parts, *singles(1)])
    run_against(script, lambda client: scenario(client, 3000, [payload, b"0"]))


def test_parts_of_many_messages_have_a_bound_in_bytes_beside_that_in_messages(caplog) -> None:
    largest = 1000
    script = ConsumerScript([parts_of(uuid, 0)[0] for uuid in (f"m{number}" for number in range(40))])

    async def scenario(client):
        consumer = await client.subscribe(
            "t",
            "s",
            consumer_type=SHARED,
            max_pending_chunked_message=0,
            chunked_message_bytes_max=largest,
            negative_ack_redelivery_delay_ms=100,
        )
        await wait_ms(500)
        kept = 40 - len(redelivered(script))
        assert kept * PIECE_OVERHEAD_BYTES <= LARGEST_HELD_MAX * largest < (kept + 1) * (PIECE_OVERHEAD_BYTES + 5)
        assert redelivered(script) == list(range(40 - kept)), "the oldest"
        assert script.acked() == []
        await consumer.close()

    run_against(script, scenario)
    assert "a message in pieces gives way to others: beyond max_pending_chunked_message=0, or 4000 bytes" in caplog.text


def test_parts_of_a_message_that_never_comes_whole_are_acknowledged_in_time() -> None:
    part = {"num_chunks_from_msg": 3, "total_chunk_msg_size": 6}
    script = ConsumerScript([entry_bytes([b"xx"], uuid="a", chunk_id=number, **part) for number in (0, 1)])

    async def scenario(client):
        consumer = await client.subscribe("t", "s", expire_time_of_incomplete_chunked_message_ms=2000)
        await wait_ms(1500)
        assert script.acked() == []
        await wait_ms(1500)
        assert script.acked() == [0, 1]
        await consumer.close()

    run_against(script, scenario)


def test_time_in_which_no_part_could_come_does_not_count() -> None:
    """Of a message that is whole at the broker nothing is acknowledged: what was sent waits for the application, which
    then pauses; the connection is gone; then the rest comes."""
    parts = [
        entry_bytes([b"xx"], uuid="a", chunk_id=number, num_chunks_from_msg=2, total_chunk_msg_size=4)
        for number in (0, 1)
    ]
    script = ConsumerScript([parts[0], *singles(1)])
    gone: list[bool] = []

    def dying(command):
        return [] if gone else script(command)

    async def scenario(client):
        consumer = await client.subscribe("t", "s", expire_time_of_incomplete_chunked_message_ms=2000)
        await wait_ms(9000)
        await consumer.acknowledge(await consumer.receive())
        consumer.pause()
        await wait_ms(9000)
        consumer.resume()
        await wait_ms(500)
        gone.append(True)
        for connection in list(client.pool._connections.values()):
            connection.close()
        await wait_ms(9000)
        assert script.acked() == [1]
        script.entries = parts
        gone.clear()
        assert (await consumer.receive()).data() == b"xxxx"
        await consumer.close()

    run_against(dying, scenario)
