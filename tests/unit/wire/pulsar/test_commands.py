"""Commands: encoders give what the generated classes read; decoding refuses what the protocol does not allow."""

from __future__ import annotations

import pytest

from geminga.model.errors import ProtocolError, ServerError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.frame import FrameDecoder
from geminga.wire.pulsar.hot import encode_partitions
from geminga.wire.pulsar.varint import encode_varint


def decode(frame: bytes) -> pb.BaseCommand:
    [(command, payload)] = FrameDecoder(1 << 20).feed(frame)
    assert payload == b""
    return commands.decode_command(command)


def test_server_errors_have_the_protocols_numbers() -> None:
    ours = {error.name.replace("_", "").lower(): int(error) for error in ServerError}
    assert ours == {name.lower(): number for name, number in pb.ServerError.items()}


def test_every_type_has_a_field_of_its_number() -> None:
    fields = pb.BaseCommand.DESCRIPTOR.fields_by_number
    assert all(number in fields for number in pb.BaseCommand.Type.values())


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (commands.PING_FRAME, pb.BaseCommand.PING),
        (commands.PONG_FRAME, pb.BaseCommand.PONG),
        (commands.success(7), pb.BaseCommand.SUCCESS),
        (commands.error(7, ServerError.PRODUCER_BUSY, "busy"), pb.BaseCommand.ERROR),
        (commands.send_error(1, 2, ServerError.CHECKSUM_ERROR, "no"), pb.BaseCommand.SEND_ERROR),
        (commands.connected("s", 21, 5, pb.FeatureFlags()), pb.BaseCommand.CONNECTED),
        (commands.close_producer(1, 2), pb.BaseCommand.CLOSE_PRODUCER),
        (commands.close_consumer(1, (1 << 64) - 1), pb.BaseCommand.CLOSE_CONSUMER),
        (commands.lookup_connect(1, "pulsar://a:1", "", is_authoritative=True), pb.BaseCommand.LOOKUP_RESPONSE),
        (commands.lookup_failed(1, ServerError.TOPIC_NOT_FOUND, "no"), pb.BaseCommand.LOOKUP_RESPONSE),
        (encode_partitions(1, 4), pb.BaseCommand.PARTITIONED_METADATA_RESPONSE),
        (
            commands.partitions_failed(1, ServerError.METADATA_ERROR, "no"),
            pb.BaseCommand.PARTITIONED_METADATA_RESPONSE,
        ),
    ],
)
def test_encoders_make_whole_commands(frame: bytes, kind: int) -> None:
    assert decode(frame).type == kind


def test_producer_success_has_an_epoch_only_if_there_is_one() -> None:
    for epoch in (None, 0, 5):
        frame = commands.producer_success(
            1, "p", last_sequence_id=-1, schema_version=b"", topic_epoch=epoch, is_ready=True
        )
        answer = decode(frame).producer_success
        assert (answer.topic_epoch if answer.HasField("topic_epoch") else None) == epoch
        assert answer.last_sequence_id == -1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"\x08\x5a",  # a type that does not exist
        b"\x08\x0d",  # SUCCESS without its fields
        b"\x08\x0d\x6a\x00",  # SUCCESS without its request id
        b"\x0d\x6a\x00",
    ],
)
def test_what_is_no_command_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        commands.decode_command(data)


def _with_number(command: pb.BaseCommand, field: str, number: int, value: int) -> bytes:
    """The command with ``number`` of its body, a field of one byte, as ``value``, which is of two."""
    body = getattr(command, field)
    inner = body.SerializePartialToString() + bytes((number << 3, value & 127 | 128, value >> 7))
    return b"\x08" + encode_varint(command.type) + encode_varint(command.type << 3 | 2) + bytes((len(inner),)) + inner


