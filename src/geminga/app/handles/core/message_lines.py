"""Messages as lines of JSON, and back: the rules of docs/formats/message-lines.md."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from geminga.model.errors import LocalError

FORMAT: Final = "geminga-messages"
VERSION: Final = 1


class LineError(LocalError):
    """A line is not as the format says."""


class MessageLine(NamedTuple):
    """A message, as far as an import makes it again, and where it lay."""

    #: ``ledger:entry``, or ``ledger:entry:index`` in a batch.
    id: str
    #: None: a null value.
    payload: bytes | None
    #: Text, or bytes that travel as base64; None: no key.
    key: str | bytes | None = None
    ordering_key: bytes = b""
    properties: Mapping[str, str] = {}
    #: Milliseconds since the epoch; 0: none.
    publish_time_ms: int = 0
    event_time_ms: int = 0
    #: Of the schema that it was written with; empty: none.
    schema_version: bytes = b""
    #: -1: the topic has none.
    partition: int = -1


class SchemaLine(NamedTuple):
    """A schema, before the first message of it."""

    version: bytes
    name: str
    #: Pulsar's word: AVRO, JSON, ...
    type: str
    definition: bytes
    properties: Mapping[str, str]


class Header(NamedTuple):
    """The first line."""

    topic: str


def header_line(header: Header) -> str:
    """Without its end."""
    return _dumped({"format": FORMAT, "version": VERSION, "topic": header.topic})


def schema_line(schema: SchemaLine) -> str:
    """Without its end."""
    return _dumped(
        {
            "schema": {
                "version": _base64(schema.version),
                "name": schema.name,
                "type": schema.type,
                **_bytes_as("definition", schema.definition),
                "properties": dict(schema.properties),
            }
        }
    )


def message_line(line: MessageLine) -> str:
    """Without its end."""
    document: dict[str, Any] = {"id": line.id}
    if line.partition >= 0:
        document["partition"] = line.partition
    document["publishTime"] = line.publish_time_ms
    if line.event_time_ms:
        document["eventTime"] = line.event_time_ms
    if isinstance(line.key, bytes):
        document["keyBase64"] = _base64(line.key)
    elif line.key is not None:
        document["key"] = line.key
    if line.ordering_key:
        document["orderingKeyBase64"] = _base64(line.ordering_key)
    if line.properties:
        document["properties"] = dict(line.properties)
    if line.schema_version:
        document["schemaVersion"] = _base64(line.schema_version)
    document |= {"payload": None} if line.payload is None else _bytes_as("payload", line.payload)
    return _dumped(document)


def parse_line(text: str | bytes, number: int) -> Header | SchemaLine | MessageLine:
    """What a line says; ``number`` counts from 1. Raises LineError, which names it."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LineError(f"line {number} is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise LineError(f"line {number}: expected an object")
    try:
        if "format" in document:
            return _header(document)
        if "schema" in document:
            return _schema(document["schema"])
        return _message(document)
    except (KeyError, TypeError, ValueError) as error:
        raise LineError(f"line {number}: {_told(error)}") from error


def _told(error: Exception) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)


def _header(document: Mapping[str, Any]) -> Header:
    if document["format"] != FORMAT or document.get("version") != VERSION:
        raise ValueError(f"the file is {document['format']} {document.get('version')}; expected {FORMAT} {VERSION}")
    return Header(_typed(document, "topic", str))


def _schema(document: Mapping[str, Any]) -> SchemaLine:
    return SchemaLine(
        _unbase64(document, "version"),
        _typed(document, "name", str),
        _typed(document, "type", str),
        _bytes_of(document, "definition"),
        _texts(document),
    )


def _message(document: Mapping[str, Any]) -> MessageLine:
    key = document.get("key")
    if "keyBase64" in document:
        key = _unbase64(document, "keyBase64")
    elif key is not None:
        key = _typed(document, "key", str)
    is_null = "payload" in document and document["payload"] is None
    return MessageLine(
        _typed(document, "id", str),
        None if is_null else _bytes_of(document, "payload"),
        key,
        _unbase64(document, "orderingKeyBase64") if "orderingKeyBase64" in document else b"",
        _texts(document),
        _typed(document, "publishTime", int) if "publishTime" in document else 0,
        _typed(document, "eventTime", int) if "eventTime" in document else 0,
        _unbase64(document, "schemaVersion") if "schemaVersion" in document else b"",
        _typed(document, "partition", int) if "partition" in document else -1,
    )


def _typed(document: Mapping[str, Any], name: str, kind: type) -> Any:  # noqa: ANN401
    value = document[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; expected a {'number' if kind is int else 'text'}")
    return value


def _texts(document: Mapping[str, Any]) -> Mapping[str, str]:
    found = document.get("properties", {})
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("properties are texts by name")
    return found


def _bytes_as(name: str, data: bytes) -> dict[str, str]:
    """Text where the bytes are UTF-8, which comes back byte by byte; base64 else."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": _base64(data)}


def _bytes_of(document: Mapping[str, Any], name: str) -> bytes:
    if f"{name}Base64" in document:
        return _unbase64(document, f"{name}Base64")
    text: str = _typed(document, name, str)
    return text.encode()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unbase64(document: Mapping[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(_typed(document, name, str), validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name} is no base64: {error}") from error


def _dumped(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
