"""Which classes are records, and their codecs: dataclasses, pydantic models (2.x) and :class:`.Record` classes.

The record's name is the class's; ``__avro_namespace__``, if the class has it, is its namespace. Fields with a default
have it in the definition too, so that schemas can grow: what was written before a field existed can be read.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from typing import Annotated, Any

from geminga.client._api.errors import InvalidConfiguration
from geminga.client.schema._base import SchemaSerializationError
from geminga.client.schema._records import Record, RecordTypeReader
from geminga.client.schema._scalars import AvroDecimal, TypeCodec, digits_among
from geminga.client.schema._types import FieldCodec, RecordCodec, UnionCodec

_MISSING = object()


def codec_of_class(python_type: type) -> RecordCodec:
    """The codec of a class. Raises InvalidConfiguration for a class that is no record, or has a field without type."""
    codec = ClassReader().record_of(python_type) if isinstance(python_type, type) else None
    if codec is None:
        raise InvalidConfiguration(
            f"{python_type!r} is no record: expected a dataclass, a pydantic model or a subclass of Record"
        )
    return codec


class PydanticCodec(RecordCodec):
    """Values are made, and so validated, by pydantic."""

    def construct(self, values: dict[str, Any]) -> Any:  # noqa: ANN401
        """Raises pydantic's ValidationError, a ValueError."""
        model: Any = self.python_type
        fields = model.model_fields
        return model.model_validate({fields[name].alias or name: value for name, value in values.items()})


class ClassReader(RecordTypeReader):
    """Reads classes of every kind."""

    def record_of(self, python_type: type) -> RecordCodec | None:
        """The codec of a class that is a record. Raises InvalidConfiguration."""
        digits: dict[str, AvroDecimal | None] = {}
        known = self.records.get(python_type)
        if known is not None:
            return known
        if issubclass(python_type, Record):
            return self.record_class(python_type)
        if dataclasses.is_dataclass(python_type):
            codec = self._declare(RecordCodec, python_type)
            defaults = {field.name: _default_of(field) for field in dataclasses.fields(python_type) if field.init}
        elif hasattr(python_type, "model_fields") and hasattr(python_type, "model_validate"):
            codec = self._declare(PydanticCodec, python_type)
            fields = python_type.model_fields
            defaults = {name: _default_of_model(field) for name, field in fields.items()}
            digits = {name: digits_among(field.metadata) for name, field in fields.items()}
        else:
            return None
        hints = _hints(python_type) | _given_types(python_type)
        hints |= {name: Annotated[hints[name], one] for name, one in digits.items() if one is not None}
        for name, default in defaults.items():
            try:
                codec.fields.append(_field(name, self.codec_of(hints[name]), default))
            except InvalidConfiguration as error:
                raise InvalidConfiguration(f"field {name} of {python_type.__qualname__}: {error}") from error
        return codec

    def _declare(self, kind: type[RecordCodec], python_type: type) -> RecordCodec:
        name = re.sub(r"\W+", "_", python_type.__name__).strip("_")
        codec = kind(python_type, name, getattr(python_type, "__avro_namespace__", ""))
        for other in self.records.values():
            if other.union_key == codec.union_key:
                raise InvalidConfiguration(f"two classes are called {codec.union_key}: give one an __avro_namespace__")
        self.records[python_type] = codec
        return codec


def _hints(python_type: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(python_type, include_extras=True)
    except NameError as error:
        raise InvalidConfiguration(
            f"{python_type.__qualname__}: {error}; classes that annotations name must be found in the module"
        ) from error


def _given_types(python_type: type) -> dict[str, Any]:
    """Of a generic model's fields, with what was given for its variables."""
    generic = getattr(python_type, "__pydantic_generic_metadata__", {})
    if not generic.get("args"):
        return {}
    fields: dict[str, Any] = python_type.model_fields  # type: ignore[attr-defined]
    return {
        name: Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        for name, field in fields.items()
    }


def _default_of(field: dataclasses.Field[Any]) -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return _MISSING


def _default_of_model(field: Any) -> object:  # noqa: ANN401
    return _MISSING if field.is_required() else field.get_default(call_default_factory=True)


def _field(name: str, codec: TypeCodec, default: object) -> FieldCodec:
    if default is _MISSING:
        return FieldCodec(name, codec)
    if isinstance(codec, UnionCodec):
        # Avro: the default of a union is one of its first branch.
        first = [branch for branch in codec.branches if branch.matches(default)][:1]
        codec = UnionCodec([*first, *(branch for branch in codec.branches if branch not in first)])
    try:
        return FieldCodec(name, codec, has_default=True, default=codec.default_form(default))
    except SchemaSerializationError:
        # Such as a default_factory that needs more: Python has a default, the definition has none.
        return FieldCodec(name, codec)
