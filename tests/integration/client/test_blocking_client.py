"""The blocking client against a broker in the same process: what each object does, and where its listeners run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from itertools import count
from queue import SimpleQueue

import pytest

from geminga.client import (
    CryptoError,
    CryptoFailureAction,
    CryptoKeyReader,
    EncryptionKeyInfo,
    InitialPosition,
    InvalidConfiguration,
    InvalidMessage,
    MessageId,
    OutgoingMessage,
    Producer,
    ProducerInterceptor,
    Timeout,
    UnexpectedError,
    WrongLoop,
    blocking,
)
from geminga.client.schema import StringSchema
from support.house.signing import pem_pair, rsa_key

_numbers = count(1)


@pytest.fixture
def client(broker) -> Iterator[blocking.Client]:
    """A client of it."""
    with blocking.connect(broker.service_url) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    """A fresh topic's name."""
    return f"blocking-{next(_numbers)}"


def test_what_is_sent_is_received(client, topic) -> None:
    with client.subscribe(topic, "s") as consumer, client.create_producer(topic) as producer:
        sent = producer.send(b"hello", partition_key="k", properties={"a": "b"})
        message = consumer.receive(5_000)
        assert (message.data(), message.partition_key(), message.properties()) == (b"hello", "k", {"a": "b"})
        assert message.message_id() == sent
        consumer.acknowledge(message)
        assert producer.last_sequence_id() == 0
        with pytest.raises(Timeout):
            consumer.receive(50)


def test_send_nowait_keeps_the_order_and_flush_waits_for_all(client, topic) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    heard: list[MessageId | None] = []
    for index in range(25_000):
        producer.send_nowait(str(index).encode())
    done = threading.Event()
    producer.send_nowait(b"last", lambda _, message_id: (heard.append(message_id), done.set()))
    producer.flush()
    assert done.wait(5)
    received: list[bytes] = []
    while len(received) < 25_001:
        messages = consumer.batch_receive()
        received += [message.data() for message in messages]
        consumer.acknowledge(messages)
    assert received == [*(str(index).encode() for index in range(25_000)), b"last"]
    assert heard != [None]


def test_iteration_ends_when_the_consumer_is_closed_elsewhere(client, topic) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"1")
    seen = []
    for message in consumer:
        seen.append(message.data())
        threading.Thread(target=consumer.close).start()
    assert seen == [b"1"]


def test_listener_runs_on_a_thread_that_may_use_the_client(client, topic) -> None:
    threads: list[str] = []
    done = threading.Event()
    answers = client.create_producer(f"{topic}-answers")

    def listen(consumer: blocking.Consumer[bytes], message) -> None:
        threads.append(threading.current_thread().name)
        answers.send(message.data().upper())
        consumer.acknowledge(message)
        done.set()

    client.subscribe(topic, "s", message_listener=listen)
    with client.subscribe(f"{topic}-answers", "s", initial_position=InitialPosition.Earliest) as hearing:
        client.create_producer(topic).send(b"question")
        assert hearing.receive(5_000).data() == b"QUESTION"
    assert done.wait(5)
    assert threads == ["geminga-listener"]


def test_thread_of_a_listener_ends_with_its_consumer(client, topic) -> None:
    heard: SimpleQueue[threading.Thread] = SimpleQueue()
    consumer = client.subscribe(topic, "s", message_listener=lambda *_: heard.put(threading.current_thread()))
    client.create_producer(topic).send(b"x")
    thread = heard.get(timeout=5)
    consumer.close()
    del consumer
    thread.join(5)
    assert not thread.is_alive()


async def _coroutine_function(*_: object) -> None:
    raise AssertionError


@pytest.mark.parametrize("wrong", [_coroutine_function, 5])
def test_listener_that_could_not_be_called_is_refused(client, topic, wrong) -> None:
    """Each message was handed to it, and nothing was done."""
    with client.create_table_view(topic) as view, client.create_producer(topic) as producer:
        refused = [
            lambda: client.subscribe(topic, "s", message_listener=wrong),
            lambda: client.create_reader(topic, MessageId.earliest, reader_listener=wrong),
            lambda: view.for_each(wrong),
            lambda: view.for_each_and_listen(wrong),
        ]
        for call in refused:
            with pytest.raises(InvalidConfiguration, match=r"(listener|callback)=.*: expected .*a function of a"):
                call()
        with pytest.raises(InvalidMessage, match=r"callback=.*: expected a function"):
            producer.send_nowait(b"x", wrong)


def test_listener_that_gives_a_coroutine_is_told_of(client, topic, monkeypatch) -> None:
    told: SimpleQueue[str] = SimpleQueue()
    log = logging.Handler()
    monkeypatch.setattr(log, "emit", lambda record: told.put(record.getMessage()))
    logging.getLogger("geminga").addHandler(log)
    try:
        with client.subscribe(topic, "s", message_listener=lambda *_: _coroutine_function()):
            client.create_producer(topic).send(b"x")
            assert "gave a coroutine: expected a plain function" in told.get(timeout=5)
    finally:
        logging.getLogger("geminga").removeHandler(log)


