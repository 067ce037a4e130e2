"""The manifest of a topic: which files make up its offloaded part. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from geminga.model.errors import CorruptionError

FORMAT_VERSION: Final = 1


class ManifestLedger(NamedTuple):
    """One file of a topic."""

    ledger_id: int
    uid: str
    #: Relative to the topic's directory.
    file: str
    entries: int
    #: Payload bytes as stored on bookies.
    length_bytes: int
    closed_ms: int
    file_bytes: int
    rows: int
    #: Rows that are messages.
    messages: int
    #: The least and the greatest; None: no message has one.
    first_publish_ms: int | None
    last_publish_ms: int | None
    #: What follows in the topic's list, so that a reader knows that nothing lies between; None: not known.
    next_ledger_id: int | None = None


class Manifest(NamedTuple):
    """See the module."""

    topic: str
    created_ms: int
    list_version: int
    written_ms: int
    #: Ascending.
    ledgers: tuple[ManifestLedger, ...]


_MEMBERS: Final = {
    "ledgerId": "ledger_id",
    "uid": "uid",
    "file": "file",
    "entries": "entries",
    "length": "length_bytes",
    "closedMs": "closed_ms",
    "fileBytes": "file_bytes",
    "rows": "rows",
    "messages": "messages",
    "firstPublishMs": "first_publish_ms",
    "lastPublishMs": "last_publish_ms",
    "nextLedgerId": "next_ledger_id",
}
_TEXTS: Final = frozenset({"uid", "file"})
_MAYBE: Final = frozenset({"firstPublishMs", "lastPublishMs", "nextLedgerId"})


def encode_manifest(manifest: Manifest) -> bytes:
    """The whole file."""
    document = {
        "version": FORMAT_VERSION,
        "topic": manifest.topic,
        "createdMs": manifest.created_ms,
        "listVersion": manifest.list_version,
        "writtenMs": manifest.written_ms,
        "ledgers": [{key: getattr(one, name) for key, name in _MEMBERS.items()} for one in manifest.ledgers],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_manifest(data: bytes, where: str) -> Manifest:
    """The inverse. Raises CorruptionError with ``where``."""
    try:
        document = json.loads(data)
    except ValueError as error:
        raise CorruptionError(f"{where}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CorruptionError(f"{where}: not an object")
    version = _number(document, "version", where)
    if version > FORMAT_VERSION:
        raise CorruptionError(f"{where}: format version {version}, newer than {FORMAT_VERSION}")
    ledgers = document.get("ledgers")
    if not isinstance(ledgers, list):
        raise CorruptionError(f"{where}: ledgers is no list")
    found = tuple(_ledger(one, where) for one in ledgers)
    ids = [one.ledger_id for one in found]
    if ids != sorted(set(ids)):
        raise CorruptionError(f"{where}: ledger ids do not ascend")
    return Manifest(
        _text(document, "topic", where),
        _number(document, "createdMs", where),
        _number(document, "listVersion", where),
        _number(document, "writtenMs", where),
        found,
    )


def _ledger(value: object, where: str) -> ManifestLedger:
    if not isinstance(value, dict):
        raise CorruptionError(f"{where}: a ledger is no object")
    fields: dict[str, Any] = {}
    for key, name in _MEMBERS.items():
        if key in _MAYBE and value.get(key) is None:
            fields[name] = None
        else:
            fields[name] = _text(value, key, where) if key in _TEXTS else _number(value, key, where)
    if "/" in fields["file"]:
        raise CorruptionError(f"{where}: {fields['file']!r} is no name of a file in the topic's directory")
    return ManifestLedger(**fields)


def _number(document: Mapping[str, object], key: str, where: str) -> int:
    value = document.get(key)
    if type(value) is not int:
        raise CorruptionError(f"{where}: {key} is {value!r}, expected a whole number")
    return value


def _text(document: Mapping[str, object], key: str, where: str) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise CorruptionError(f"{where}: {key} is {value!r}, expected a text")
    return value
