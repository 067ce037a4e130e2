"""Messages by the schemas of the registry, and what becomes of one whose schema it has not."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from geminga.client.schema import JsonSchema, SchemaInfo, SchemaType
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


def record_of(*fields: tuple[str, object]) -> SchemaInfo:
    definition = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    return SchemaInfo("r", SchemaType.JSON, json.dumps(definition).encode())


NESTED = {"type": "array", "items": {"type": "record", "name": "I", "fields": [{"name": "Cents", "type": "long"}]}}


def items_of(*names: str) -> ArrayType:
    return ArrayType(StructType([StructField(name, LongType()) for name in names]))


@pytest.mark.parametrize(
    ("repo", "items", "said"),
    [
        ("repo", "Cents", "the column repo is no field of its schema, Repo is: names have upper and lower case"),
        ("Repo", "cents", "the column items.cents is no field of its schema, items.Cents is"),
        ("Repo", "Cents", ""),
    ],
)
def test_a_column_that_differs_from_a_field_in_case_alone_is_no_column_of_nulls(
    repo: str, items: str, said: str
) -> None:
    @dataclass
    class Records(Registry):
        def get_schema(self, topic: str, version: bytes | None) -> Versioned | None:
            return Versioned(record_of(("Repo", "string"), ("items", NESTED)))

    given = {"service.url": "pulsar://h:6650", "topic": TOPIC, "schemaMode": "fixed", "invalid": "keep"}
    misfits = Misfits(SourceOptions.parse(given, is_stream=False))
    columns = StructType(
        [
            StructField(repo, StringType()),
            StructField("items", items_of(items, "other")),
            StructField("nothing", LongType()),
        ]
    )
    fixed = PartsDecoder(Records(), arrow_schema(columns), misfits, by_newest=False)  # type: ignore[arg-type]
    messages = rows((ONE, b'{"Repo":"a","items":[{"Cents":5}]}'))
    if said:
        with pytest.raises(SchemaError, match=said):
            fixed(messages, TOPIC)
        return
    assert fixed(messages, TOPIC).to_pylist() == [
        {"Repo": "a", "items": [{"Cents": 5, "other": None}], "nothing": None}
    ]


def test_a_column_of_the_newest_version_may_differ_from_an_older_ones_in_case() -> None:
    @dataclass
    class Renamed(Registry):
        def get_schema(self, topic: str, version: bytes | None) -> Versioned | None:
            return Versioned(record_of(("repo" if version == ONE else "Repo", "string")))

    given = {"service.url": "pulsar://h:6650", "topic": TOPIC, "schemaMode": "fixed"}
    misfits = Misfits(SourceOptions.parse(given, is_stream=False))
    columns = StructType([StructField("Repo", StringType())])
    fixed = PartsDecoder(Renamed(), arrow_schema(columns), misfits, by_newest=False)  # type: ignore[arg-type]
    messages = rows((ONE, b'{"repo":"a"}'), (TEXT, b'{"Repo":"b"}'))
    assert fixed(messages, TOPIC).to_pylist() == [{"Repo": None}, {"Repo": "b"}]


@dataclass
class Photo:
    raw: bytes
    parts: list[bytes]


@pytest.mark.parametrize(
    ("option", "given"), [("text", [b"abcd", "\u00e9".encode()]), ("base64", [b"i\xb7\x1d", None])]
)
def test_bytes_that_a_client_in_python_wrote_as_text_are_those_bytes(option: str, given: list[bytes | None]) -> None:
    schema = JsonSchema(Photo)

    @dataclass
    class Photos(Registry):
        def get_schema(self, topic: str, version: bytes | None) -> Versioned | None:
            return Versioned(schema.info)

    options = {"service.url": "pulsar://h:6650", "topic": TOPIC, "schemaMode": "topic", "jsonBytes": option}
    parsed = SourceOptions.parse({**options, "invalid": "keep"}, is_stream=False)
    columns = StructType([StructField("raw", BinaryType()), StructField("parts", ArrayType(BinaryType()))])
    decode = PartsDecoder(
        Photos(),  # type: ignore[arg-type]
        arrow_schema(columns),
        Misfits(parsed),
        by_newest=True,
        are_bytes_text=parsed.are_json_bytes_text,
    )
    sent = rows((ONE, schema.encode(Photo(b"abcd", [b"QUJD"]))), (ONE, schema.encode(Photo("\u00e9".encode(), []))))
    found = decode(sent, TOPIC).to_pylist()
    assert [one["raw"] for one in found] == given
    assert found[0]["parts"] == [b"QUJD" if option == "text" else b"ABC"]
