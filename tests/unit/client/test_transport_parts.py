"""A connection's parts by themselves: who hears what of a read, and when bytes leave."""

from __future__ import annotations

import asyncio
import ssl
import weakref

import pytest

import geminga.client as gc
from geminga.client._transport.listeners import FOR_LISTENERS, Listeners
from geminga.client._transport.output import WRITE_APART_S, WRITE_AT_ONCE_BYTES, Output
from geminga.client._transport.pool import _not_connected
from geminga.client._transport.service_urls import Address
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.commands import PING_FRAME
from geminga.wire.pulsar.frame import FrameDecoder

Type = pb.BaseCommand


class Heard:
    """A producer, consumer and watch in one."""

    def __init__(self, story: list[object], name: str) -> None:
        self.story, self.name = story, name

    def __getattr__(self, called: str):
        return lambda *arguments: self.story.append((self.name, called, *arguments))


def message(consumer_id: int, entry_id: int) -> tuple[bytes, bytes]:
    command = pb.CommandMessage(consumer_id=consumer_id, message_id=pb.MessageIdData(ledgerId=1, entryId=entry_id))
    return pb.BaseCommand(type=Type.MESSAGE, message=command).SerializeToString(), b""


def receipt(producer_id: int, sequence_id: int) -> tuple[bytes, bytes]:
    sent = pb.CommandSendReceipt(producer_id=producer_id, sequence_id=sequence_id)
    sent.message_id.CopyFrom(pb.MessageIdData(ledgerId=(1 << 64) - 1, entryId=(1 << 64) - 1))
    return pb.BaseCommand(type=Type.SEND_RECEIPT, send_receipt=sent).SerializeToString(), b""


def ping() -> tuple[bytes, bytes]:
    return PING_FRAME[8:], b""


def test_messages_of_a_consumer_that_follow_each_other_reach_it_as_one_call_in_order_with_all_else() -> None:
    story: list = []
    listeners = Listeners()
    for name in (1, 2, 200):
        listeners.register_consumer(name, Heard(story, f"consumer {name}"))
    listeners.register_producer(7, Heard(story, "producer"))
    frames = [message(1, 0), message(1, 1), message(200, 2), message(200, 3), receipt(7, 5), message(1, 4), ping()]
    frames += [message(3, 5), message(2, 6)]
    listeners.take(frames, lambda command: story.append(("handled", command.type)))
    told = [(name, what, len(rest[0]) if what == "on_messages" else 0) for name, what, *rest in story]
    assert told == [
        ("consumer 1", "on_messages", 2),
        ("consumer 200", "on_messages", 2),
        ("producer", "on_receipt", 0),
        ("consumer 1", "on_messages", 1),
        ("handled", Type.PING, 0),
        ("consumer 2", "on_messages", 1),
    ]


@pytest.mark.parametrize(
    ("owners", "size_bytes"),
    [
        # Ids of two bytes that begin alike.
        ((128, 256), 0),
        ((129, 257), 0),
        # Sizes of two bytes, the second of which looks like the field of the consumer's id.
        ((1, 2), 1024),
    ],
)
def test_messages_whose_commands_begin_alike_reach_their_own_consumers(
    owners: tuple[int, int], size_bytes: int
) -> None:
    story: list = []
    listeners = Listeners()
    for owner in owners:
        listeners.register_consumer(owner, Heard(story, f"consumer {owner}"))
    frames = [sized(owner, size_bytes) for owner in (*owners, *owners)]
    assert frames[0][0][:6] == frames[1][0][:6]
    listeners.take(frames, story.append)
    assert [name for name, *_ in story] == [f"consumer {owner}" for owner in (*owners, *owners)]


