"""PRODUCER, CLOSE_PRODUCER, and SENDs that the hot codec does not take."""

from __future__ import annotations

from typing import Final

from geminga.broker.access.core.actions import Anyone, Resource, TenantAdministration, TopicOperation, of_topic
from geminga.broker.connection.connection import Connection
from geminga.broker.core.dedup_source import cluster_of, is_replicator
from geminga.broker.core.producer_access import AccessMode
from geminga.broker.handlers.rows import Asks, CommandRow, SettledBy
from geminga.broker.handlers.services import CommandServices
from geminga.broker.topic.base import Topic
from geminga.broker.topic.ports import TakesTransactions
from geminga.broker.topic.producer import Producer, is_terminal
from geminga.broker.topic.publish import DUPLICATE, PublishBatch, Refusal
from geminga.model.errors import (
    GemingaError,
    NotAllowedError,
    PreconditionFailedError,
    TopicMovedError,
    UnavailableError,
)
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.metadata import in_transaction, texts_of
from geminga.wire.pulsar.numbers import command_refusal, send_refusal
from geminga.wire.pulsar.texts import said_refusal


def handle_producer(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """PRODUCER -> PRODUCER_SUCCESS, a second one once a waiting producer has access, or ERROR."""
    request = command.producer
    refusal = command_refusal("producer", "topic_epoch", request.topic_epoch) or said_refusal(
        "producer_name", request.producer_name, request.metadata
    )
    if refusal:
        connection.send_error(request.request_id, NotAllowedError(refusal))
        return
    existing = connection.members.producers.get(request.producer_id)
    if existing is not None:
        # As Pulsar: the client repeats itself after a timeout of its own.
        _send_success(connection, request.request_id, existing)
        return
    key = (int(pb.BaseCommand.PRODUCER), request.producer_id)
    if key in connection.members.requests or request.producer_id in connection.members.waiting_producers:
        connection.send_error(request.request_id, UnavailableError("Producer is already present on the connection"))
        return
    connection.members.requests[key] = request.request_id
    connection.run(_create_producer(services, connection, request), f"producer of {request.topic}")


async def _create_producer(services: CommandServices, connection: Connection, request: pb.CommandProducer) -> None:
    key = (int(pb.BaseCommand.PRODUCER), request.producer_id)
    producer: Producer | None = None
    # What becomes of one that waits for access, before it is known here that it does.
    heard: list[GemingaError | None] = []
    try:
        topic = await services.topics.get(TopicName.parse(request.topic), create=True)
        # Of a replicator each message is looked at: it copies what others encrypted, and can not say so.
        if topic.is_encryption_required and not request.encrypted and not is_replicator(request.producer_name):
            raise PreconditionFailedError(f"Encryption is required in {topic.name}")
        schema_version = await services.schemas.admit_producer(topic, request)
        await _create_initial_subscription(topic, request)
        producer = await _new_producer(services, topic, connection, request)
        producer.schema_version = schema_version
        producer.ready = heard.append
        is_ready = await topic.attendance.add(producer)
    except GemingaError as error:
        if connection.members.request_ended(key, request.request_id):
            if isinstance(error, TopicMovedError):
                moved = commands.topic_migrated(request.producer_id, error.url, error.url_tls, is_producer=True)
                connection.output.write(moved)
            connection.send_error(request.request_id, error)
        return
    producer.ready = None
    if not connection.members.request_ended(key, request.request_id):
        # The client closed it, perhaps to ask again, or is gone, while it was made.
        producer.is_closed = True
        topic.attendance.remove(producer)
        return
    refused = heard[0] if heard else None
    if refused is not None:
        connection.send_error(request.request_id, refused)
    elif is_ready or heard:
        _open(connection, request.request_id, producer)
    else:
        _wait(connection, request.request_id, producer)


def _open(connection: Connection, request_id: int, producer: Producer) -> None:
    if producer.is_closed:
        connection.send_error(request_id, UnavailableError("Producer was disconnected while it was created"))
        return
    connection.members.producers[producer.producer_id] = producer
    connection.members.producer_opened(producer.producer_id)
    _send_success(connection, request_id, producer)


def _wait(connection: Connection, request_id: int, producer: Producer) -> None:
    def ready(error: GemingaError | None) -> None:
        connection.members.waiting_producers.pop(producer.producer_id, None)
        if connection.is_closed:
            return
        if error is not None:
            connection.send_error(request_id, error)
        else:
            _open(connection, request_id, producer)

    producer.ready = ready
    connection.members.waiting_producers[producer.producer_id] = producer
    connection.output.write(
        commands.producer_success(
            request_id,
            producer.name,
            last_sequence_id=-1,
            schema_version=producer.schema_version,
            topic_epoch=None,
            is_ready=False,
        )
    )


async def _new_producer(
    services: CommandServices, topic: Topic, connection: Connection, request: pb.CommandProducer
) -> Producer:
    name = request.producer_name or await services.name_producer()
    if cluster_of(name) == services.config.cluster_name:
        raise NotAllowedError(
            f"{name} is a replicator of this cluster itself: the address of the cluster it copies to leads back here"
        )
    return Producer(
        topic,
        connection,
        producer_id=request.producer_id,
        name=name,
        epoch=request.epoch,
        # The broker's word on names it made itself; a client that comes back with one says so.
        is_user_provided_name=bool(request.producer_name) and request.user_provided_producer_name,
        is_name_new=not request.producer_name,
        access_mode=AccessMode(request.producer_access_mode),
        topic_epoch=request.topic_epoch if request.HasField("topic_epoch") else None,
        is_encrypted=request.encrypted,
        metadata=texts_of(request.metadata),
        connected_since_ms=services.clock.wall_ms(),
    )


async def _create_initial_subscription(topic: Topic, request: pb.CommandProducer) -> None:
    name = request.initial_subscription_name
    if not name or name in topic.subscriptions:
        return
    if not await topic.may_create_subscriptions():
        raise NotAllowedError(
            "Could not create the initial subscription due to the auto subscription creation is not allowed."
        )
    await topic.ensure_subscription(name, EARLIEST)


def _send_success(connection: Connection, request_id: int, producer: Producer) -> None:
    connection.output.write(
        commands.producer_success(
            request_id,
            producer.name,
            last_sequence_id=producer.publishing.last_sequence_id(producer.name),
            schema_version=producer.schema_version,
            topic_epoch=producer.topic_epoch,
            is_ready=True,
        )
    )


def handle_close_producer(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """CLOSE_PRODUCER -> SUCCESS, once everything it sent is answered."""
    request = command.close_producer
    producer = connection.members.producers.pop(request.producer_id, None)
    if producer is not None:
        producer.close(lambda: connection.send_success(request.request_id))
        return
    waiting = connection.members.waiting_producers.pop(request.producer_id, None)
    if waiting is not None:
        waiting.is_closed = True
        waiting.ready = None
        waiting.topic.attendance.remove(waiting)
    creation = connection.members.requests.pop((int(pb.BaseCommand.PRODUCER), request.producer_id), None)
    if creation is not None:
        connection.send_error(creation, UnavailableError("Closed producer before creation was complete"))
    # Also for one the broker closed at the same time: the client wants it gone, and it is.
    connection.members.producer_opened(request.producer_id)
    connection.send_success(request.request_id)


def _numbers_refused(request: pb.CommandSend) -> str:
    return (
        command_refusal("send", "sequence_id", request.sequence_id)
        or command_refusal("send", "highest_sequence_id", request.highest_sequence_id)
        or command_refusal("send", "num_messages", request.num_messages)
    )


def handle_send(connection: Connection, request: pb.CommandSend, payload: bytes) -> None:
    """A SEND with a message id of its own, or in an unusual form."""
    producer = connection.members.sending_producer(request.producer_id)
    if producer is None:
        return
    is_in_transaction = request.HasField("txnid_most_bits") or request.HasField("txnid_least_bits")
    refusal = send_refusal(payload, is_in_transaction, is_copier=producer.copies_from is not None)
    text = _numbers_refused(request)
    if refusal is not None or text:
        producer.reject(request.sequence_id, refusal or NotAllowedError(text))
        return
    highest = max(request.sequence_id, request.highest_sequence_id)
    batch = PublishBatch(
        producer,
        [payload],
        [(request.sequence_id, highest)],
        request.num_messages,
        chunks=int(request.is_chunk),
        markers=int(request.marker),
    )
    if is_in_transaction:
        batch.transaction = (request.txnid_most_bits, request.txnid_least_bits)
        publish_in_transaction(connection, producer, batch)
    else:
        producer.publish(batch)


def publish_in_transaction(connection: Connection, producer: Producer, batch: PublishBatch) -> None:
    """SENDs of one producer in one transaction, answered one by one."""
    transactions = producer.topic.transactions
    if transactions is None or batch.transaction is None:
        producer.refuse(batch, Refusal(NotAllowedError("Transactions are not enabled on this broker")))
        return
    txn_id = TxnId(*batch.transaction)
    named = in_transaction(batch.entries, txn_id)
    if named is None:
        producer.refuse(batch, Refusal(NotAllowedError(f"A message sent in transaction {txn_id} names another")))
        return
    batch.entries = named
    buffer = transactions.buffer
    if buffer is not None and buffer.is_ready_for(txn_id):
        _publish_if_taken(buffer, txn_id, producer, batch)
    else:
        # The first ones of the topic, or its coordinator is just being opened; what the client sent behind them waits.
        connection.run_in_turns(_publish_first(txn_id, producer, batch))


async def _publish_first(txn_id: TxnId, producer: Producer, batch: PublishBatch) -> None:
    try:
        buffer = await producer.topic.use_transactions()
        await buffer.get_ready_for(txn_id)
    except GemingaError as error:
        _refuse(batch, producer, error)
        return
    _publish_if_taken(buffer, txn_id, producer, batch)


def _publish_if_taken(buffer: TakesTransactions, txn_id: TxnId, producer: Producer, batch: PublishBatch) -> None:
    try:
        buffer.check_may_publish(txn_id)
    except GemingaError as error:
        _refuse(batch, producer, error)
        return
    producer.publish(batch)


def _refuse(batch: PublishBatch, producer: Producer, error: GemingaError) -> None:
    """Not taken; but what came before the end, and of which only the receipt was lost, is there."""
    for index in range(batch.count):
        one = batch if batch.count == 1 else batch.cut(index, index + 1, 0)
        producer.refuse(one, DUPLICATE if producer.publishing.is_stored(one) else Refusal(error))
    if not is_terminal(error):
        # It comes again: what the client has sent behind it may not be stored before.
        producer.disconnect()


def _published_to(connection: Connection, command: pb.BaseCommand) -> Resource:
    return of_topic(TopicName.parse(command.producer.topic))


def _initial_subscription(connection: Connection, command: pb.BaseCommand) -> Resource | None:
    request = command.producer
    name = request.initial_subscription_name
    return of_topic(TopicName.parse(request.topic), name) if name else None


def _replicated(connection: Connection, command: pb.BaseCommand) -> Resource | None:
    """Where a replicator publishes, or who calls itself one: what it says of source positions is believed for good."""
    request = command.producer
    return of_topic(TopicName.parse(request.topic)) if is_replicator(request.producer_name) else None


def _refuse_producer(connection: Connection, command: pb.BaseCommand, error: GemingaError) -> None:
    connection.send_error(command.producer.request_id, error)


ROWS: Final = (
    CommandRow(
        pb.BaseCommand.PRODUCER,
        handle_producer,
        Asks(
            TopicOperation.PRODUCE,
            _published_to,
            _refuse_producer,
            also=(
                (TopicOperation.SUBSCRIBE, _initial_subscription),
                (TenantAdministration.REPLICATE, _replicated),
            ),
        ),
    ),
    CommandRow(pb.BaseCommand.SEND, None, SettledBy(pb.BaseCommand.PRODUCER)),
    CommandRow(pb.BaseCommand.CLOSE_PRODUCER, handle_close_producer, Anyone("it ends what the connection began")),
)
