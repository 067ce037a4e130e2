"""The requests that ``pulsar-admin`` sent, kept as facts: stories of the table of REST calls, which need no Java.

A line for each story: what it begins with, then its requests. Stories that send nothing new are left out, and so are
those that name the broker's own address or a bundle, have a transaction, or end the broker; so are requests that name
a ledger.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.interop.admin.recorder import Request
from tools.interop.admin.stories import LAST, POLICY, Story
from tools.interop.rest.tables.pulsar_admin import KEPT

#: What stands in lines whose requests are other ones each time.
_OWN: Final = re.compile(r"\{(broker|web|service|bundle|most)\}|" + re.escape(LAST))
#: A request with the id of a ledger, which is another one each time.
_LEDGER: Final = re.compile(r'"ledgerId":\d{1,18},|/ledger/\d+/')
_NEEDS: Final = ("{topic}", "non-{topic}", "{parts}", "{empty}")
#: As clients send it where nothing else is asked for; the table's calls have the same.
_USUAL: Final = "application/json"


def keep(stories: Sequence[tuple[Story, str, list[Request]]], path: Path = KEPT) -> int:
    """Write what was sent: each story, its namespace and its requests. How many requests were kept."""
    lines: dict[str, tuple[set[str], list[list[str]]]] = {}
    seen: set[str] = set()
    for story, namespace, requests in stories:
        text = " ".join(story.lines)
        sent = [encoded(request, namespace) for request in requests]
        sent = [one for one in sent if not _LEDGER.search(" ".join(one))]
        new = {json.dumps(one) for one in sent} - seen
        if _OWN.search(text) or not new:
            continue
        seen |= new
        needs, together = lines.setdefault(_title(story), (set(), []))
        needs |= {need for need in _NEEDS if need in text.split()}
        together += sent
    path.write_text("".join(_line(title, *line) for title, line in lines.items()), encoding="utf-8")
    return sum(len(sent) for _, sent in lines.values())


def _title(story: Story) -> str:
    """Policies of a group do nothing to each other: they are one story."""
    if all(POLICY.match(line) for line in story.lines):
        return f"{story.lines[0].split()[0]} policies"
    return story.title


def _line(title: str, needs: set[str], sent: list[list[str]]) -> str:
    fields = {"story": title, "needs": sorted(needs), "requests": sent}
    return json.dumps(fields, ensure_ascii=False) + "\n"


def encoded(request: Request, namespace: str) -> list[str]:
    """Method, path, type of the body, accepted type, body; the last three are left out where they are usual."""
    body = None if request.body is None else request.body.decode()
    fields = [request.method, request.target, request.content_type, request.accept, body or ""]
    kind, accept = (_without_parameters(field) for field in (request.content_type, request.accept))
    if kind in ("", _USUAL) and accept in ("", _USUAL, "*/*"):
        fields = [request.method, request.target, *([body] if body else [])]
    return [field.replace(namespace, "{ns}") for field in fields]


def _without_parameters(header: str) -> str:
    return header.partition(";")[0].strip()
