"""Records that Apache's broker writes for transactions, as its bookie has them: read, and encoded to the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import geminga.client as gc
from geminga.broker.transactions.snapshot_records import (
    INDEXES_SCHEMA,
    SEGMENT_SCHEMA,
    SNAPSHOT_SCHEMA,
    decode_indexes,
    decode_segment,
    decode_snapshot,
    encode_indexes,
    encode_segment,
    encode_snapshot,
    parse_schema,
)
from geminga.model.position import Position
from geminga.model.txn_id import TxnId, TxnStatus
from geminga.transaction.core.buffer import TransactionBufferState
from geminga.transaction.core.segments import whole
from geminga.transaction.ports import BufferSnapshot
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.markers import ABORT, COMMIT, transaction_marker, transaction_of
from geminga.wire.pulsar.metadata import split_entry
from geminga.wire.pulsar.transaction_log import (
    BATCH_MAGIC,
    AckOp,
    LogOp,
    decode_pending_ack_records,
    decode_transaction_records,
    encode_pending_ack_record,
    encode_pending_ack_records,
    encode_transaction_record,
    encode_transaction_records,
)
from support.house.waiting import until
from support.stories.client_stories import drain, publish, run
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

FROM, TO = "records-from", "records-to"
#: Aborted transactions in a segment: Pulsar counts bytes, three for each, and eight and the topic's name besides.
IN_SEGMENT: Final = 4
COMMON: Final = {
    "transactionCoordinatorEnabled": "true",
    "transactionBufferSnapshotMaxTransactionCount": "3",
    "transactionBufferSnapshotMinTimeInMillis": "100",
}
#: What is batched waits so long for more.
BATCH_MS: Final = 50
FORMS: Final = {
    "one by one": COMMON,
    "in batches and segments": {
        **COMMON,
        "transactionLogBatchedWriteEnabled": "true",
        "transactionLogBatchedWriteMaxDelayInMillis": str(BATCH_MS),
        "transactionPendingAckBatchedWriteEnabled": "true",
        "transactionPendingAckBatchedWriteMaxDelayInMillis": str(BATCH_MS),
        "transactionBufferSegmentedSnapshotEnabled": "true",
        "transactionBufferSnapshotSegmentSize": str(8 + len(f"persistent://public/default/{TO}") + 3 * IN_SEGMENT),
    },
}
#: Transactions, of which every third is committed; those at the same time, and then one after the other.
TOGETHER, ALONE = 24, 10
#: Batched messages, acknowledged in part; then as many that are not.
MESSAGES: Final = 30
SNAPSHOTS: Final = "__transaction_buffer_snapshot"


class Records(NamedTuple):
    """What a run left."""

    is_batched: bool
    log: list[bytes]
    acks: list[bytes]
    #: Of topics, by local name.
    topics: dict[str, list[tuple[Position, bytes]]]
    schemas: dict[str, str]
    stats: dict[str, Any]


async def transact(client: gc.Client) -> None:
    """Publish and acknowledge in transactions: individually, parts of batches, cumulatively; committed and aborted."""
    options: dict[str, Any] = {"initial_position": gc.InitialPosition.Earliest, "batch_index_ack_enabled": True}
    shared = await client.subscribe(FROM, "shared", consumer_type=gc.ConsumerType.Shared, **options)
    alone = await client.subscribe(FROM, "alone", **options)
    await publish(client, FROM, MESSAGES)
    await publish(client, FROM, MESSAGES, first=MESSAGES, batched=False)
    number: Callable[[gc.Message[bytes]], int] = lambda message: int(message.data()[1:])  # noqa: E731
    messages = sorted(await drain(shared, count=2 * MESSAGES), key=number)
    others = await drain(alone, count=2 * MESSAGES)
    producer = await client.create_producer(TO, batching_enabled=False)

    async def one(index: int) -> None:
        txn = await client.transaction(60)
        await producer.send(b"t%d" % index, txn=txn)
        await shared.acknowledge(messages[index], txn=txn)
        await (txn.abort() if index % 3 else txn.commit())

    await asyncio.gather(*[one(index) for index in range(TOGETHER)])
    for index in range(MESSAGES, MESSAGES + ALONE):
        await one(index)
    for last, commit in ((MESSAGES // 2, True), (MESSAGES + 5, False), (MESSAGES + 7, True)):
        txn = await client.transaction(60)
        await alone.acknowledge_cumulative(others[last], txn=txn)
        await (txn.commit() if commit else txn.abort())
    txn = await client.transaction(600)
    await producer.send(b"open", txn=txn)
    await shared.acknowledge(messages[-1], txn=txn)


@pytest.fixture(scope="module", params=FORMS)
def records(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, judge_is_apache: bool) -> Records:
    """Apache's broker, after it wrote them."""
    if not judge_is_apache:
        pytest.skip("Apache's broker writes the records")
    from tools.interop.apache_standalone import ApacheStandalone

    directory: Path = tmp_path_factory.mktemp("records")
    process = ApacheStandalone(directory / "data", log=directory / "broker.log", settings=FORMS[request.param])
    process.start()
    rest, is_batched = Rest(process.web_url), request.param != "one by one"

    async def main(client: gc.Client) -> Records:
        await transact(client)
        # While it is here: with it would go what it leaves open.
        return await asyncio.to_thread(read_records, rest, is_batched=is_batched)

    try:
        return run(process, main)
    finally:
        process.kill()