@pytest.mark.parametrize(
    ("command", "field", "error"),
    [
        (pb.BaseCommand(type=pb.BaseCommand.ERROR, error=pb.CommandError(request_id=1, message="m")), "error", "error"),
        (
            pb.BaseCommand(
                type=pb.BaseCommand.SEND_ERROR,
                send_error=pb.CommandSendError(producer_id=1, sequence_id=2, message="m"),
            ),
            "send_error",
            "error",
        ),
        (
            pb.BaseCommand(
                type=pb.BaseCommand.ACK_RESPONSE, ackResponse=pb.CommandAckResponse(consumer_id=1, request_id=2)
            ),
            "ackResponse",
            "error",
        ),
        (
            pb.BaseCommand(type=pb.BaseCommand.END_TXN_RESPONSE, endTxnResponse=pb.CommandEndTxnResponse(request_id=1)),
            "endTxnResponse",
            "error",
        ),
        (
            pb.BaseCommand(
                type=pb.BaseCommand.GET_SCHEMA_RESPONSE, getSchemaResponse=pb.CommandGetSchemaResponse(request_id=1)
            ),
            "getSchemaResponse",
            "error_code",
        ),
    ],
)
def test_an_error_of_a_later_version_is_an_error(command: pb.BaseCommand, field: str, error: str) -> None:
    number = getattr(command, field).DESCRIPTOR.fields_by_name[error].number
    body = getattr(commands.decode_command(_with_number(command, field, number, 200)), field)
    assert body.HasField(error)
    assert getattr(body, error) == pb.UnknownError


@pytest.mark.parametrize(
    ("command", "field", "named"),
    [
        (
            pb.BaseCommand(type=pb.BaseCommand.END_TXN, endTxn=pb.CommandEndTxn(request_id=1)),
            "endTxn",
            "txn_action",
        ),
        (
            pb.BaseCommand(
                type=pb.BaseCommand.PRODUCER, producer=pb.CommandProducer(topic="t", producer_id=1, request_id=2)
            ),
            "producer",
            "producer_access_mode",
        ),
    ],
)
def test_what_names_something_of_a_later_version_is_not_read_as_the_first_thing(
    command: pb.BaseCommand, field: str, named: str
) -> None:
    commands.decode_command(command.SerializeToString())
    number = getattr(command, field).DESCRIPTOR.fields_by_name[named].number
    with pytest.raises(ProtocolError, match=f"an unknown {named}"):
        commands.decode_command(_with_number(command, field, number, 200))


def test_text_that_is_no_utf8_is_refused_at_any_depth() -> None:
    subscribe = pb.CommandSubscribe(topic="t", subscription="s", subType=0, consumer_id=1, request_id=1)
    subscribe.metadata.add(key="abc", value="v")
    data = pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=subscribe).SerializeToString()
    commands.decode_command(data)
    with pytest.raises(ProtocolError):
        commands.decode_command(data.replace(b"abc", b"a\xffc"))
    commands.decode_command(data.replace(b"abc", "ä1".encode()))


@pytest.mark.parametrize("size", [1, 200])
def test_text_that_is_no_utf8_is_refused_in_answers_and_lists(size: int) -> None:
    """Those of transactions, which have a way of their own; short ones and long ones, alone and beside another body."""
    error = pb.CommandNewTxnResponse(request_id=1 << 40, error=pb.UnknownError, message="abc" * size)
    answer = pb.BaseCommand(type=pb.BaseCommand.NEW_TXN_RESPONSE, newTxnResponse=error)
    added = pb.CommandAddPartitionToTxn(request_id=1 << 40, txnid_least_bits=300, partitions=["t"] * size + ["abc"])
    listed = pb.BaseCommand(type=pb.BaseCommand.ADD_PARTITION_TO_TXN, addPartitionToTxn=added)
    both = pb.BaseCommand(type=pb.BaseCommand.NEW_TXN, newTxn=pb.CommandNewTxn(request_id=300), newTxnResponse=error)
    for command in (answer, listed, both):
        data = command.SerializeToString()
        assert commands.decode_command(data) == command
        with pytest.raises(ProtocolError):
            commands.decode_command(data.replace(b"abc", b"a\xffc"))
        commands.decode_command(data.replace(b"abc", "ä1".encode()))


def test_topics_hash_does_not_depend_on_order() -> None:
    assert commands.topics_hash(["b", "a"]) == commands.topics_hash(["a", "b"])
    assert commands.topics_hash(["a"]) != commands.topics_hash(["a", "b"])
    # CRC32C of "123456789" is 0xe3069283; printed lowest byte first.
    assert commands.topics_hash(["123456789"]) == "839206e3"
