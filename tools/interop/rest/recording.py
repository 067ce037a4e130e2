"""What Apache Pulsar's broker answered, kept as facts for the tests that run without Java: a line for each call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tools.interop.rest.calls import Call, Story
from tools.interop.rest.sending import Answer

ANSWERS: Final = Path(__file__).resolve().parent / "answers"


def names_of(stories: Iterable[Story]) -> list[str]:
    """The calls of some stories, in order."""
    return [name for story in stories for name, step in story.named_steps() if isinstance(step, Call)]


def record(table: str, stories: Iterable[Story], answers: Mapping[str, Answer]) -> None:
    """Write what was answered to the calls of one table."""
    ANSWERS.mkdir(exist_ok=True)
    lines = [_encoded(name, answers[name]) for name in names_of(stories)]
    (ANSWERS / f"{table}.jsonl").write_text("".join(lines), encoding="utf-8")


def recorded(table: str) -> dict[str, Answer]:
    """What was written; empty if nothing was."""
    path = ANSWERS / f"{table}.jsonl"
    if not path.exists():
        return {}
    entries = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {entry["call"]: Answer(entry["status"], entry.get("reason", ""), entry.get("body")) for entry in entries}


def _encoded(name: str, answer: Answer) -> str:
    entry: dict[str, object] = {"call": name, "status": answer.status}
    if answer.reason:
        entry["reason"] = answer.reason
    if answer.body is not None:
        entry["body"] = answer.body
    return json.dumps(entry, ensure_ascii=False) + "\n"
