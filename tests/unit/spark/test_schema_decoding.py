"""Messages by the schemas of the registry, and what becomes of one whose schema it has not."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from geminga.client.schema import SchemaInfo, SchemaType
from geminga.spark.rules.columns import arrow_schema
from geminga.spark.source import schema_decoding
from geminga.spark.source.lake_rows import LakeRows
from geminga.spark.source.misfits import Misfits
from geminga.spark.source.schema_decoding import PartsDecoder
from geminga.spark.source_rules.errors import SchemaError
from geminga.spark.source_rules.options import SourceOptions

TOPIC = "persistent://a/b/c"
ONE, GONE, TEXT = bytes(7) + b"\1", bytes(7) + b"\2", bytes(7) + b"\3"


@dataclass(frozen=True)
class Versioned:
    info: SchemaInfo


@dataclass
class Registry:
    """What a session is asked for here: the schemas of topics."""

    asked: list[bytes] = field(default_factory=list)

    @property
    def client(self) -> Registry:
        return self

    def run(self, ask: Callable[[], Versioned | None]) -> Versioned | None:
        return ask()

    def get_schema(self, topic: str, version: bytes | None) -> Versioned | None:
        self.asked.append(version or b"")
        kinds = {ONE: SchemaType.INT64, b"": SchemaType.INT64, TEXT: SchemaType.STRING}
        kind = kinds.get((version or b"")[:8])
        return None if kind is None else Versioned(SchemaInfo("s", kind))


def decoder(registry: Registry, **options: str) -> PartsDecoder:
    given = {"service.url": "pulsar://h:6650", "topic": TOPIC, "schemaMode": "topic", **options}
    columns = StructType([StructField("value", LongType()), StructField("__invalid", StringType())])
    misfits = Misfits(SourceOptions.parse(given, is_stream=False))
    return PartsDecoder(registry, arrow_schema(columns), misfits, by_newest=True)  # type: ignore[arg-type]


def rows(*messages: tuple[bytes, bytes]) -> LakeRows:
    """Of schema version and payload."""
    versions, payloads = zip(*messages, strict=True)
    table = pa.table(
        {
            "entry": pa.array(range(len(messages)), pa.int64()),
            "batch_index": pa.array([-1] * len(messages), pa.int32()),
            "value": pa.array(payloads, pa.binary()),
            "schema_version": pa.array(versions, pa.binary()),
        }
    )
    return LakeRows(table, TOPIC, 7)


def numbers(*values: int) -> Sequence[bytes]:
    return [struct.pack(">q", value) for value in values]


def test_a_message_whose_schema_the_registry_has_not_does_not_fit_and_is_named() -> None:
    one, two, three = numbers(1, 2, 3)
    messages = rows((ONE, one), (GONE, two), (TEXT, b"\xff"), (ONE, three))
    with pytest.raises(SchemaError, match=r"message 7:1:0 names schema version 0000000000000002, .* invalid=keep"):
        decoder(Registry())(messages, TOPIC)
    found = decoder(Registry(), invalid="keep")(messages, TOPIC)
    assert found.column("value").to_pylist() == [1, None, None, 3]
    reasons = found.column("__invalid").to_pylist()
    assert [reason is None for reason in reasons] == [True, False, False, True]
    assert reasons[1] == "names schema version 0000000000000002, which the registry has not"


def test_versions_that_clients_make_up_are_asked_for_once_and_few_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema_decoding, "VERSIONS_MAX", 4)
    registry = Registry()
    decode = decoder(registry, invalid="keep")
    (one,) = numbers(1)
    gone = [bytes([number]) * 9 for number in range(3, 6)]
    for _ in range(2):
        found = decode(rows(*((version, one) for version in (*gone, b"short"))), TOPIC)
        assert found.column("value").null_count == 4
    assert registry.asked == gone
    decode(rows(*((bytes([number]) * 9, one) for number in range(20, 40))), TOPIC)
    known = [ONE + bytes([number]) for number in range(20)]
    found = decode(rows(*((version, one) for version in known)), TOPIC)
    assert found.column("value").to_pylist() == [1] * 20
    assert len(decode._decoders) <= 4
    assert len(decode._schemas) <= 4
    assert len(decode._unknown) <= 4


def test_an_error_shows_the_beginning_of_a_version() -> None:
    (one,) = numbers(1)
    found = decoder(Registry(), invalid="keep")(rows((bytes([9]) * 10_000, one)), TOPIC)
    assert len(found.column("__invalid")[0].as_py()) < 200
