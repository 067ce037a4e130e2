"""Names as they stand in the paths of requests, as Pulsar's broker decodes them (docs/rest.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from geminga.model.errors import InvalidTopicNameError
from geminga.model.topic_name import TopicName


class BadTopicNameError(InvalidTopicNameError, ValueError):
    """Not a topic name; a ValueError, as for every bad name here."""


def text(name: str | int) -> str:
    """A name at a place of its own."""
    return quote(str(name), safe="")


def namespace(name: str) -> str:
    """``tenant/namespace``; raises ValueError."""
    tenant, slash, local = name.partition("/") if isinstance(name, str) else ("", "", "")
    if not slash or not tenant or not local or "/" in local:
        raise ValueError(f"a namespace is tenant/namespace, not {name!r}")
    return f"{text(tenant)}/{text(local)}"


def topic(name: str) -> str:
    """``domain/tenant/namespace/topic``; raises BadTopicNameError."""
    parsed = _parsed(name)
    return f"{parsed.domain}/{place(name)}"


def place(name: str) -> str:
    """The same without the domain."""
    parsed = _parsed(name)
    return f"{namespace(parsed.namespace)}/{text(parsed.local_name)}"


def _parsed(name: str) -> TopicName:
    if not isinstance(name, str):
        raise BadTopicNameError(f"a topic is tenant/namespace/topic, not {name!r}")
    try:
        return TopicName.parse(name)
    except InvalidTopicNameError as error:
        raise BadTopicNameError(str(error)) from None


def subscription(name: str) -> str:
    """Below a topic: the broker decodes it twice."""
    return text(text(name))


_LAST = (1 << 63) - 1
_WORDS = {"latest": (_LAST, _LAST), "earliest": (-1, -1)}


def position(value: str | Mapping[str, Any]) -> dict[str, Any]:
    """A message's place as a body; raises ValueError."""
    if not isinstance(value, str):
        return dict(value)
    try:
        ledger_id, entry_id = _WORDS[value]
    except KeyError:
        raise ValueError(f"a position is latest, earliest or an object with ledgerId, not {value!r}") from None
    return {"ledgerId": ledger_id, "entryId": entry_id, "partitionIndex": -1}
