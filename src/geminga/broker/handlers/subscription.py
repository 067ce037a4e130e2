"""Commands of consumers: SUBSCRIBE, FLOW, ACK, REDELIVER, SEEK, UNSUBSCRIBE, CLOSE_CONSUMER and questions.

Their rows are in :mod:`geminga.broker.handlers.consumer`; FLOW and ACK also have entries that take what the hot codecs
decoded.
A command for a consumer that is gone is dropped or answered with an error, never fatal: the client may not know yet.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, cast

from geminga.broker.connection.back_pressure import LONG_COMMAND_BYTES
from geminga.broker.core.ack_properties import NO_PROPERTIES, ack_properties
from geminga.broker.handlers import long_commands
from geminga.broker.handlers.long_commands import CommandConnection, Topics
from geminga.broker.subscription import acknowledgment, seek
from geminga.broker.subscription.consumer import Consumer
from geminga.broker.subscription.last_message_id import last_message_id
from geminga.broker.subscription.messages import message_id_data, position_from
from geminga.broker.subscription.stats import consumer_stats_response
from geminga.broker.subscription.subscription import Subscription
from geminga.model import TopicName
from geminga.model.errors import (
    ConsumerNotFoundError,
    GemingaError,
    NotAllowedError,
    NotFoundError,
    PreconditionFailedError,
    TopicMovedError,
    UnavailableError,
)
from geminga.runtime import Contained, again
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands, hot
from geminga.wire.pulsar.commands import decode_command
from geminga.wire.pulsar.numbers import FLOW_PERMITS_MAX, LEDGERS_TOLD_MAX
from geminga.wire.pulsar.texts import said_refusal
from geminga.wire.pulsar.varint import signed64


def handle_subscribe(topics: Topics, connection: CommandConnection, command: pb.BaseCommand) -> None:
    """SUBSCRIBE -> SUCCESS or ERROR."""
    request = command.subscribe
    key = (pb.BaseCommand.SUBSCRIBE, request.consumer_id)
    if request.consumer_id in connection.members.consumers:
        # As Pulsar: the client repeats itself after a timeout of its own.
        connection.send_success(request.request_id)
        return
    if key in connection.members.requests:
        connection.send_error(request.request_id, UnavailableError("Consumer is already present on the connection"))
        return
    if not request.subscription:
        connection.send_error(request.request_id, NotAllowedError("Empty subscription name"))
        return
    refusal = said_refusal("consumer_name", request.consumer_name, request.metadata)
    if refusal:
        connection.send_error(request.request_id, NotAllowedError(refusal))
        return
    connection.members.requests[key] = request.request_id
    connection.run(_subscribe(topics, connection, request), f"subscribe {request.topic} {request.subscription}")


async def _subscribe(topics: Topics, connection: CommandConnection, request: pb.CommandSubscribe) -> None:
    key = (pb.BaseCommand.SUBSCRIBE, request.consumer_id)
    try:
        topic = await topics.get(TopicName.parse(request.topic), create=request.force_topic_creation)
        consumer = await topic.subscribe(connection, request)
    except GemingaError as error:
        if connection.members.request_ended(key, request.request_id):
            if isinstance(error, TopicMovedError):
                moved = commands.topic_migrated(request.consumer_id, error.url, error.url_tls, is_producer=False)
                connection.output.write_soon(moved)
            connection.send_error(request.request_id, error)
        return
    if not connection.members.request_ended(key, request.request_id):
        consumer.close()  # closed while it was made, perhaps to be made again
        return
    connection.send_success(request.request_id)
    consumer.subscription.joined()


def handle_flow(connection: CommandConnection, consumer_id: int, permits: int) -> None:
    """FLOW, decoded by the hot codec."""
    consumer = connection.members.consumers.get(consumer_id)
    if consumer is not None and 0 < permits <= FLOW_PERMITS_MAX:
        consumer.flow(permits)


def handle_flow_command(connection: CommandConnection, command: pb.BaseCommand) -> None:
    """FLOW that the hot codec did not take."""
    handle_flow(connection, command.flow.consumer_id, command.flow.messagePermits)


def handle_ack_bytes(connection: CommandConnection, raw: bytes, told: acknowledgment.AckDone | None = None) -> None:
    """ACK as it came: the hot codec reads the usual ones. ``told``: hears what the client is answered, if it asked."""
    if len(raw) > LONG_COMMAND_BYTES:
        respond = partial(_respond_to_ack, connection, told)
        connection.run_in_turns(long_commands.acknowledge_long(connection, raw, respond))
        return
    fields = hot.decode_ack(raw)
    if fields is None:
        handle_ack_command(connection, decode_command(raw), told)
        return
    _acknowledge(connection, told, fields.consumer_id, fields.ids, fields.is_cumulative, fields.request_id)


def handle_ack_command(
    connection: CommandConnection, command: pb.BaseCommand, told: acknowledgment.AckDone | None = None
) -> None:
    """ACK with something unusual: a transaction, properties or a validation error (which changes nothing)."""
    ack = command.ack
    request_id = ack.request_id if ack.HasField("request_id") else None
    if ack.HasField("txnid_most_bits") or ack.HasField("txnid_least_bits"):
        connection.run(_acknowledge_in_transaction(connection, ack, told), f"ack in a transaction by {connection.peer}")
        return
    ids = long_commands.ids_of(ack)
    is_cumulative = ack.ack_type == pb.CommandAck.Cumulative
    try:
        properties = ack_properties((pair.key, pair.value) for pair in ack.properties)
    except NotAllowedError as error:
        if request_id is not None:
            _respond_to_ack(connection, told, ack.consumer_id, request_id, error)
        return
    _acknowledge(connection, told, ack.consumer_id, ids, is_cumulative, request_id, properties)


async def _acknowledge_in_transaction(
    connection: CommandConnection, ack: pb.CommandAck, told: acknowledgment.AckDone | None
) -> None:
    error: GemingaError | None = None
    try:
        await long_commands.acknowledge_in_transaction(connection, ack)
    except GemingaError as raised:
        error = again(raised)
    if not ack.HasField("request_id"):
        return
    if not connection.is_closed:
        _respond_to_ack(connection, told, ack.consumer_id, ack.request_id, error)
    elif told is not None:
        told(error)


def _acknowledge(
    connection: CommandConnection,
    told: acknowledgment.AckDone | None,
    consumer_id: int,
    ids: Sequence[hot.AckedId],
    is_cumulative: bool,
    request_id: int | None,
    properties: Mapping[str, int] = NO_PROPERTIES,
) -> None:
    consumer = connection.members.consumers.get(consumer_id)
    if consumer is None:
        if request_id is not None:
            gone = ConsumerNotFoundError(f"no consumer {consumer_id}")
            _respond_to_ack(connection, told, consumer_id, request_id, gone)
        return
    done: acknowledgment.AckDone | None = None
    if request_id is not None:

        def done(error: GemingaError | None) -> None:
            # Storage tells: what fails here is not its failure.
            with Contained(connection, "the answer to an ACK", is_last=True):
                _respond_to_ack(connection, told, consumer_id, request_id, error)

    subscription = consumer.subscription
    if not isinstance(subscription, Subscription):
        consumer.messages_acked += len(ids)
        if done is not None:
            done(None)
        return
    if acknowledgment.needs_turns(ids):
        work = long_commands.acknowledge(consumer, ids, is_cumulative=is_cumulative, done=done, properties=properties)
        connection.run_in_turns(work)
        return
    acknowledgment.acknowledge(
        subscription, consumer, ids, is_cumulative=is_cumulative, done=done, properties=properties
    )


def _respond_to_ack(
    connection: CommandConnection,
    told: acknowledgment.AckDone | None,
    consumer_id: int,
    request_id: int,
    error: GemingaError | None,
) -> None:
    if told is not None:
        told(error)
    response = pb.CommandAckResponse(consumer_id=consumer_id, request_id=request_id)
    if error is not None:
        code: int = error.server_error  # the model's enum has the numbers of the wire's
        response.error = cast("pb.ServerError", code)
        response.message = connection.told(error)
    answer = partial(connection.send_command, pb.BaseCommand(type=pb.BaseCommand.ACK_RESPONSE, ackResponse=response))
    if isinstance(error, ConsumerNotFoundError):
        connection.members.answer_gone(consumer_id, answer)
    else:
        answer()


def handle_redeliver(connection: CommandConnection, command: pb.BaseCommand) -> None:
    """REDELIVER_UNACKNOWLEDGED_MESSAGES: those named, or all."""
    long_commands.redeliver(connection, command.redeliverUnacknowledgedMessages)


def handle_redeliver_bytes(connection: CommandConnection, raw: bytes) -> None:
    """REDELIVER_UNACKNOWLEDGED_MESSAGES as it came, with very many message ids."""
    connection.run_in_turns(long_commands.redeliver_long(connection, raw))


def _consumer_of(
    connection: CommandConnection, request: pb.CommandSeek | pb.CommandUnsubscribe, missing: GemingaError
) -> Consumer | None:
    """The one that is named; None: there is none, which is answered with ``missing``."""
    consumer = connection.members.consumers.get(request.consumer_id)
    if consumer is None:
        connection.members.answer_gone(request.consumer_id, partial(connection.send_error, request.request_id, missing))
    return consumer


def handle_seek(connection: CommandConnection, command: pb.BaseCommand) -> None:
    """SEEK by id or by publish time -> SUCCESS; where messages are stored, after the consumers were disconnected."""
    request = command.seek
    consumer = _consumer_of(connection, request, ConsumerNotFoundError(f"no consumer {request.consumer_id}"))
    if consumer is None:
        return
    subscription = consumer.subscription
    if not request.HasField("message_id") and not request.HasField("message_publish_time"):
        refusal = PreconditionFailedError("Message id and message publish time were not present")
        connection.send_error(request.request_id, refusal)
        return
    if not isinstance(subscription, Subscription):
        # As in Pulsar: of a non-persistent topic, what is published next is all there is behind any place.
        connection.send_success(request.request_id)
        return
    if request.HasField("message_id"):
        ack_set = tuple(request.message_id.ack_set) or None
        work = seek.seek(subscription, position_from(request.message_id), ack_set)
    else:
        # A Java ``long``: Go's time without a value is negative, and before every message.
        work = seek.seek_to_time(subscription, signed64(request.message_publish_time))
    _answer_after(connection, request.request_id, work, f"seek {subscription.name}")


def handle_unsubscribe(connection: CommandConnection, command: pb.BaseCommand) -> None:
    """UNSUBSCRIBE: the only consumer deletes the subscription; with ``force``, any consumer does."""
    request = command.unsubscribe
    consumer = _consumer_of(connection, request, NotFoundError(f"Consumer not found {request.consumer_id}"))
    if consumer is None:
        return
    _answer_after(
        connection,
        request.request_id,
        _unsubscribe(consumer, is_forced=request.force),
        f"unsubscribe {consumer.subscription.name}",
    )


async def _unsubscribe(consumer: Consumer, *, is_forced: bool) -> None:
    subscription = consumer.subscription
    if len(subscription.consumers) > 1 and not is_forced:
        raise PreconditionFailedError("Unconnected or shared consumer attempting to unsubscribe")
    # Without CLOSE_CONSUMER: this client asked for the end and would subscribe again.
    consumer.close()
    try:
        await subscription.delete(force=True)
    except GemingaError as failure:
        # The subscription stays, and the client still counts on its consumer: it must subscribe again.
        consumer.notify_closed()
        raise failure


def handle_close_consumer(connection: CommandConnection, command: pb.BaseCommand) -> None:
    """CLOSE_CONSUMER -> SUCCESS; also for one that is just being made, or gone already."""
    request = command.close_consumer
    consumer = connection.members.consumers.get(request.consumer_id)
    if consumer is not None:
        consumer.close()
    elif connection.members.requests.pop((pb.BaseCommand.SUBSCRIBE, request.consumer_id), None) is None:
        # Closed by the broker at the same time, perhaps: the client wants it gone and it is.
        connection.send_success(request.request_id)
        return
    connection.send_success(request.request_id)


def handle_consumer_stats(connection: CommandConnection, command: pb.BaseCommand) -> None:
    """CONSUMER_STATS."""
    request = command.consumerStats
    consumer = connection.members.consumers.get(request.consumer_id)
    connection.send_command(consumer_stats_response(request.request_id, request.consumer_id, consumer))


def handle_get_last_message_id(connection: CommandConnection, command: pb.BaseCommand) -> None:
    """GET_LAST_MESSAGE_ID: the last message a consumer of the topic can get, and how far this one is."""
    request = command.getLastMessageId
    consumer = connection.members.consumers.get(request.consumer_id)
    if consumer is None:
        error = NotFoundError("Consumer not found")
        connection.members.answer_gone(request.consumer_id, partial(connection.send_error, request.request_id, error))
        return
    connection.run(_get_last_message_id(connection, request, consumer), f"last message id {consumer.consumer_id}")


async def _get_last_message_id(
    connection: CommandConnection, request: pb.CommandGetLastMessageId, consumer: Consumer
) -> None:
    request_id = request.request_id
    subscription = consumer.subscription
    if not isinstance(subscription, Subscription):
        connection.send_error(request_id, NotAllowedError("a non-persistent topic has no last message id"))
        return
    try:
        topic = subscription.topic
        compacted = topic.compacted if consumer.reads_compacted else None
        position, batch_index = await last_message_id(topic.ledger, topic.hides, compacted, topic)
    except GemingaError as error:
        connection.send_error(request_id, error)
        return
    # Behind the last message lie only markers and what nobody is to see. Clients that begin at the last message compare
    # the two, and would find that they are past it.
    marked = subscription.cursor.mark_delete_position
    if position.entry_id >= 0:
        marked = min(marked, position)
        if consumer.begins_at_end and seek.is_behind_compacted(topic):
            # The log is empty, and says nothing of where the cursor stands.
            marked = position
    answer = pb.CommandGetLastMessageIdResponse(
        last_message_id=message_id_data(position, partition=consumer.partition, batch_index=batch_index),
        request_id=request_id,
        consumer_mark_delete_position=message_id_data(marked),
    )
    if request.HasField("geminga_ledgers_from"):
        lengths = subscription.topic.ledger.ledgers.lengths_from(request.geminga_ledgers_from)
        answer.geminga_ledgers.extend(
            pb.GemingaLedgerLength(ledger_id=ledger_id, entries=entries)
            for ledger_id, entries in islice(lengths, LEDGERS_TOLD_MAX)
        )
    connection.send_command(
        pb.BaseCommand(type=pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=answer)
    )


def _answer_after(connection: CommandConnection, request_id: int, work: Coroutine[Any, Any, None], name: str) -> None:
    async def run() -> None:
        try:
            await work
        except GemingaError as error:
            connection.send_error(request_id, error)
        else:
            connection.send_success(request_id)

    connection.run(run(), name)