def sized(consumer_id: int, size_bytes: int) -> tuple[bytes, bytes]:
    """A MESSAGE whose fields take so many bytes; 0: as many as they need."""
    command = pb.CommandMessage(consumer_id=consumer_id, message_id=pb.MessageIdData(ledgerId=1, entryId=1))
    command.ack_set.extend([1] * (max(0, size_bytes - command.ByteSize()) // 2))
    assert not size_bytes or command.ByteSize() == size_bytes
    return pb.BaseCommand(type=Type.MESSAGE, message=command).SerializeToString(), b""


def test_messages_of_a_broker_that_names_the_consumer_last_reach_their_own_consumers() -> None:
    story: list = []
    listeners = Listeners()
    for owner in (1, 2):
        listeners.register_consumer(owner, Heard(story, f"consumer {owner}"))
    message_id = pb.MessageIdData(ledgerId=1, entryId=1).SerializeToString()
    body = b"\x12" + bytes([len(message_id)]) + message_id + b"\x08"
    frames = [(b"\x08\x09\x4a" + bytes([len(body) + 1]) + body + bytes([owner]), b"") for owner in (1, 2, 1)]
    listeners.take(frames, story.append)
    assert [name for name, *_ in story] == ["consumer 1", "consumer 2", "consumer 1"]


def test_the_end_is_told_once_in_order_of_registration_and_nothing_is_heard_behind_it() -> None:
    story: list = []
    listeners = Listeners()
    listeners.register_watcher(1, Heard(story, "watch"))
    listeners.register_consumer(1, Heard(story, "consumer"))
    listeners.register_producer(1, Heard(story, "producer"))
    listeners.unregister_consumer(5)
    error = gc.NotConnected("lost")
    listeners.end(error)
    listeners.end(error)
    assert story == [(name, "on_connection_lost", error) for name in ("producer", "consumer", "watch")]
    listeners.take([message(1, 0), receipt(1, 1), ping()], lambda command: story.append(command))
    assert len(story) == 3


def test_who_is_not_registered_any_more_hears_neither_what_comes_nor_the_end() -> None:
    story: list = []
    listeners = Listeners()
    for number in (1, 2):
        listeners.register_producer(number, Heard(story, f"producer {number}"))
        listeners.register_consumer(number, Heard(story, f"consumer {number}"))
        listeners.register_watcher(number, Heard(story, f"watch {number}"))
    for unregister in (listeners.unregister_producer, listeners.unregister_consumer, listeners.unregister_watcher):
        unregister(1)
        unregister(1)
    assert [listeners.has_producer(number) for number in (1, 2)] == [False, True]
    assert [listeners.has_consumer(number) for number in (1, 2)] == [False, True]
    listeners.take([receipt(1, 5), message(1, 0)], lambda command: story.append(command))
    listeners.on_writable()
    listeners.end(gc.NotConnected("lost"))
    assert [name for name, *_ in story] == ["producer 2", "producer 2", "consumer 2", "watch 2"]


def test_a_broker_that_closes_one_names_the_next() -> None:
    story: list = []
    listeners = Listeners()
    listeners.register_consumer(4, Heard(story, "consumer"))
    close = pb.CommandCloseConsumer(consumer_id=4, request_id=1, assignedBrokerServiceUrl="pulsar://next:6650")
    command = pb.BaseCommand(type=Type.CLOSE_CONSUMER, close_consumer=close)
    for _ in range(2):
        FOR_LISTENERS[Type.CLOSE_CONSUMER](listeners, command)
    assert story == [("consumer", "on_closed_by_broker", "pulsar://next:6650")]
    assert not listeners.has_consumer(4)


@pytest.mark.parametrize("uses_tls", [False, True])
def test_address_of_the_next_broker_is_of_the_connections_own_kind(uses_tls: bool) -> None:
    story: list = []
    listeners = Listeners(uses_tls=uses_tls)
    plain, tls = "pulsar://next:6650", "pulsar+ssl://next:6651"
    for told in ((plain, tls), (plain, ""), ("", tls)):
        for register, close in (
            (listeners.register_producer, commands.close_producer),
            (listeners.register_consumer, commands.close_consumer),
        ):
            register(1, Heard(story, "it"))
            listeners.take(
                [(frame, b"") for frame, _ in FrameDecoder(1000).feed(close(1, 2, *told))],
                lambda command: FOR_LISTENERS[command.type](listeners, command),
            )
    expected = [tls, tls, "", "", tls, tls] if uses_tls else [plain, plain, plain, plain, "", ""]
    assert [url for *_, url in story] == expected


def test_what_the_broker_tells_one_reaches_that_one_alone() -> None:
    """Each command by its id, and nobody where none of that id is registered."""
    told = pb.BaseCommand
    migrated = pb.CommandTopicMigrated
    commands = [
        told(type=Type.SEND_RECEIPT, send_receipt=pb.CommandSendReceipt(producer_id=1, sequence_id=8)),
        told(type=Type.SEND_ERROR, send_error=pb.CommandSendError(producer_id=1, sequence_id=9, error=0, message="no")),
        told(
            type=Type.ACTIVE_CONSUMER_CHANGE,
            active_consumer_change=pb.CommandActiveConsumerChange(consumer_id=2, is_active=True),
        ),
        told(type=Type.REACHED_END_OF_TOPIC, reachedEndOfTopic=pb.CommandReachedEndOfTopic(consumer_id=2)),
        told(type=Type.ACK_RESPONSE, ackResponse=pb.CommandAckResponse(consumer_id=2, request_id=4)),
        told(type=Type.ACK_RESPONSE, ackResponse=pb.CommandAckResponse(consumer_id=2, request_id=5, error=0)),
        told(
            type=Type.WATCH_TOPIC_UPDATE,
            watchTopicUpdate=pb.CommandWatchTopicUpdate(watcher_id=3, topics_hash="h", deleted_topics=["a"]),
        ),
        told(
            type=Type.CLOSE_PRODUCER,
            close_producer=pb.CommandCloseProducer(
                producer_id=1, request_id=1, assignedBrokerServiceUrlTls="pulsar+ssl://next:6651"
            ),
        ),
        told(
            type=Type.TOPIC_MIGRATED,
            topicMigrated=migrated(
                resource_id=2, resource_type=migrated.Consumer, brokerServiceUrl="pulsar://other:6650"
            ),
        ),
        told(
            type=Type.TOPIC_MIGRATED,
            topicMigrated=migrated(
                resource_id=2, resource_type=migrated.Producer, brokerServiceUrlTls="pulsar+ssl://other:6651"
            ),
        ),
    ]
    story: list = []
    listeners = Listeners(uses_tls=True)
    for register in (listeners.register_producer, listeners.register_consumer, listeners.register_watcher):
        for number in (1, 2, 3):
            register(number, Heard(story, f"{register.__name__.removeprefix('register_')} {number}"))
    for command in commands:
        FOR_LISTENERS[command.type](listeners, command)
    assert [(name, what) for name, what, *_ in story] == [
        ("producer 1", "on_receipt"),
        ("producer 1", "on_send_error"),
        ("consumer 2", "on_active_change"),
        ("consumer 2", "on_end_of_topic"),
        ("consumer 2", "on_ack_response"),
        ("consumer 2", "on_ack_response"),
        ("watcher 3", "on_topic_update"),
        ("producer 1", "on_closed_by_broker"),
        ("consumer 2", "on_closed_by_broker"),
        ("producer 2", "on_closed_by_broker"),
    ]
    receipt_, refusal, change, _, acked, refused, _, closed, moved, moved_too = (tuple(rest) for _, _, *rest in story)
    assert receipt_[0] == 8
    assert (refusal[0], str(refusal[1])) == (9, "no")
    assert change == (True,)
    assert (acked, refused[0], isinstance(refused[1], gc.PulsarException)) == ((4, None), 5, True)
    assert (closed, moved[0].plain) == (("pulsar+ssl://next:6651",), "pulsar://other:6650")
    assert (moved[0].tls, moved_too[0].plain, moved_too[0].tls) == ("", "", "pulsar+ssl://other:6651")
    assert [listeners.has_producer(number) for number in (1, 2, 3)] == [False, False, True]
    assert [listeners.has_consumer(number) for number in (1, 2, 3)] == [True, False, True]
    for command in commands:
        FOR_LISTENERS[command.type](Listeners(), command)


def test_views_are_lent_to_those_who_asked_and_others_get_copies() -> None:
    def payloads() -> dict[str, type]:
        story: list = []
        for number in (1, 2):
            listeners.register_consumer(number, Heard(story, f"consumer {number}"))
        frames = [(message(number, 0)[0], memoryview(b"data")) for number in (1, 2)]
        listeners.take(frames, story.append)
        return {name: type(taken[0][1]) for name, _, taken in story}

    listeners = Listeners()
    assert payloads() == {"consumer 1": memoryview, "consumer 2": memoryview}
    listeners.lend_to(1)
    assert payloads() == {"consumer 1": memoryview, "consumer 2": bytes}
    listeners.lend_to(2)
    assert payloads() == {"consumer 1": memoryview, "consumer 2": memoryview}
    listeners.unregister_consumer(1)
    assert payloads() == {"consumer 1": bytes, "consumer 2": memoryview}


class Loop:
    def __init__(self) -> None:
        self.now, self.soon = 0.0, []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback) -> None:
        self.soon.append(callback)


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))


