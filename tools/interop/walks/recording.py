"""What Apache Pulsar's broker showed on walks, kept as facts for the tests that run without Java: a line for each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tools.interop.walks.programs import Step
from tools.interop.walks.walking import Seen

SHOWN: Final = Path(__file__).resolve().parent / "shown.jsonl"


class Shown(NamedTuple):
    """One walk, and what was seen at each of its steps."""

    seed: int
    steps: list[Step]
    seen: list[Seen]


def record(walks: Iterable[Shown]) -> None:
    """Write them anew."""
    lines = [json.dumps(each._asdict(), separators=(",", ":")) + "\n" for each in walks]
    SHOWN.write_text("".join(lines), encoding="utf-8")


def recorded() -> list[Shown]:
    """What was written."""
    return [Shown(**json.loads(line)) for line in SHOWN.read_text(encoding="utf-8").splitlines()]
