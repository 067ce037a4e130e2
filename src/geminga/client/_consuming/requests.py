"""The commands of one consumer, from its options: SUBSCRIBE, SEEK, REDELIVER, CLOSE_CONSUMER and questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, cast

from geminga.client._api.message_id import MessageId
from geminga.client._consuming.subscription import Subscription
from geminga.client.consumer_rules.discards import Discard
from geminga.client.schema._protocol import SchemaInfo, SchemaType
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import encode_command

_UINT64: Final = (1 << 64) - 1
#: Entries of one REDELIVER command (Pulsar's MAX_REDELIVER_UNACKNOWLEDGED).
REDELIVER_IDS_MAX: Final = 1000
#: Older brokers do not know the type of schema, and take a consumer without one for the same.
AUTO_CONSUME_PROTOCOL_MIN: Final = 21
_Type = pb.BaseCommand

#: (consumer id, request id) -> command.
Make = Callable[[int, int], pb.BaseCommand]


def subscribe(
    subscription: Subscription,
    topic: str,
    *,
    consumer_id: int,
    request_id: int,
    start: MessageId | None,
    epoch: int,
    schema: SchemaInfo | None,
    may_create: bool,
    protocol_version: int,
) -> pb.BaseCommand:
    """SUBSCRIBE, as a broker of that protocol version understands it; ``epoch`` -1: the type has none."""
    options = subscription.options
    sub_type: int = options.consumer_type
    position: int = options.initial_position
    request = pb.CommandSubscribe(
        topic=topic,
        subscription=subscription.name,
        subType=cast("pb.CommandSubscribe.SubType", sub_type),
        consumer_id=consumer_id,
        request_id=request_id,
        consumer_name=subscription.consumer_name,
        priority_level=options.priority_level,
        durable=options.is_durable,
        read_compacted=options.is_read_compacted,
        initialPosition=cast("pb.CommandSubscribe.InitialPosition", position),
        replicate_subscription_state=options.replicate_subscription_state_enabled,
        force_topic_creation=options.force_topic_creation and may_create,
        metadata=[pb.KeyValue(key=key, value=value) for key, value in sorted(options.properties.items())],
        subscription_properties=[
            pb.KeyValue(key=key, value=value) for key, value in sorted(options.subscription_properties.items())
        ],
    )
    if start is not None:
        request.start_message_id.CopyFrom(_start_data(start))
    if options.start_message_rollback_duration_s and start is options.start_message_id:
        request.start_message_rollback_duration_sec = options.start_message_rollback_duration_s
    if schema is not None and (
        schema.type is not SchemaType.AUTO_CONSUME or protocol_version >= AUTO_CONSUME_PROTOCOL_MIN
    ):
        getattr(request, "schema").CopyFrom(schema.to_wire())  # noqa: B009  (a name that stubs do not have)
    policy = options.key_shared_policy
    if policy is not None:
        mode: int = policy.key_shared_mode
        request.keySharedMeta.CopyFrom(
            pb.KeySharedMeta(
                keySharedMode=cast("pb.KeySharedMode", mode),
                hashRanges=[pb.IntRange(start=first, end=last) for first, last in policy.sticky_ranges],
                allowOutOfOrderDelivery=policy.allow_out_of_order_delivery,
            )
        )
    if epoch >= 0:
        request.consumer_epoch = epoch
    return pb.BaseCommand(type=_Type.SUBSCRIBE, subscribe=request)


def _start_data(message_id: MessageId) -> pb.MessageIdData:
    # A chunked message is started at with its first chunk.
    return (message_id.first_chunk_message_id() or message_id).to_data()


def close(consumer_id: int, request_id: int) -> pb.BaseCommand:
    """CLOSE_CONSUMER."""
    return pb.BaseCommand(
        type=_Type.CLOSE_CONSUMER,
        close_consumer=pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id),
    )


def close_frame(consumer_id: int, request_id: int) -> bytes:
    """CLOSE_CONSUMER whose answer nobody waits for."""
    return encode_command(close(consumer_id, request_id))


def unsubscribe(consumer_id: int, request_id: int, *, is_forced: bool) -> pb.BaseCommand:
    """UNSUBSCRIBE."""
    return pb.BaseCommand(
        type=_Type.UNSUBSCRIBE,
        unsubscribe=pb.CommandUnsubscribe(consumer_id=consumer_id, request_id=request_id, force=is_forced),
    )


def seek(consumer_id: int, request_id: int, message_id: MessageId | None, timestamp_ms: int) -> pb.BaseCommand:
    """SEEK to an entry, or to a publish time."""
    request = pb.CommandSeek(consumer_id=consumer_id, request_id=request_id)
    if message_id is not None:
        at = message_id.first_chunk_message_id() or message_id
        request.message_id.CopyFrom(
            pb.MessageIdData(ledgerId=at.ledger_id() & _UINT64, entryId=at.entry_id() & _UINT64)
        )
    else:
        request.message_publish_time = timestamp_ms
    return pb.BaseCommand(type=_Type.SEEK, seek=request)


def get_last_message_id(consumer_id: int, request_id: int) -> pb.BaseCommand:
    """GET_LAST_MESSAGE_ID."""
    return pb.BaseCommand(
        type=_Type.GET_LAST_MESSAGE_ID,
        getLastMessageId=pb.CommandGetLastMessageId(consumer_id=consumer_id, request_id=request_id),
    )


def get_ledger_lengths(ledger_id: int, consumer_id: int, request_id: int) -> pb.BaseCommand:
    """GET_LAST_MESSAGE_ID with the lengths of ledgers: docs/formats/ledger-lengths.md."""
    command = get_last_message_id(consumer_id, request_id)
    command.getLastMessageId.geminga_ledgers_from = max(0, ledger_id)
    return command


def redeliver(consumer_id: int, entries: Sequence[tuple[int, int]], epoch: int) -> Iterator[bytes]:
    """REDELIVER_UNACKNOWLEDGED_MESSAGES frames for ``entries``; one for everything if there are none."""
    for start in range(0, len(entries) or 1, REDELIVER_IDS_MAX):
        request = pb.CommandRedeliverUnacknowledgedMessages(
            consumer_id=consumer_id,
            message_ids=[
                pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id)
                for ledger_id, entry_id in entries[start : start + REDELIVER_IDS_MAX]
            ],
        )
        if epoch >= 0:
            request.consumer_epoch = epoch
        yield encode_command(
            pb.BaseCommand(type=_Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=request)
        )


_VALIDATION_ERRORS: Final = {
    Discard.CHECKSUM: pb.CommandAck.ChecksumMismatch,
    Discard.BROKEN: pb.CommandAck.BatchDeSerializeError,
    Discard.DECOMPRESSION: pb.CommandAck.DecompressionError,
    Discard.DECRYPTION: pb.CommandAck.DecryptionError,
}


def ack_damaged(consumer_id: int, entry: tuple[int, int], why: Discard) -> bytes:
    """An ACK frame that says why an entry could not be read."""
    ledger_id, entry_id = entry
    return encode_command(
        pb.BaseCommand(
            type=_Type.ACK,
            ack=pb.CommandAck(
                consumer_id=consumer_id,
                ack_type=pb.CommandAck.Individual,
                message_id=[pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id)],
                validation_error=_VALIDATION_ERRORS[why],
            ),
        )
    )