def test_small_writes_close_behind_each_other_leave_together_and_others_at_once() -> None:
    loop, transport = Loop(), Transport()
    output = Output(loop)  # type: ignore[arg-type]
    output.write(b"before ")
    output.write(b"the connection")
    output.transport = transport  # type: ignore[assignment]
    loop.soon.pop()()
    assert transport.written == [b"before the connection"]
    loop.now = 2 * WRITE_APART_S
    output.write(b"alone")
    output.write(b"a")
    output.write(b"b")
    assert transport.written[1:] == [b"alone"]
    loop.soon.pop()()
    output.write(b"c")
    output.write(b"d" * WRITE_AT_ONCE_BYTES)
    assert transport.written[2:] == [b"ab", b"c" + b"d" * WRITE_AT_ONCE_BYTES]
    output.write(b"never")
    output.end()
    output.write_many([b"never"])
    for callback in loop.soon:
        callback()
    assert len(transport.written) == 4


def test_writes_leave_at_once_from_the_time_and_the_size_on() -> None:
    loop, transport = Loop(), Transport()
    output = Output(loop)  # type: ignore[arg-type]
    output.transport = transport  # type: ignore[assignment]
    output.write(b"first")
    loop.now = WRITE_APART_S
    output.write(b"second")
    assert transport.written == [b"first", b"second"]
    output.write(b"x" * WRITE_AT_ONCE_BYTES)
    assert len(transport.written) == 3
    output.write(b"x" * (WRITE_AT_ONCE_BYTES - 1))
    assert (len(transport.written), len(loop.soon)) == (3, 1)


