"""What ``pulsar-admin`` sends: the requests of all its commands, as ``tools.interop.admin.keeping`` keeps them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tools.interop.rest import calls
from tools.interop.rest.calls import Call, Publish, Story

KEPT: Final = Path(__file__).with_suffix(".jsonl")
_TOPIC: Final = "persistent/{ns}/t"
#: Whose names other tables and tests compare, or which tell of the machine and of all topics.
_TOLD_ELSEWHERE: Final = re.compile(r"/broker-stats/|/configuration/runtime|[sS]tats\b")
_EARLIEST: Final = {"ledgerId": -1, "entryId": -1}
#: Of the topic that a story begins with.
MESSAGES: Final = 3


def kept(path: Path = KEPT) -> Iterator[Story]:
    """The stories, for the table."""
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        name = "admin " + re.sub(r"[^\w]+", " ", fields["story"]).strip()
        steps = [*_prepared(fields["needs"]), *(_call(*request) for request in fields["requests"])]
        yield Story(name, *steps)


def _prepared(needs: Iterable[str]) -> Iterator[Call | Publish]:
    for need in needs:
        match need:
            case "{topic}":
                yield calls.put(_TOPIC)
                yield from (calls.put(f"{_TOPIC}/subscription/{name}", _EARLIEST) for name in "st")
                yield Publish("persistent://{ns}/t", MESSAGES, {"batching_enabled": False})
            case "non-{topic}":
                yield calls.put(f"non-{_TOPIC}")
            case "{parts}":
                yield calls.put("persistent/{ns}/p/partitions", 2)
            case _:
                yield calls.put("namespaces/{ns}-e")


def _call(method: str, path: str, *rest: str) -> Call:
    keys = not _TOLD_ELSEWHERE.search(path)
    match rest:
        case (kind, accept, body):
            headers = tuple((name, text) for name, text in (("Content-Type", kind), ("Accept", accept)) if text)
            return Call(method, path, body.encode() if body else None, headers, keys=keys)
        case (body,):
            return Call(method, path, body.encode(), keys=keys)
        case _:
            return Call(method, path, keys=keys)


STORIES: Final = list(kept())