def read_records(rest: Rest, *, is_batched: bool) -> Records:
    """From the bookie, by the ledgers that the statistics tell."""
    from tools.interop.bookie_entries import bookie_entries

    port = int(rest.get("bookies/all").json["bookies"][0]["bookieId"].rpartition(":")[2])

    def entries(stats: dict[str, Any]) -> list[tuple[Position, bytes]]:
        ledgers = [each["ledgerId"] for each in stats["ledgers"]]
        return [(Position(id_, index), data) for id_ in ledgers for index, data in enumerate(bookie_entries(port, id_))]

    def log() -> list[bytes]:
        found = rest.get("/admin/v3/transactions/coordinatorInternalStats/0?metadata=true").json
        return [data for _, data in entries(found["transactionLogStats"]["managedLedgerInternalStats"])]

    def acks(subscription: str) -> list[bytes]:
        path = f"/admin/v3/transactions/pendingAckInternalStats/public/default/{FROM}/{subscription}?metadata=true"
        found = rest.get(path).json
        return [data for _, data in entries(found["pendingAckLogStats"]["managedLedgerInternalStats"])]

    def ends() -> int:
        records = [record for data in log() for record in decode_transaction_records(data)]
        return sum(record.new_status in (TxnStatus.COMMITTED, TxnStatus.ABORTED) for record in records)

    # An end is answered before the last of its records is written.
    until(lambda: ends() == TOGETHER + ALONE + 3, "all but the last are over")
    names = [TO, *(SNAPSHOTS + form for form in (("_segments", "_indexes") if is_batched else ("",)))]
    topics = {name: entries(rest.get(f"persistent/public/default/{name}/internalStats").json) for name in names}
    schemas = {name: rest.get(f"schemas/public/default/{name}/schema").json["data"] for name in names[1:]}
    stats = rest.get(f"/admin/v3/transactions/transactionBufferStats/public/default/{TO}").json
    return Records(is_batched, log(), acks("shared") + acks("alone"), topics, schemas, stats)


def judge_log(
    entries: list[bytes],
    decode: Callable[[bytes], list[Any]],
    one: Callable[[Any], bytes],
    several: Callable[[list[Any]], bytes],
    *,
    is_batched: bool,
) -> list[Any]:
    """All records, each of which is encoded to its bytes again."""
    found = [decode(data) for data in entries]
    for data, records in zip(entries, found, strict=True):
        assert data.startswith(BATCH_MAGIC) == is_batched
        assert (several(records) if is_batched else one(records[0])) == data
    assert (max(map(len, found)) > 1) == is_batched
    return [record for records in found for record in records]


def test_the_log_of_the_coordinator(records: Records) -> None:
    found = judge_log(
        records.log,
        decode_transaction_records,
        encode_transaction_record,
        encode_transaction_records,
        is_batched=records.is_batched,
    )
    assert {record.op for record in found} == set(LogOp)
    assert {record.new_status for record in found} == {None, *TxnStatus} - {TxnStatus.OPEN}
    assert sum(record.op is LogOp.NEW for record in found) == TOGETHER + ALONE + 4
    assert all(record.partitions for record in found if record.op is LogOp.ADD_PARTITION)
    assert all(record.subscriptions for record in found if record.op is LogOp.ADD_SUBSCRIPTION)


