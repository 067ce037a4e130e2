"""Each option says what it takes, and takes nothing else: never an exception later, in a batch or a timer."""

from __future__ import annotations

import dataclasses
import enum
import random  # noqa: TID251
from functools import partial

import pytest

import geminga.client as gc
from geminga.client._api.options import _CLIENT_KINDS, _PRODUCER_KINDS
from geminga.client._messages.consumer_options import (
    _CONSUMER_KINDS,
    _DEAD_LETTER_KINDS,
    _KEY_SHARED_KINDS,
    ConsumerOptions,
)
from geminga.client.rules import option_kinds as kinds
from geminga.client.schema import StringSchema
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import run_with_broker

OPTIONS = [
    (gc.ClientOptions, _CLIENT_KINDS),
    (gc.ProducerOptions, _PRODUCER_KINDS),
    (ConsumerOptions, _CONSUMER_KINDS),
    (gc.ConsumerDeadLetterPolicy, _DEAD_LETTER_KINDS),
    (gc.ConsumerKeySharedPolicy, _KEY_SHARED_KINDS),
]

#: Of every kind there is: what an option does not take of these is refused, whichever it is.
VALUES = [
    None,
    True,
    0,
    1,
    -1,
    1 << 31,
    1 << 63,
    1 << 400,
    0.5,
    float("nan"),
    "",
    "LZ4",
    "\ud800",
    b"bytes",
    [],
    ["a", 1],
    [object()],
    (1, 2, 3),
    {},
    {"a": 1},
    {1: "a"},
    object(),
    int,
    lambda: None,
    gc.CompressionType.LZ4,
    gc.ConsumerType.Shared,
    gc.MessageId.latest,
    gc.CryptoKeyReader,
    gc.ProducerInterceptor,
    gc.ProducerInterceptor(),
    gc.BatchReceivePolicy(),
    ValueError("x"),
]


@pytest.mark.parametrize(("options", "table"), OPTIONS)
def test_every_option_has_a_kind_and_its_default_is_of_it(options, table) -> None:
    fields = dataclasses.fields(options)
    assert [field.name for field in fields] == list(table)
    for field in fields:
        if field.default is not dataclasses.MISSING:
            assert table[field.name].takes(field.default), field.name
        elif field.default_factory is not dataclasses.MISSING:
            assert table[field.name].takes(field.default_factory()), field.name


@pytest.mark.parametrize(("options", "table"), OPTIONS)
def test_wrong_value_is_refused_by_name_with_what_was_expected(options, table) -> None:
    needed = {"max_redeliver_count": 1} if options is gc.ConsumerDeadLetterPolicy else {}
    for name, kind in table.items():
        refused = [value for value in VALUES if not kind.takes(value)]
        assert len(refused) > len(VALUES) / 2, name
        for value in refused:
            with pytest.raises(gc.InvalidConfiguration) as raised:
                options(**{**needed, name: value}).check()
            assert str(raised.value).startswith(f"{name}=")
            assert f"expected {kind.expected}" in str(raised.value)


def test_error_says_what_would_do() -> None:
    with pytest.raises(gc.InvalidConfiguration, match=r"compression_type='LZ4': expected one of .*CompressionType.LZ4"):
        gc.ProducerOptions(compression_type="LZ4").check()
    with pytest.raises(gc.InvalidConfiguration, match=r"interceptors=.*: expected a list, each a ProducerInterceptor"):
        gc.ProducerOptions(interceptors=gc.ProducerInterceptor()).check()
    with pytest.raises(gc.InvalidConfiguration, match="service_url"):
        gc.connect(6650)
    text = kinds.problem("name", "x" * 10_000, kinds.FLAG)
    assert text is not None
    assert len(text) < 200


def test_kinds_take_what_they_say() -> None:
    class Colour(enum.Enum):
        Red = 0

    assert kinds.Number(0, 9).takes(9)
    assert not kinds.Number(0, 9).takes(True)
    assert not kinds.Number(0, 9).takes(10)
    assert kinds.Member(Colour).takes(Colour.Red)
    assert kinds.Member(Colour).expected == "one of Colour.Red"
    assert not kinds.Member(Colour).takes(0)
    assert kinds.Pair(kinds.Number(0, 9)).takes((1, 2))
    assert not kinds.Pair(kinds.Number(0, 9)).takes((1, 2, 3))
    assert kinds.Many(kinds.TEXT).takes(("a",))
    assert not kinds.Many(kinds.TEXT).takes("a")
    assert not kinds.With("a reader", "read").takes(type("Reader", (), {"read": None}))
    assert kinds.TEXTS.takes({"a": "b"})
    assert not kinds.TEXTS.takes({"a": None})


