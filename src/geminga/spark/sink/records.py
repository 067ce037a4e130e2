"""Rows as records, Avro or JSON: their encoder, and the schema that is registered with the topic."""

from __future__ import annotations

import datetime as dt
import io
import json
from base64 import b64encode
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

from geminga.client import InvalidConfiguration
from geminga.client.schema import MessageEncoder, SchemaInfo, SchemaSource, SchemaType, TopicSchema
from geminga.spark.rules.option_values import OptionError
from geminga.spark.sink_rules.sink_options import ValueSchema

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_NAIVE: Final = dt.datetime(1970, 1, 1)
_EPOCH_DAY: Final = dt.date(1970, 1, 1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
#: What fastavro and json raise for a value that does not fit.
_UNFIT: Final = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, ArithmeticError)


def _load_fastavro() -> ModuleType:
    try:
        import fastavro
    except ImportError as error:
        raise InvalidConfiguration(
            "Avro rows need fastavro, which is not installed: pip install 'geminga[avro]'"
        ) from error
    return fastavro


class EncodedPayload(TopicSchema[bytes], MessageEncoder[bytes]):
    """A schema for producers of payloads that are encoded already: it is registered, and encodes nothing."""

    __slots__ = ("_info",)

    def __init__(self, info: SchemaInfo) -> None:
        self._info = info

    @property
    def info(self) -> SchemaInfo:
        """What the broker is told."""
        return self._info

    @property
    def sets_key(self) -> bool:
        """Keys come from the column."""
        return False

    def encode(self, value: bytes) -> bytes:
        """The payload as it is."""
        return value

    def encode_key(self, value: bytes) -> bytes:
        """Never called: see :attr:`sets_key`."""
        raise AssertionError("keys are not of the value")

    async def bind_producer(self, topic: str, source: SchemaSource) -> MessageEncoder[bytes]:
        """Itself, for every topic."""
        return self

    async def bind_consumer(self, topic: str, source: SchemaSource) -> Any:  # noqa: ANN401
        """Never called: a sink consumes nothing."""
        raise AssertionError("for producers only")


class RecordEncoder:
    """Encodes rows (dicts, as PyArrow gives them) by one definition."""

    __slots__ = ("_fastavro", "_parsed", "schema")

    def __init__(self, kind: ValueSchema, definition: str) -> None:
        """Raises OptionError where fastavro is needed and missing."""
        number = SchemaType.AVRO if kind is ValueSchema.AVRO else SchemaType.JSON
        self.schema = EncodedPayload(SchemaInfo(number.name, number, definition.encode()))
        self._parsed: Any = None
        if kind is ValueSchema.AVRO:
            try:
                self._fastavro = _load_fastavro()
            except InvalidConfiguration as error:
                raise OptionError(f"{error}; or schemaType=json") from None
            self._parsed = self._fastavro.parse_schema(json.loads(definition))

    def encode(self, rows: Sequence[dict[str, Any] | None]) -> list[bytes | None]:
        """The payloads; None stays None. Raises OptionError for a row that does not fit."""
        encode = self._avro if self._parsed is not None else _json
        encoded: list[bytes | None] = []
        for row in rows:
            try:
                encoded.append(None if row is None else encode(row))
            except _UNFIT as error:
                assert row is not None
                raise OptionError(f"{self._where(row)}{str(error) or type(error).__name__}") from error
        return encoded

    def _where(self, row: dict[str, Any]) -> str:
        """The column that can not be encoded, for the beginning of an error's text."""
        if self._parsed is None:
            for name, value in row.items():
                try:
                    _json({name: value})
                except _UNFIT:
                    return f"column {name} of a row can not be encoded: "
        return "a row can not be encoded: "

    def _avro(self, row: dict[str, Any]) -> bytes:
        buffer = io.BytesIO()
        self._fastavro.schemaless_writer(buffer, self._parsed, row)
        return buffer.getvalue()


def _json(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_json_value).encode()


def _json_value(value: object) -> int | str:
    """Times as the definition says (numbers since 1970), bytes as base64: what the source and Java's clients read."""
    if isinstance(value, dt.datetime):
        return (value - (_EPOCH_NAIVE if value.tzinfo is None else _EPOCH)) // _MICROSECOND
    if isinstance(value, dt.date):
        return (value - _EPOCH_DAY).days
    if isinstance(value, bytes):
        return b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} has no form in JSON: cast it, or use schemaType=avro")