def test_the_logs_of_acknowledgments(records: Records) -> None:
    found = judge_log(
        records.acks,
        decode_pending_ack_records,
        encode_pending_ack_record,
        encode_pending_ack_records,
        is_batched=records.is_batched,
    )
    assert {(record.op, record.is_cumulative) for record in found} == {
        (op, is_cumulative) for op in AckOp for is_cumulative in (False, True)
    }
    parts = [bool(ack.words) for record in found for ack in record.acks]
    assert any(parts), "of batches, a part"
    assert not all(parts), "of others, the whole"


def told(records: Records) -> Iterator[tuple[Position, pb.MessageMetadata, TxnId, bytes]]:
    """The entries of the topic."""
    for position, data in records.topics[TO]:
        metadata, _ = split_entry(data)
        assert metadata is not None
        txn_id = transaction_of(metadata)
        assert txn_id is not None
        yield position, metadata, txn_id, data


def test_markers(records: Records) -> None:
    kinds = []
    for _, metadata, txn_id, data in told(records):
        if metadata.marker_type:
            kinds.append(metadata.marker_type)
            commit = metadata.marker_type == COMMIT
            assert transaction_marker(txn_id, commit=commit, now_ms=metadata.publish_time) == data
    assert set(kinds) == {COMMIT, ABORT}
    assert len(kinds) == TOGETHER + ALONE


def values(records: Records, name: str) -> dict[Position, bytes]:
    """Of messages that have one, the values."""
    found = {}
    for position, data in records.topics[name]:
        metadata, offset = split_entry(data)
        assert metadata is not None
        assert not metadata.HasField("num_messages_in_batch")
        found[position] = data[offset:]
    return found


def snapshots_of(records: Records) -> list[BufferSnapshot]:
    """All that were taken, each read and encoded again."""
    if not records.is_batched:
        single = [*values(records, SNAPSHOTS).values()]
        decoded = [decode_snapshot(data, parse_schema(SNAPSHOT_SCHEMA)) for data in single]
        assert [encode_snapshot(*each) for each in decoded] == single
        return [snapshot for _, snapshot in decoded]
    segments = values(records, f"{SNAPSHOTS}_segments")
    found = {at: decode_segment(data, parse_schema(SEGMENT_SCHEMA)) for at, data in segments.items()}
    assert {at: encode_segment(each) for at, each in found.items()} == segments
    assert {len(each.aborts) for each in found.values()} == {IN_SEGMENT}
    written = [*values(records, f"{SNAPSHOTS}_indexes").values()]
    indexes = [decode_indexes(data, parse_schema(INDEXES_SCHEMA)) for data in written]
    assert [encode_indexes(each) for each in indexes] == written
    assert max(len(each.segments) for each in indexes) > 1
    return [whole(each, found) for each in indexes]


def test_snapshots_tell_with_what_comes_after_them_what_the_topic_tells(records: Records) -> None:
    for name, schema in ((SNAPSHOTS, SNAPSHOT_SCHEMA), (f"{SNAPSHOTS}_segments", SEGMENT_SCHEMA)):
        assert records.schemas.get(name, schema.decode()) == schema.decode()
    assert records.schemas.get(f"{SNAPSHOTS}_indexes", INDEXES_SCHEMA.decode()) == INDEXES_SCHEMA.decode()

    def hidden(state: TransactionBufferState, behind: Position) -> list[Position]:
        for position, metadata, txn_id, _ in told(records):
            if position <= behind:
                continue
            if metadata.marker_type == COMMIT:
                state.committed(txn_id)
            elif metadata.marker_type == ABORT:
                state.was_aborted(txn_id, position)
            else:
                state.stored(txn_id, position)
        assert len(state.open) == 1
        return [
            position
            for position, metadata, txn_id, _ in told(records)
            if not metadata.marker_type and state.hides(txn_id, position)
        ]

    plain = TransactionBufferState()
    expected = hidden(plain, Position(-1, -1))
    assert len(expected) == len(plain.aborted) == records.stats["totalAbortedTransactions"]
    found = snapshots_of(records)
    assert any(snapshot.aborts for snapshot in found)
    for snapshot in found:
        state = TransactionBufferState()
        for txn_id, marker in snapshot.aborts:
            state.restored(txn_id, marker)
        assert hidden(state, snapshot.position) == expected
        assert state.aborted.keys() == plain.aborted.keys()
