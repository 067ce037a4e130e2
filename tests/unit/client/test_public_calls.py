"""Every public call with values of every wrong kind: an error of the client's that says what was wrong and expected.

The table names each parameter of each public method, what it takes, and how the error calls it; a method or parameter
that is not in the table fails the first test. Whatever is refused is refused at the call: nothing is half done.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

import geminga.client as gc
from geminga.client.schema import StringSchema
from geminga.model.errors import GemingaError
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import run_with_broker

TOPIC = "persistent://public/default/topic"

#: One of each kind that a caller may mistake for another.
VALUES: list[Any] = [
    None,
    True,
    5,
    -1,
    1 << 70,
    0.5,
    float("nan"),
    "",
    "text",
    "\ud800",
    b"bytes",
    [],
    [None],
    [5],
    ["text"],
    {},
    {"a": 1},
    {5: "a"},
    {"\ud800": "a"},
    object(),
    int,
    print,
    timedelta(seconds=1),
    timedelta.max,
    datetime(2026, 1, 1),
    gc.ConsumerType.Shared,
    gc.MessageId.latest,
    gc.MessageId(-1, "one", 1),
    gc.MessageId(-1, 1 << 70, 1),
    gc.TxnId(1 << 70, -1),
    gc.TxnId("text", None),
    StringSchema(),
    re.compile(b"bytes"),
    re.compile("public/default/a"),
    ValueError("x"),
]


def is_text(value: object) -> bool:
    return isinstance(value, str) and value != "\ud800"


def is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_topic(value: object) -> bool:
    return is_text(value) and value != ""


def is_id(value: object) -> bool:
    return value is gc.MessageId.latest


def is_texts(value: object) -> bool:
    return value == {} and isinstance(value, dict)


def is_numbers(value: object) -> bool:
    return value is None or value in ({}, {"a": 1})


def is_key(value: object) -> bool:
    return value is None or is_text(value) or isinstance(value, bytes)


def is_time(value: object) -> bool:
    return value is None or (is_number(value) and 0 <= value < 1 << 63)


Takes = Callable[[object], bool]
#: Method -> parameter -> what it takes, and what stands in the error's text.
TABLE: Mapping[str, Mapping[str, tuple[Takes, str]]] = {
    "Client.create_producer": {
        "topic": (is_topic, "topic"),
        "schema": (lambda v: v is None or isinstance(v, StringSchema), "schema"),
    },
    "Client.subscribe": {
        "topic": (
            lambda v: is_topic(v) or v == ["text"] or (isinstance(v, re.Pattern) and isinstance(v.pattern, str)),
            "topic",
        ),
        "subscription_name": (is_topic, "subscription_name"),
        "schema": (lambda v: v is None or isinstance(v, StringSchema), "schema"),
    },
    "Client.create_reader": {
        "topic": (
            lambda v: is_topic(v) or v == ["text"] or (isinstance(v, re.Pattern) and isinstance(v.pattern, str)),
            "topic",
        ),
        "start_message_id": (is_id, "start_message_id"),
        "schema": (lambda v: v is None or isinstance(v, StringSchema), "schema"),
        "reader_listener": (lambda v: v is None or callable(v), "reader_listener"),
        "reader_name": (is_text, "reader_name"),
        "subscription_role_prefix": (is_text, "subscription_role_prefix"),
    },
    "Client.create_table_view": {
        "topic": (
            lambda v: is_topic(v) or v == ["text"] or (isinstance(v, re.Pattern) and isinstance(v.pattern, str)),
            "topic",
        ),
        "subscription_name": (is_text, "subscription_name"),
        "schema": (lambda v: v is None or isinstance(v, StringSchema), "schema"),
    },
    "Client.entry_stream": {
        "topic": (is_topic, "topic"),
        "start": (lambda v: False, "start"),
        "end": (lambda v: v is None, "end"),
        "window_bytes": (lambda v: is_number(v) and 0 < v < 1 << 63, "window_bytes"),
        "permits_max": (lambda v: is_number(v) and 0 <= v <= 100_000, "permits_max"),
        "name": (is_text, "name"),
        "is_read_compacted": (lambda v: isinstance(v, bool), "is_read_compacted"),
        "wants_heads": (lambda v: isinstance(v, bool), "wants_heads"),
    },
    "Client.get_topic_partitions": {"topic": (is_topic, "topic")},
    "Client.get_schema": {
        "topic": (is_topic, "topic"),
        "version": (lambda v: v is None or isinstance(v, bytes), "version"),
    },
    "Client.end_transaction": {
        "txn_id": (lambda v: False, "txn_id"),
        "commit": (lambda v: isinstance(v, bool), "commit"),
    },
    "Client.close": {},
    "Client.transaction": {
        "timeout": (
            lambda v: (
                v == timedelta(seconds=1) or (isinstance(v, int | float) and not isinstance(v, bool) and 0 < v < 9)
            ),
            "timeout",
        )
    },
    **{f"Transaction.{name}": {} for name in ("id", "state", "commit", "abort", "detach", "close")},
    "Producer.send": {
        "content": (lambda v: v is None or isinstance(v, bytes), "content"),
        # Half a surrogate pair is found when it is encoded, and told then.
        "properties": (lambda v: v is None or is_texts(v) or v == {"\ud800": "a"}, "properties"),
        "partition_key": (is_key, "partition_key"),
        "ordering_key": (is_key, "ordering_key"),
        "sequence_id": (is_time, "sequence_id"),
        "event_timestamp": (is_time, "event_timestamp"),
        "deliver_at": (is_time, "deliver_at"),
        "deliver_after": (lambda v: v is None or isinstance(v, timedelta), "deliver_after"),
        "replication_clusters": (lambda v: v is None or v in ([], ["text"]), "replication_clusters"),
        "disable_replication": (lambda v: isinstance(v, bool), "disable_replication"),
        "txn": (lambda v: v is None, "expected a transaction"),
    },
    "Producer.send_nowait": {
        "callback": (lambda v: v is None or callable(v), "callback"),
    },
    **{f"Producer.{name}": {} for name in ("flush", "drain", "close", "topic", "producer_name", "is_connected")},
    **{f"Producer.{name}": {} for name in ("last_sequence_id", "pending_messages")},
    "Consumer.receive": {"timeout_millis": (lambda v: v is None or (is_number(v) and v == 5), "timeout_millis")},
    "Consumer.acknowledge": {
        "message": (lambda v: is_id(v) or v == [], "expected a message"),
        "txn": (lambda v: v is None, "expected a transaction"),
        "properties": (is_numbers, "properties"),
    },
    "Consumer.acknowledge_cumulative": {
        "message": (is_id, "expected a message"),
        "txn": (lambda v: v is None, "expected a transaction"),
        "properties": (is_numbers, "properties"),
    },
    "Consumer.negative_acknowledge": {"message": (is_id, "expected a message")},
    "Consumer.reconsume_later": {
        "message": (lambda v: False, "expected a message"),
        "delay": (
            lambda v: v == timedelta(seconds=1) or (isinstance(v, int | float) and not isinstance(v, bool) and v < 9),
            "delay",
        ),
        "properties": (lambda v: v is None or is_texts(v), "properties"),
    },
    "Consumer.seek": {"target": (lambda v: is_id(v) or v == 5, "target|expected a message")},
    "Consumer.unsubscribe": {"force": (lambda v: isinstance(v, bool), "force")},
    **{
        f"Consumer.{name}": {}
        for name in (
            *("receive_nowait", "batch_receive", "redeliver_unacknowledged_messages", "flush_acknowledgements"),
            *("pause", "resume", "pause_message_listener", "resume_message_listener"),
            *("get_last_message_id", "get_last_message_ids", "has_message_available", "close", "topic", "topics"),
            *("subscription_name", "consumer_name", "is_connected", "is_closed", "is_active", "stats"),
        )
    },
    "Reader.read_next": {"timeout_millis": (lambda v: v is None or (is_number(v) and v == 5), "timeout_millis")},
    "Reader.seek": {"target": (lambda v: is_id(v) or v == 5, "target|expected a message")},
    **{f"Reader.{name}": {} for name in ("has_message_available", "get_last_message_id", "get_last_message_ids")},
    **{f"Reader.{name}": {} for name in ("topic", "is_connected", "close")},
    "TableView.get": {"key": (is_text, "key")},
    "TableView.for_each": {"callback": (callable, "callback")},
    "TableView.for_each_and_listen": {"callback": (callable, "callback")},
    **{f"TableView.{name}": {} for name in ("keys", "values", "items", "refresh", "close")},
}

#: Of a call's parameters, those that a wrong one stands beside.
BESIDE: Mapping[str, Mapping[str, Any]] = {
    "Client.create_producer": {"topic": TOPIC},
    "Client.subscribe": {"topic": TOPIC, "subscription_name": "other"},
    "Client.create_reader": {"topic": TOPIC, "start_message_id": gc.MessageId.earliest},
    "Client.create_table_view": {"topic": TOPIC},
    "Client.get_schema": {"topic": TOPIC},
    "Client.entry_stream": {"topic": TOPIC},
    "Client.end_transaction": {"txn_id": gc.TxnId(0, 1), "commit": True},
    "Producer.send": {"content": b"never stored"},
    "Producer.send_nowait": {"content": b"never stored"},
}


def wrong_values(takes: Takes) -> Iterator[Any]:
    for value in VALUES:
        if not takes(value):
            yield value


def test_the_table_has_every_public_method_and_parameter() -> None:
    public = set()
    for kind in (gc.Client, gc.Producer, gc.Consumer, gc.Reader, gc.TableView, gc.Transaction):
        source = inspect.getsource(kind)
        own = source.partition("# ---- for the client's own parts")[0]
        for name in re.findall(r"^    (?:async )?def ([a-z]\w*)\(", own, re.MULTILINE):
            public.add(f"{kind.__name__}.{name}")
    assert public == set(TABLE)
    for called, parameters in TABLE.items():
        kind, name = called.split(".")
        method = getattr(getattr(gc, kind), name)
        if not callable(method):
            continue
        given = {
            one.name
            for one in inspect.signature(method).parameters.values()
            if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) and one.name != "self"
        }
        if called == "Producer.send":
            given |= set(gc.MessageFields.__annotations__)
        assert given - {"content"} == set(parameters) - {"content"}, called


@pytest.mark.parametrize("called", [called for called, parameters in TABLE.items() if parameters])
def test_every_wrong_value_is_refused_at_the_call_by_name(called: str) -> None:
    kind, name = called.split(".")

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        await producer.send(b"first", partition_key="k")
        consumer = await client.subscribe(
            TOPIC, "s", initial_position=gc.InitialPosition.Earliest, ack_group_time_ms=0, retry_enabled=True
        )
        message = await consumer.receive(5000)
        parts = {
            "Client": client,
            "Producer": producer,
            "Consumer": consumer,
            "Reader": await client.create_reader(TOPIC, gc.MessageId.latest),
            "TableView": await client.create_table_view(TOPIC),
        }
        made = (len(client.lifetime.producers), len(client.lifetime.others))
        method = getattr(parts[kind], name)
        for parameter, (takes, text) in TABLE[called].items():
            beside = dict(BESIDE.get(called, {}))
            if called in ("Consumer.reconsume_later", "Consumer.acknowledge", "Consumer.acknowledge_cumulative"):
                beside["message"] = message
            for value in wrong_values(takes):
                arguments = {**beside, parameter: value}
                with pytest.raises(gc.PulsarException, match=text) as raised:
                    outcome = method(**arguments)
                    if inspect.isawaitable(outcome):
                        await outcome
                assert type(raised.value) is not gc.UnexpectedError, (parameter, value)
                assert len(str(raised.value)) < 400, (parameter, value)
        assert (len(client.lifetime.producers), len(client.lifetime.others)) == made
        assert consumer.stats().acks_sent == consumer.stats().negative_acks == 0
        # It all goes on, and nothing of what was refused was done.
        assert producer.pending_messages == 0
        await producer.send(b"second")
        assert (await consumer.receive(5000)).data() == b"second"
        await consumer.acknowledge(message)

    run_with_broker(scenario)


def test_unknown_names_are_told_with_what_is_near() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        with pytest.raises(gc.UnknownOption, match=r"batching_enable: .*did you mean batching_enabled"):
            await client.create_producer(TOPIC, batching_enable=True)
        with pytest.raises(TypeError, match="no such option"):
            await client.subscribe(TOPIC, "s", zzz=1)
        with pytest.raises(gc.UnknownOption, match="did you mean operation_timeout_ms"):
            gc.connect("pulsar://localhost", operation_timeout_seconds=1)
        producer = await client.create_producer(TOPIC)
        for send in (producer.send, producer.send_nowait):
            with pytest.raises(gc.InvalidMessage, match=r"propertys: .*did you mean properties"):
                outcome = send(b"x", propertys={"a": "b"})
                if inspect.isawaitable(outcome):
                    await outcome
        assert producer.pending_messages == 0

    run_with_broker(scenario)


ENUMERATIONS = [
    ("subscribe", "consumer_type", "Shared"),
    ("subscribe", "consumer_type", 1),
    ("subscribe", "initial_position", "Earliest"),
    ("subscribe", "regex_subscription_mode", "AllTopics"),
    ("subscribe", "crypto_failure_action", "FAIL"),
    ("create_producer", "compression_type", "LZ4"),
    ("create_producer", "access_mode", "Exclusive"),
    ("create_producer", "batching_type", "KeyBased"),
    ("create_producer", "message_routing_mode", "UseSinglePartition"),
    ("create_producer", "hashing_scheme", "Murmur3_32Hash"),
    ("create_producer", "crypto_failure_action", "SEND"),
    ("create_reader", "crypto_failure_action", "FAIL"),
]


@pytest.mark.parametrize(("how", "option", "value"), ENUMERATIONS)
def test_a_member_of_an_enumeration_is_neither_text_nor_number(how: str, option: str, value: object) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        arguments = {"subscribe": ("s",), "create_reader": (gc.MessageId.earliest,)}.get(how, ())
        expected = rf"^{option}={value!r}: expected one of \w+\.\w+"
        with pytest.raises(gc.InvalidConfiguration, match=expected):
            await getattr(client, how)(TOPIC, *arguments, **{option: value})

    run_with_broker(scenario)


MADE_OF: list[tuple[Callable[..., Any], dict[str, Any], str, Takes]] = [
    (gc.AuthenticationToken, {}, "token", lambda v: is_text(v) or callable(v)),
    (gc.AuthenticationBasic, {"password": "p"}, "username", lambda v: v is None or is_text(v)),
    (gc.AuthenticationBasic, {"username": "u"}, "password", lambda v: v is None or is_text(v)),
    (gc.AuthenticationTLS, {"private_key_path": "p"}, "certificate_path", is_text),
    (gc.AuthenticationTLS, {"certificate_path": "p"}, "private_key_path", is_text),
    (gc.CryptoKeyReader, {}, "public_key_path", is_text),
    (gc.CryptoKeyReader, {}, "private_key_path", is_text),
]


@pytest.mark.parametrize(("make", "beside", "name", "takes"), MADE_OF)
def test_what_options_are_made_of_is_checked_when_it_is_made(make, beside, name: str, takes: Takes) -> None:
    for value in wrong_values(takes):
        with pytest.raises(gc.InvalidConfiguration, match=f"{name}=.*: expected"):
            make(**beside, **{name: value})


POLICIES: list[tuple[Callable[..., Any], str, Takes]] = [
    (gc.BatchReceivePolicy, "max_num_message", lambda v: is_number(v) and v < 1 << 63),
    (gc.BatchReceivePolicy, "max_num_bytes", lambda v: is_number(v) and v < 1 << 63),
    (gc.BatchReceivePolicy, "timeout_ms", lambda v: is_number(v) and v < 1 << 63),
    (gc.MultiplierRedeliveryBackoff, "min_delay_ms", lambda v: is_number(v) and v in (-1, 5)),
    (gc.MultiplierRedeliveryBackoff, "max_delay_ms", lambda v: is_number(v) and v in (-1, 5)),
    (gc.MultiplierRedeliveryBackoff, "multiplier", lambda v: isinstance(v, int | float) and v >= -1),
]


@pytest.mark.parametrize(("make", "name", "takes"), POLICIES)
def test_policies_say_what_they_are_made_of(make, name: str, takes: Takes) -> None:
    for value in wrong_values(takes):
        if isinstance(value, gc.ConsumerType):
            continue  # a number, and named by the policy only where a number would not do
        with pytest.raises(GemingaError, match=f"{name}=.*: expected"):
            make(**{name: value})


@pytest.mark.parametrize("value", [None, 5, "text", b"", b"\xff", b"\x08\x01", object(), [1]])
def test_bytes_that_are_no_id_are_told(value) -> None:
    with pytest.raises(ValueError, match=r"message id"):
        gc.MessageId.deserialize(value)
