"""A plan of tasks as text: how :func:`geminga.spark.read_topic` hands what it decided to the data source. Pure.

``{"tasks":[[{"topic":"persistent://p/n/a","start":"3:0:0","end":"3:9:0","first":true},...],...],"v":1}``. A piece
with ``path`` is of a file of the lake, whose row groups ``groups`` names: the first, and the one behind the last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from geminga.spark.rules.option_values import OptionError
from geminga.spark.source_rules.lake_plan import LakeRange, Piece
from geminga.spark.source_rules.offsets import OffsetError, ReadPosition
from geminga.spark.source_rules.planner import TopicRange

_VERSION: Final = 1

#: The tasks, each its pieces in order.
Plan = tuple[tuple[Piece, ...], ...]


def encode_plan(tasks: Sequence[Sequence[Piece]]) -> str:
    """The text."""
    return json.dumps({"tasks": [[_fields(piece) for piece in task] for task in tasks], "v": _VERSION})


def _fields(piece: Piece) -> dict[str, object]:
    found: dict[str, object] = {"topic": piece.topic, "start": str(piece.start), "end": str(piece.end)}
    if isinstance(piece, LakeRange):
        return {**found, "path": piece.path, "groups": [piece.first_group, piece.end_group]}
    return {**found, "first": piece.is_first}


def decode_plan(name: str, text: str) -> Plan:
    """The inverse; raises OptionError with the option's ``name``."""
    try:
        found = json.loads(text)
        if found["v"] != _VERSION:
            raise ValueError(f"version {found['v']!r}, expected {_VERSION}")
        return tuple(tuple(_piece(fields) for fields in task) for task in found["tasks"])
    except (ValueError, TypeError, LookupError, AttributeError, OffsetError) as error:
        raise OptionError(f"{name}: not what read_topic wrote ({error!r}); leave it out") from error


def _piece(fields: Mapping[str, object]) -> Piece:
    topic, start, end = str(fields["topic"]), ReadPosition.parse(fields["start"]), ReadPosition.parse(fields["end"])
    groups = fields.get("groups")
    if groups is None:
        return TopicRange(topic, start, end, is_first=bool(fields["first"]))
    if not isinstance(groups, list) or not 0 <= int(groups[0]) <= int(groups[1]):
        raise ValueError(f"row groups {groups!r}")
    return LakeRange(topic, start, end, str(fields["path"]), int(groups[0]), int(groups[1]))
