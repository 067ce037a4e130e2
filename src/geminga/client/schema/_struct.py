"""JSON and Avro schemas of classes, and of definitions given as JSON."""

from __future__ import annotations

import io
import json
import reprlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar, Final, TypeVar

from geminga.client._api.errors import InvalidConfiguration
from geminga.client.schema._base import Schema, SchemaSerializationError
from geminga.client.schema._models import codec_of_class
from geminga.client.schema._protocol import SchemaInfo, SchemaType
from geminga.client.schema._scalars import Json
from geminga.wire.avro_exact import DefaultError, parsed_exactly

T = TypeVar("T")

#: Definitions that a schema keeps in parsed form; the oldest is forgotten first.
PARSED_MAX: Final = 1000
#: What fastavro raises for data and values that do not fit; its own errors are among these.
_UNFIT: Final = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, EOFError, ArithmeticError)


class JsonSchema(Schema[T]):
    """Values of a class as JSON; the definition is the class's Avro schema, as in Pulsar.

    Fields that the writer did not have get the class's defaults, those that the class does not have are ignored.
    """

    def __init__(self, record_class: type[T]) -> None:
        """``record_class``: a dataclass, a pydantic model or a subclass of Record."""
        self._codec = codec_of_class(record_class)
        self._info = SchemaInfo("JSON", SchemaType.JSON, _dump_definition(self._codec.definition(set())))

    @property
    def info(self) -> SchemaInfo:
        """Type JSON."""
        return self._info

    def encode(self, value: T) -> bytes:
        """JSON in UTF-8. Raises SchemaSerializationError."""
        document = self._codec.dump(value, True)
        try:
            return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
        except ValueError as error:
            raise SchemaSerializationError(f"no JSON: {error}") from error

    def decode(self, data: bytes, *, writer: SchemaInfo | None = None, key: bytes | None = None) -> T:
        """A value of the class. Raises SchemaSerializationError."""
        value: T = self._codec.load(load_json(data), True)
        return value

    def __repr__(self) -> str:
        return f"JsonSchema({self._codec.python_type.__qualname__})"