async def _coroutine_function(*_: object) -> None:
    """What nobody would await."""


class _Backoff:
    async def next(self, redelivery_count: int) -> int:
        return redelivery_count


class _Before(gc.ProducerInterceptor):
    async def before_send(self, producer, message):  # type: ignore[override]
        return message


class _Heard(gc.ConsumerInterceptor):
    async def on_acknowledge(self, consumer, message_id, error):  # type: ignore[override]
        pass


class _Router:
    async def __call__(self, message: object, partitions: int) -> int:
        return 0


@pytest.mark.parametrize(
    ("options", "given"),
    [
        (gc.ProducerOptions, {"message_router": _coroutine_function}),
        (gc.ProducerOptions, {"message_router": partial(_coroutine_function, 1)}),
        (gc.ProducerOptions, {"message_router": _Router()}),
        (gc.ProducerOptions, {"interceptors": [_Before()]}),
        (ConsumerOptions, {"interceptors": [gc.ConsumerInterceptor(), _Heard()]}),
        (ConsumerOptions, {"negative_ack_redelivery_backoff": _Backoff()}),
    ],
)
def test_coroutine_function_that_nobody_would_await_is_refused(options, given) -> None:
    """What an interceptor was to hear of was lost in silence, but for Python's own warning."""
    with pytest.raises(gc.InvalidConfiguration, match="no coroutine function"):
        options(**given).check()


def test_listener_and_key_reader_may_be_coroutine_functions() -> None:
    class Keys(gc.CryptoKeyReader):
        async def get_private_key(self, key_name: str, metadata: object) -> gc.EncryptionKeyInfo:
            return gc.EncryptionKeyInfo(b"")

    ConsumerOptions(message_listener=_coroutine_function, crypto_key_reader=Keys()).check()


def test_random_options_end_in_a_client_error_or_work() -> None:
    """300 producers, consumers, readers and messages with one or two options of any kind: none hangs, none gets past
    its options with an error of Python's."""
    made = [0, 0]

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        rng = random.Random(10)
        for _ in range(300):
            what = rng.choice(["producer", "consumer", "reader"])
            table = _PRODUCER_KINDS if what == "producer" else _CONSUMER_KINDS
            names = set(gc.ReaderArguments.__annotations__) if what == "reader" else set(table)
            options = {name: rng.choice(VALUES) for name in rng.sample(sorted(names), rng.choice([1, 1, 2]))}
            try:
                if what == "producer":
                    one = await client.create_producer("t", **options)
                    await one.send(b"x")
                elif what == "consumer":
                    one = await client.subscribe("t", "s", **options)
                else:
                    one = await client.create_reader("t", gc.MessageId.earliest, **options)
                made[0] += 1
                await one.close()
            except gc.PulsarException:
                made[1] += 1

    run_with_broker(scenario)
    assert min(made) > 10, made


@pytest.mark.parametrize("value", [None, 5, b"t", [5], {"a": 1}, object()])
def test_arguments_beside_the_options_are_checked(value) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        with pytest.raises(gc.InvalidConfiguration, match="topic="):
            await client.create_producer(value)
        with pytest.raises(gc.InvalidConfiguration, match="topic="):
            await client.subscribe(value, "s")
        with pytest.raises(gc.InvalidConfiguration, match="subscription_name="):
            await client.subscribe("t", value)
        with pytest.raises(gc.InvalidConfiguration, match="start_message_id="):
            await client.create_reader("t", value)
        if value is not None:
            with pytest.raises(gc.InvalidConfiguration, match="schema="):
                await client.create_producer("t", schema=value)
            with pytest.raises(gc.InvalidConfiguration, match="schema="):
                await client.subscribe("t", "s", schema=value)
            with pytest.raises(gc.InvalidConfiguration, match="reader_listener="):
                await client.create_reader("t", gc.MessageId.earliest, reader_listener=value)
        producer = await client.create_producer("t")
        for field in ("properties", "partition_key", "ordering_key", "sequence_id", "deliver_after", "deliver_at"):
            is_fine = isinstance(
                value, {"partition_key": bytes, "ordering_key": bytes, "sequence_id": int}.get(field, ())
            )
            if value is None or is_fine or (field == "deliver_at" and isinstance(value, int)):
                continue
            with pytest.raises(gc.InvalidMessage, match=field.split("_")[0]):
                await producer.send(b"x", **{field: value})
        assert await client.create_producer("t", schema=StringSchema())

    run_with_broker(scenario)
