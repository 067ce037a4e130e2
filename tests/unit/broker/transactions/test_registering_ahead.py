"""Messages right behind the registration of their topic, before its answer: taken, refused, and what a crash leaves."""

from __future__ import annotations

from geminga.model.topic_name import TopicName
from geminga.model.txn_id import Standing, TxnId
from geminga.runtime import wait_ms
from geminga.transaction.ports import RecordLog
from geminga.transaction.strays import AGAIN_MAX_MS
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import encode_command
from support.clusters.transacting import Transacting, producing, transacting
from support.worlds.broker_world import ENDPOINTS, TOPIC, BrokerWorld, Client, Type, run_with_broker, send_frame

NAME = TopicName.parse(TOPIC)


def registration(writer: Transacting, txn_id: TxnId, topic: str = TOPIC) -> bytes:
    request = pb.CommandAddPartitionToTxn(
        request_id=writer.client.next_request_id(),
        partitions=[topic],
        txnid_most_bits=txn_id.coordinator,
        txnid_least_bits=txn_id.number,
    )
    return encode_command(pb.BaseCommand(type=Type.ADD_PARTITION_TO_TXN, addPartitionToTxn=request))


def message(sequence_id: int, txn_id: TxnId) -> bytes:
    ids = {"txnid_most_bits": txn_id.coordinator, "txnid_least_bits": txn_id.number}
    return send_frame(sequence_id, b"%d" % sequence_id, **ids, metadata=ids)


async def answers(writer: Transacting, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        await writer.client.wait_for_news()
        command, _ = writer.client.received.popleft()
        found.append(command.type)
    return sorted(found)


def test_one_read_brings_a_registration_and_its_messages_also_the_first_of_a_topic() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, reader = await transacting(world), await transacting(world)
        assert (await Client(world.broker).connect()).feature_flags.geminga_registers_ahead
        await writer.client.create_producer()
        await reader.client.subscribe()
        sequence_ids = iter(range(100))
        for turn in range(3):
            txn_id = await writer.begin()
            sent = [message(next(sequence_ids), txn_id) for _ in range(3)]
            before = world.bookie.add_calls
            writer.client.send_bytes(registration(writer, txn_id) + b"".join(sent))
            receipts = [Type.SEND_RECEIPT] * 3
            assert await answers(writer, 4) == sorted([*receipts, Type.ADD_PARTITION_TO_TXN_RESPONSE])
            if turn:
                assert world.bookie.add_calls == before + 2, "both are stored in one wait"
            assert await reader.read() == []
            await writer.end(txn_id, commit=turn != 1)
            found = await reader.read()
            assert found == ([] if turn == 1 else [b"%d" % each for each in range(3 * turn, 3 * turn + 3)])

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_behind_a_registration_that_is_refused_messages_are_refused_and_plain_ones_are_not() -> None:
    async def scenario(world: BrokerWorld) -> None:
        writer, reader = await transacting(world), await transacting(world)
        await writer.client.create_producer()
        await reader.client.subscribe()
        over, timed_out = await writer.begin(), await writer.begin(timeout_ms=10)
        await writer.end(over, commit=True)
        await wait_ms(100)
        never = TxnId(0, 1 << 40)
        elsewhere = await writer.begin()
        wrong = [
            registration(writer, over),
            registration(writer, timed_out),
            registration(writer, never),
            registration(writer, elsewhere, "persistent://public/default/other"),
        ]
        for sequence_id, (asked, txn_id) in enumerate(
            zip(wrong, [over, timed_out, never, elsewhere], strict=True), start=1
        ):
            writer.client.send_bytes(
                asked + message(10 * sequence_id, txn_id) + send_frame(10 * sequence_id + 1, b"plain")
            )
            found = await answers(writer, 3)
            assert found == sorted([Type.ADD_PARTITION_TO_TXN_RESPONSE, Type.SEND_ERROR, Type.SEND_RECEIPT])
        assert await reader.read() == [b"plain"] * 4

    run_with_broker(scenario, transaction_coordinator_enabled=True)


class LosingLog:
    """A coordinator's log whose last records a crash loses: nobody is answered."""

    def __init__(self, log: RecordLog) -> None:
        self._log = log
        self.lost: list[bytes] = []

    def append_now(self, data: bytes, done: object) -> None:
        self.lost.append(data)

    append_later = append_now

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


def test_what_was_stored_for_a_registration_that_a_crash_lost_is_given_up() -> None:
    """The log of the coordinator loses what the topic keeps: both were written in the same turn."""

    async def scenario(world: BrokerWorld) -> None:
        writer = await producing(world)
        first = await writer.begin(timeout_ms=5_000)
        await writer.add_partition(first, "persistent://public/default/other")  # its beginning is stored
        coordinator = await world.broker.transactions.coordinators.find(0)
        coordinator._log = losing = LosingLog(coordinator._log)
        second = await writer.begin(timeout_ms=5_000)
        sent = (registration(writer, each) + message(each.number, each) for each in (first, second))
        writer.client.send_bytes(b"".join(sent))
        assert await answers(writer, 2) == [Type.SEND_RECEIPT] * 2
        assert len(losing.lost) == 3
        other = BrokerWorld(world.runtime, world.config, world.ledger_config, store=world.metadata, bookie=world.bookie)
        await other.broker.start(ENDPOINTS)
        reader, plain = await transacting(other), await transacting(other)
        await reader.client.subscribe()
        await plain.client.create_producer()
        await plain.publish(b"plain")
        registrations = other.broker.transactions.registrations
        assert await registrations.find_standing(first, TOPIC) is Standing.UNTOLD
        assert await registrations.find_standing(second, TOPIC) is Standing.OVER
        assert await reader.read() == [], "the first is open"
        # A client that is still there would register again, and commit. This one is not: it times out, and is over.
        await wait_ms(5_000 + AGAIN_MAX_MS)
        assert await reader.read() == [b"plain"]
        await other.stop()

    run_with_broker(scenario, transaction_coordinator_enabled=True)