class AvroSchema(Schema[T]):
    """Values of a class, or dicts by a definition, in Avro's binary form. Needs fastavro (extra ``avro``).

    What was written with another version is read by that version's definition, which comes from the broker.
    """

    needs_writer: ClassVar[bool] = True

    def __init__(
        self, record_class: type[T] | None = None, schema_definition: Mapping[str, Any] | str | None = None
    ) -> None:
        """``record_class``: as for JsonSchema; or ``schema_definition``: Avro's JSON, values are then dicts.

        Raises InvalidConfiguration for both, or neither, and for a definition that is none.
        """
        if (record_class is None) == (schema_definition is None):
            raise InvalidConfiguration("AvroSchema takes record_class or schema_definition: one of them")
        self._fastavro = load_fastavro()
        self._codec = codec_of_class(record_class) if record_class is not None else None
        if self._codec is not None:
            self._definition = self._codec.definition(set())
        else:
            self._definition = _definition_of(schema_definition)
        self._info = SchemaInfo("AVRO", SchemaType.AVRO, _dump_definition(self._definition))
        #: As it is written by.
        self._parsed: Any = self._parse(self._definition)
        #: Writers' definitions -> as they are read by, with the own one where values are read as that says.
        self._writers: dict[bytes, tuple[Any, Any]] = {}

    @property
    def info(self) -> SchemaInfo:
        """Type AVRO."""
        return self._info

    def encode(self, value: T) -> bytes:
        """Avro's binary form, without the definition. Raises SchemaSerializationError."""
        datum = self._codec.dump(value, False) if self._codec is not None else value
        buffer = io.BytesIO()
        try:
            self._fastavro.schemaless_writer(buffer, self._parsed, datum)
        except _UNFIT as error:
            raise SchemaSerializationError(f"the value does not fit the Avro schema: {_words(error)}") from error
        return buffer.getvalue()

    def decode(self, data: bytes, *, writer: SchemaInfo | None = None, key: bytes | None = None) -> T:
        """A value of the class, or a dict. Raises SchemaSerializationError."""
        written, reader = self._readable(self._info if writer is None else writer)
        buffer = io.BytesIO(data)
        try:
            datum = self._fastavro.schemaless_reader(
                buffer, written, reader, return_record_name=True, return_record_name_override=True
            )
        except _UNFIT as error:
            raise SchemaSerializationError(f"{len(data)} bytes are not of the Avro schema: {_words(error)}") from error
        value: T = self._codec.load(datum, False) if self._codec is not None else datum
        return value

    def _readable(self, writer: SchemaInfo) -> tuple[Any, Any]:
        """A writer's definition and, unless the values are taken as they were written, the own one."""
        found = self._writers.get(writer.schema)
        if found is None:
            if writer.type is not SchemaType.AVRO:
                raise SchemaSerializationError(f"the message was written with a {writer.type.name} schema, not AVRO")
            # A class picks its fields by itself, whatever the writer's records are called.
            is_own = self._codec is not None or writer.schema == self._info.schema
            definition = load_json(writer.schema)
            try:
                written = parsed_exactly(self._fastavro, definition, "" if is_own else self._info.schema.decode())
            except _UNFIT as error:
                raise SchemaSerializationError(f"the writer's schema: no Avro schema: {_words(error)}") from error
            found = self._writers[writer.schema] = written, None if is_own else self._reader_for(written)
            if len(self._writers) > PARSED_MAX:
                del self._writers[next(iter(self._writers))]
        return found

    def _reader_for(self, written: Any) -> Any:  # noqa: ANN401
        """The own definition, going also by the name of the writer's record: Pulsar's versions may differ in it."""
        definition = self._definition
        if isinstance(definition, dict) and isinstance(written, dict) and definition.get("type") == "record":
            aliases = definition.get("aliases")
            names = [*(aliases if isinstance(aliases, list) else []), written.get("name")]
            definition = {**definition, "aliases": names}
        try:
            return parsed_exactly(self._fastavro, definition)
        except DefaultError as error:
            raise SchemaSerializationError(f"the schema: {error}") from error

    def _parse(self, definition: Json) -> Any:  # noqa: ANN401
        try:
            return self._fastavro.parse_schema(definition)
        except _UNFIT as error:
            raise InvalidConfiguration(f"no Avro schema: {_words(error)}") from error

    def __getstate__(self) -> dict[str, Any]:
        # What is fastavro's is made anew, in another process maybe.
        return {name: value for name, value in vars(self).items() if name not in ("_fastavro", "_parsed", "_writers")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._fastavro = load_fastavro()
        self._parsed = self._parse(self._definition)
        self._writers = {}

    def __repr__(self) -> str:
        return f"AvroSchema({self._codec.python_type.__qualname__ if self._codec is not None else '...'})"


def load_fastavro() -> ModuleType:
    """fastavro, loaded when the first schema needs it. Raises InvalidConfiguration if it is not installed."""
    try:
        import fastavro
    except ImportError as error:
        raise InvalidConfiguration(
            "Avro schemas need fastavro, which is not installed: pip install 'geminga[avro]'"
        ) from error
    return fastavro


def load_json(data: bytes) -> Json:
    """A document. Raises SchemaSerializationError."""
    try:
        document: Json = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SchemaSerializationError(f"{len(data)} bytes are no JSON: {_words(error)}") from error
    return document


def _definition_of(given: object) -> Json:
    try:
        text = given if isinstance(given, str) else json.dumps(given)
        return load_json(text.encode())
    except (SchemaSerializationError, TypeError, ValueError, RecursionError) as error:
        raise InvalidConfiguration(
            f"schema_definition={reprlib.repr(given)}: expected Avro's JSON: {_words(error)}"
        ) from error


def _dump_definition(definition: Json) -> bytes:
    return json.dumps(definition, separators=(",", ":")).encode()


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