def test_what_is_written_soon_leaves_together_at_the_end_of_the_turn() -> None:
    loop, transport = Loop(), Transport()
    output = Output(loop)  # type: ignore[arg-type]
    output.transport = transport  # type: ignore[assignment]
    for turn in range(2):
        output.write_soon(b"a")
        output.write_soon(b"b")
        output.write_late(lambda: b"c")
        assert (len(transport.written), len(loop.soon)) == (turn, 1)
        loop.soon.pop()()
    assert transport.written == [b"abc", b"abc"]


def test_the_end_lets_go_of_what_waits() -> None:
    class Data(bytearray):
        """One that tells when it is gone."""

    loop = Loop()
    output = Output(loop)  # type: ignore[arg-type]
    waiting, late = Data(b"waits"), lambda: b"late"
    gone = [weakref.ref(waiting), weakref.ref(late)]
    output.write(waiting)
    output.write_late(late)
    del waiting, late
    assert all(one() is not None for one in gone)
    output.end()
    assert [one() for one in gone] == [None, None]


def test_parts_leave_at_once_behind_what_waits_and_late_ones_in_their_place() -> None:
    loop, transport = Loop(), Transport()
    output = Output(loop)  # type: ignore[arg-type]
    output.transport = transport  # type: ignore[assignment]
    output.write_many([b"a", b"b"])
    assert transport.written == [b"ab"]
    grown = [b"late"]
    output.write_late(lambda: b"".join(grown))
    output.write_soon(b" soon")
    assert len(transport.written) == 1
    grown.append(b"r")
    output.write_many([b" at", b" once"])
    assert transport.written[1:] == [b"later soon at once"]
    for callback in loop.soon:
        callback()
    assert len(transport.written) == 2


def ssl_error(kind: type[ssl.SSLError], reason: str) -> ssl.SSLError:
    error = kind(1, "text")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("is_tls", "error", "kind", "told"),
    [
        (False, OSError("no route"), gc.ConnectError, "connecting to pulsar://h:1: no route"),
        (False, ConnectionResetError(), gc.ConnectError, "connecting to pulsar://h:1: ConnectionResetError"),
        (True, OSError("no route"), gc.ConnectError, "connecting to pulsar+ssl://h:1: no route"),
        (True, ConnectionRefusedError("no"), gc.ConnectError, "connecting to pulsar+ssl://h:1: no"),
        (
            True,
            ConnectionResetError(),
            gc.ConnectError,
            "connecting to pulsar+ssl://h:1: ConnectionResetError; a port without TLS? Then the service URL begins "
            "with pulsar://",
        ),
        (
            True,
            ssl_error(ssl.SSLError, "WRONG_VERSION_NUMBER"),
            gc.WrongProtocol,
            "pulsar+ssl://h:1 does not speak TLS: without it the service URL begins with pulsar://",
        ),
        (
            True,
            ssl_error(ssl.SSLCertVerificationError, "CERTIFICATE_VERIFY_FAILED"),
            gc.ConnectError,
            "connecting to pulsar+ssl://h:1: text",
        ),
        (
            True,
            ssl_error(ssl.SSLError, "UNEXPECTED"),
            gc.ConnectError,
            "connecting to pulsar+ssl://h:1: text; a port without TLS? Then the service URL begins with pulsar://",
        ),
    ],
)
def test_why_there_is_no_connection_is_told(is_tls: bool, error: OSError, kind: type, told: str) -> None:
    found = _not_connected(Address("h", 1, is_tls=is_tls), error)
    assert (type(found), str(found).replace("(1, 'text')", "text")) == (kind, told)


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="Python 3.12 has it first")
def test_an_attempt_that_ends_before_its_task_is_known_is_not_kept_for_the_next(tmp_path) -> None:
    trusted = tmp_path / "trusted.pem"

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - not in 3.11
        async with gc.connect("pulsar+ssl://127.0.0.1:1", tls_trust_certs_file_path=str(trusted)) as client:
            with pytest.raises(gc.InvalidConfiguration, match="No such file"):
                await client.get_topic_partitions("t")
            trusted.write_text("nothing")
            with pytest.raises(gc.InvalidConfiguration, match="PEM") as told:
                await client.get_topic_partitions("t")
            assert "No such file" not in str(told.value)

    asyncio.run(main())
