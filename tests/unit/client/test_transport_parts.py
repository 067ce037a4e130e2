"""A connection's parts by themselves: who hears what of a read, and when bytes leave."""

from __future__ import annotations

import geminga.client as gc
from geminga.client._transport.listeners import FOR_LISTENERS, Listeners
from geminga.client._transport.output import WRITE_APART_S, WRITE_AT_ONCE_BYTES, Output
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import PING_FRAME

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