def test_blocking_call_from_the_loop_says_that_it_would_wait_for_itself(client, topic) -> None:
    """An interceptor that asked the client heard that the client is closed."""

    class Asking(ProducerInterceptor):
        def before_send(self, producer: Producer[object], message: OutgoingMessage) -> OutgoingMessage:
            client.get_topic_partitions(producer.topic())
            return message

    with (
        client.create_producer(topic, interceptors=[Asking()]) as producer,
        pytest.raises(WrongLoop, match="would wait for itself"),
    ):
        producer.send(b"x")


def test_reader_reads_from_the_beginning_to_the_end(client, topic) -> None:
    producer = client.create_producer(topic)
    for index in range(10):
        producer.send_nowait(str(index).encode())
    producer.flush()
    with client.create_reader(topic, MessageId.earliest) as reader:
        read = []
        while reader.has_message_available():
            read.append(reader.read_next(5_000).data())
    assert read == [str(index).encode() for index in range(10)]


def test_table_view_is_a_mapping_that_may_be_iterated_while_it_changes(client, topic) -> None:
    producer = client.create_producer(topic)
    for key in ("a", "b"):
        producer.send(key.encode() * 2, partition_key=key)
    with client.create_table_view(topic) as view:
        assert sorted(view) == ["a", "b"]
        assert dict(view.items()) == {"a": b"aa", "b": b"bb"}
        assert "a" in view
        assert len(view) == 2
        assert view["b"] == b"bb"


def test_error_of_a_message_without_callback_comes_with_the_flush(client, topic) -> None:
    from geminga.client import MessageTooBig

    producer = client.create_producer(topic, batching_enabled=False)
    producer.send_nowait(bytes(6 * 1024 * 1024))
    with pytest.raises(MessageTooBig):
        producer.flush()
    producer.send(b"fine")


def test_message_that_the_schema_refuses_does_not_hold_those_behind_it(client, topic) -> None:
    class Picky(StringSchema):
        def encode(self, value: str) -> bytes:
            if value == "bad":
                raise KeyError(value)
            return value.encode()

    producer = client.create_producer(topic, schema=Picky())
    heard: SimpleQueue[Exception | None] = SimpleQueue()
    for value in ("a", "bad", "c"):
        producer.send_nowait(value, lambda error, _: heard.put(error))
    errors = [heard.get(timeout=5) for _ in range(3)]
    assert sorted(type(error).__name__ for error in errors) == ["NoneType", "NoneType", "UnexpectedError"]
    producer.send_nowait("bad")
    with pytest.raises(UnexpectedError):
        producer.flush()


class Raising(CryptoKeyReader):
    """No coroutine, and it raises what no reader should."""

    def get_public_key(self, key_name, metadata):
        raise KeyError(key_name)


class Blocking(CryptoKeyReader):
    """Blocks its thread until it may go on."""

    def __init__(self, public: bytes, private: bytes) -> None:
        super().__init__()
        self.public, self.private = public, private
        self.asked, self.may_go_on = threading.Event(), threading.Event()

    def get_public_key(self, key_name, metadata):
        return EncryptionKeyInfo(self.public)

    def get_private_key(self, key_name, metadata):
        self.asked.set()
        assert self.may_go_on.wait(10)
        return EncryptionKeyInfo(self.private)


def test_send_ends_whatever_a_key_reader_raises(client, topic) -> None:
    with pytest.raises(CryptoError, match="KeyError"):
        client.create_producer(topic, encryption_key="a", crypto_key_reader=Raising())
    producer = client.create_producer(
        topic, encryption_key="a", crypto_key_reader=Raising(), crypto_failure_action=CryptoFailureAction.SEND
    )
    heard: SimpleQueue[Exception | None] = SimpleQueue()
    producer.send_nowait(b"in the clear", lambda error, _: heard.put(error))
    assert heard.get(timeout=5) is None


def test_key_reader_that_blocks_holds_its_own_thread_only(client, topic) -> None:
    reader = Blocking(*pem_pair(rsa_key()))
    consumer = client.subscribe(topic, "s", crypto_key_reader=reader)
    client.create_producer(topic, encryption_key="a", crypto_key_reader=reader).send(b"secret")
    assert reader.asked.wait(5)
    with client.subscribe(f"{topic}-plain", "s") as other, client.create_producer(f"{topic}-plain") as producer:
        producer.send(b"plain")
        assert other.receive(5_000).data() == b"plain"
    reader.may_go_on.set()
    assert consumer.receive(5_000).data() == b"secret"
