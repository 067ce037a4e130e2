"""Versions of a topic's schema, how one reads, and what is different between two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from geminga.admin.errors import AdminError, NotFoundError
from geminga.app.console.core.moments import iso_time
from geminga.app.console.core.schema_changes import difference, readable
from geminga.app.console.reading.choosing import topic_named
from geminga.app.console.tables import Page, Refusal, Rendered, View

#: Versions that the page lists, the newest ones.
LISTED_MAX: Final = 200
_VERSION_MAX: Final = (1 << 31) - 1


async def schemas(view: View) -> Rendered:
    """``topic``; ``version``: that is shown, else the newest; ``before``: that it is compared with."""
    values: dict[str, Any] = {
        "topic": "",
        "strategy": "",
        "versions": [],
        "left_out": 0,
        "chosen": None,
        "before": None,
        "difference": None,
    }
    name = view.query.get("topic", "").lstrip()
    if not name:
        return Rendered("schemas.html", values)
    topic = str(topic_named(name).partitioned_topic)
    values["topic"] = topic
    try:
        answer = await view.admin.schemas.list(topic)
    except NotFoundError:
        answer = {}
    found = sorted(answer.get("getSchemaResponses") or (), key=lambda each: -int(each["version"]))
    values["strategy"] = await _strategy(view, topic)
    if not found:
        return Rendered("schemas.html", values)
    by_version = {int(each["version"]): each for each in found}
    chosen = _version(view, by_version, "version", int(found[0]["version"]))
    values |= {
        "versions": [_listed(each) for each in found[:LISTED_MAX]],
        "left_out": max(len(found) - LISTED_MAX, 0),
        "chosen": {**_listed(chosen), "text": readable(chosen), "properties": chosen.get("properties") or {}},
    }
    if view.query.get("before"):
        before = _version(view, by_version, "before", int(chosen["version"]))
        values |= {"before": _listed(before), "difference": difference(before, chosen)}
    return Rendered("schemas.html", values)


def _version(view: View, found: Mapping[int, Mapping[str, Any]], name: str, standard: int) -> Mapping[str, Any]:
    number = view.number(name, standard, least=0, most=_VERSION_MAX)
    if number not in found:
        raise Refusal(f"The topic has no version {number} of its schema.", 404)
    return found[number]


def _listed(document: Mapping[str, Any]) -> dict[str, Any]:
    added_ms = int(document.get("timestamp") or 0)
    return {
        "version": int(document["version"]),
        "type": str(document.get("type") or ""),
        "added": iso_time(added_ms) if added_ms > 0 else "",
    }


async def _strategy(view: View, topic: str) -> str:
    """What a new version is measured by; empty: it may not be seen."""
    try:
        found = await view.admin.topic_policies.schema_compatibility_strategy.get(topic, applied=True)
    except AdminError:
        return ""
    return str(found or "")


PAGES: Final = (Page("/schemas", schemas, section="Schemas"),)
