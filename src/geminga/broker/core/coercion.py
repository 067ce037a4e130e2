"""JSON values read as Pulsar's administration reads them: numbers and booleans may come as texts. Pure.

Pulsar's broker leaves this to a JSON library, whose rules clients got used to: ``"20"`` and ``20.0`` are 20, ``"True"``
and 1 are true, 3 is ``"3"`` where a text belongs. Not taken over is what loses something silently: there 2.5 becomes 2,
and an empty text or nothing at all becomes 0 or false.

Beside it, JSON objects in nodes of the metadata store, written as Pulsar writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from geminga.model.errors import CorruptionError, RemoteError

#: A JSON value and a JSON object, as ``json.loads`` makes them.
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Document = dict[str, Json]

#: Largest values of what Pulsar keeps as a Java int or long.
INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
#: Values in a JSON text: reading so many takes 40 ms, in one call that nothing else comes between.
VALUES_MAX: Final = 250_000
#: Each of them is behind one of these.
_BEFORE_VALUES: Final = (b",", b"[", b"{")
#: Characters of a value that an error shows.
_SHOWN_CHARACTERS: Final = 40


def encode_document(document: Mapping[str, Json]) -> bytes:
    """Compact JSON, keys in the order given; null members are left out, as Pulsar's object mapper does."""
    kept = {key: value for key, value in document.items() if value is not None}
    return json.dumps(kept, separators=(",", ":"), ensure_ascii=False).encode()


def decode_document(path: str, value: bytes) -> Document:
    """The inverse of :func:`encode_document`, of the node at ``path``, which the CorruptionError names."""
    try:
        document = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"metadata node {path} does not hold JSON: {error}") from error
    if not isinstance(document, dict):
        raise CorruptionError(f"metadata node {path} holds {type(document).__name__} where a JSON object belongs")
    return document


class BodyError(RemoteError):
    """A body, or a part of one, that is not what belongs there: 400."""


class NotBuiltError(RemoteError):
    """Pulsar has it, this version has not: 501."""

    http_status = 501

    def __init__(self, what: str) -> None:
        """``what`` is missing, such as "compaction"; the admin REST's answer names the version too."""
        super().__init__(f"{what}: not built")


def has_too_many_values(text: bytes | str) -> bool:
    """Whether a JSON text has more than :data:`VALUES_MAX` values, before it is read; of none that is JSON anything."""
    if len(text) <= VALUES_MAX:
        return False
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if sum(map(data.count, _BEFORE_VALUES)) <= VALUES_MAX:
        return False
    # Most of it may be in texts: those are left out.
    data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if data.count(b'"') > 4 * VALUES_MAX:  # two for each text, and there are names
        return True
    outside = b"".join(data.split(b'"')[::2])
    return sum(map(outside.count, _BEFORE_VALUES)) > VALUES_MAX


def number_of(value: Json, what: str, most: int = INT_MAX) -> int:
    """A whole number from ``-most - 1`` to ``most``; raises BodyError, whose text begins with ``what``."""
    found: int | None = None
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        found = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        found = value
    elif isinstance(value, float) and value.is_integer():
        found = int(value)
    if found is None:
        raise BodyError(f"{what} must be a whole number, not {shown(value)}")
    if not -most - 1 <= found <= most:
        raise BodyError(f"{what} must be from {-most - 1} to {most}")
    return found


def boolean_of(value: Json, what: str) -> bool:
    """True or false; raises BodyError, whose text begins with ``what``."""
    if isinstance(value, int):
        return value != 0
    found = _BOOLEANS.get(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise BodyError(f"{what} must be true or false, not {shown(value)}")
    return found


def text_of(value: Json, what: str) -> str:
    """A text; numbers and booleans as they are written. Raises BodyError, whose text begins with ``what``."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, list | dict):
        raise BodyError(f"{what} must be a text, not {shown(value)}")
    return str(value).lower() if isinstance(value, bool) else str(value)


def texts_of(value: Json, what: str) -> list[str]:
    """A list of texts, each once, in the order of the first; raises BodyError, whose text begins with ``what``."""
    if not isinstance(value, list):
        raise BodyError(f"{what} must be a list of texts, not {shown(value)}")
    return list(dict.fromkeys(text_of(item, f"a member of {what}") for item in value))


def object_of(value: Json, what: str) -> Document:
    """A JSON object; raises BodyError, whose text begins with ``what``."""
    if not isinstance(value, dict):
        raise BodyError(f"{what} must be a JSON object, not {shown(value)}")
    return value


def shown(value: Json) -> str:
    """A value as an error names it."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return repr(value[:_SHOWN_CHARACTERS])
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
    return str(value)[:_SHOWN_CHARACTERS]
