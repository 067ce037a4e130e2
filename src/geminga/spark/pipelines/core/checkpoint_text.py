"""Spark's own files of a checkpoint, as text: the offset log and the commit log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from geminga.model.errors import StorageError


class CheckpointDamagedError(StorageError):
    """A file of the checkpoint that is not what Spark writes."""


@dataclass(frozen=True, slots=True)
class LoggedOffsets:
    """``offsets/N``: the watermark that batch N works with, and where each source's part of it ends."""

    watermark_ms: int
    timestamp_ms: int
    #: In the order of the sources; None: a source that had nothing yet.
    sources: tuple[Mapping[str, Any] | None, ...]


def parse_offsets(text: str) -> LoggedOffsets:
    """The file's text; raises CheckpointDamagedError."""
    lines = text.split("\n")
    try:
        if not lines[0].startswith("v1"):
            raise ValueError(f"version {lines[0][:20]!r}, not v1")
        metadata = json.loads(lines[1])
        sources = tuple(None if line == "-" else json.loads(line) for line in lines[2:] if line)
        return LoggedOffsets(int(metadata["batchWatermarkMs"]), int(metadata["batchTimestampMs"]), sources)
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, RecursionError) as error:
        raise CheckpointDamagedError(f"a file of the offset log can not be read: {error}") from None


def latest_number(names: Iterable[str]) -> int:
    """The highest batch among the names of a log's files; -1: there is none."""
    return max((int(name) for name in names if name.isascii() and name.isdecimal()), default=-1)
