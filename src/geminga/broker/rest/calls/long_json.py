"""Answers of any length: JSON is written piece by piece in several turns of the loop, so that others are served."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from typing import Final

from starlette.responses import Response

from geminga.broker.resources.documents import Json
from geminga.runtime import Turns

#: Values of one piece: some 50 us.
PIECE_VALUES_MAX: Final = 256
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


def json_steps(value: Json | Mapping[str, Json]) -> Generator[None, None, bytes]:
    """``value`` as ``json_response`` writes it, with a step for each piece."""
    parts: list[str] = []
    for piece in _pieces(value):
        parts.append(piece)
        yield
    return "".join(parts).encode()


def _pieces(value: Json | Mapping[str, Json]) -> Iterator[str]:
    if _values_left(value, PIECE_VALUES_MAX) >= 0:
        yield _ENCODER.encode(value)
    elif isinstance(value, Mapping):
        before = "{"
        for key, member in value.items():
            yield f"{before}{_ENCODER.encode(key)}:"
            yield from _pieces(member)
            before = ","
        yield "}"
    elif isinstance(value, list):
        before = "["
        for member in value:
            yield before
            yield from _pieces(member)
            before = ","
        yield "]"


def _values_left(value: Json | Mapping[str, Json], left: int) -> int:
    """Of ``left`` values, without those of ``value``; below 0: it has more, which are not counted further."""
    left -= 1
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for member in members:
        if left < 0:
            break
        left = _values_left(member, left) if isinstance(member, dict | list) else left - 1
    return left


async def long_json_response(value: Json | Mapping[str, Json], turns: Turns) -> Response:
    """As ``json_response``, in several turns."""
    return Response(await turns.through(json_steps(value)), media_type="application/json")
