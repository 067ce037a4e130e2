"""What a command prints: for people, as JSON, as YAML, or as ``pulsar-admin`` has it, which scripts read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from geminga.admin.values import StoredMessage
from geminga.app.administration.session import UNSENT
from geminga.app.commands.documents import render

#: Commands that ``pulsar-admin`` prints a line for each member of.
BY_LINE: Final = frozenset(
    {
        "brokers get-all-dynamic-config",
        "brokers get-runtime-config",
        "clusters list-failure-domains",
        "namespaces get-backlog-quotas",
        "namespaces get-properties",
        "namespaces permissions",
        "namespaces subscription-permission",
        "ns-isolation-policy list",
        "persistent permissions",
        "topicPolicies get-backlog-quota",
        "topics get-backlog-quotas",
        "topics get-properties",
        "topics get-subscription-properties",
        "topics partitioned-lookup",
        "topics permissions",
    }
)
_PROPERTY: Final = "x-pulsar-property-"


def printed(words: str, value: Any, how: str, *, is_look: bool) -> str:  # noqa: ANN401
    """The text, without its last line end; empty for nothing. ``how``: table, json, yaml or pulsar."""
    if value is UNSENT or (value is None and not is_look):
        return ""
    plain = _plain(value)
    if how == "json":
        return json.dumps(plain, indent=2, ensure_ascii=False)
    if how == "yaml":
        return "\n".join(yaml_of(plain, 0))
    if how == "pulsar":
        return "\n".join(_pulsar(words, value))
    return table(plain)


def _plain(value: Any) -> Any:  # noqa: ANN401
    """As JSON has it."""
    if isinstance(value, StoredMessage):
        properties = {key.removeprefix(_PROPERTY): text for key, text in value.headers.items() if _PROPERTY in key}
        own = {key.removeprefix("x-pulsar-"): text for key, text in value.headers.items() if "x-pulsar-" in key}
        rest = {key: text for key, text in own.items() if not key.startswith("property-")}
        return {**rest, "properties": properties, "payload": value.payload.hex()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def table(value: Any) -> str:  # noqa: ANN401
    """For people: columns for things that are alike, lines for the rest."""
    if value is None:
        return "not set"
    if isinstance(value, list) and value and all(isinstance(one, dict) and _is_flat(one) for one in value):
        return "\n".join(_columns(value))
    if isinstance(value, list):
        return "\n".join(one if isinstance(one, str) else render(one, is_json=False) for one in value)
    return value if isinstance(value, str) else render(value, is_json=False)


def _is_flat(one: Mapping[str, Any]) -> bool:
    return not any(isinstance(each, dict | list) for each in one.values())


def _columns(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([str(row.get(name, "-")) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    for line in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def yaml_of(value: Any, depth: int) -> Iterator[str]:  # noqa: ANN401
    """Lines of YAML: texts in quotes, as JSON has them, which YAML reads alike."""
    indent = "  " * depth
    if isinstance(value, dict) and value:
        for key, one in value.items():
            if isinstance(one, dict | list) and one:
                yield f"{indent}{json.dumps(str(key), ensure_ascii=False)}:"
                yield from yaml_of(one, depth + 1)
            else:
                yield f"{indent}{json.dumps(str(key), ensure_ascii=False)}: {json.dumps(one, ensure_ascii=False)}"
    elif isinstance(value, list) and value:
        for one in value:
            lines = list(yaml_of(one, depth + 1))
            first = lines[0].strip() if isinstance(one, dict | list) else json.dumps(one, ensure_ascii=False)
            yield f"{indent}- {first}"
            yield from lines[1:] if isinstance(one, dict | list) else ()
    else:
        yield indent + json.dumps(value, ensure_ascii=False)


def _pulsar(words: str, value: Any) -> Iterator[str]:  # noqa: ANN401
    if isinstance(value, list) and value and isinstance(value[0], StoredMessage):
        for number, one in enumerate(value):
            yield from (["-" * 73, ""] if number else [])
            yield from _message(one)
    elif isinstance(value, StoredMessage):
        yield from _message(value)
    elif isinstance(value, list):
        for one in value:
            yield one if isinstance(one, str) else jackson(one)
    elif isinstance(value, dict) and words in BY_LINE:
        for key, one in value.items():
            yield f"{key}    {_java(one)}"
    else:
        yield value if isinstance(value, str) else jackson(value)


def _java(value: Any) -> str:  # noqa: ANN401
    """As Java's ``toString`` has collections."""
    if isinstance(value, list):
        return f"[{', '.join(map(_java, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_java(one)}" for key, one in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


def _message(message: StoredMessage) -> Iterator[str]:
    said = message.headers
    yield f"Message ID: {said.get('x-pulsar-message-id', '')}"
    if count := said.get("x-pulsar-num-batch-message"):
        yield f"Batch of: {count}"
    for key, title in (("x-pulsar-publish-time", "Publish time"), ("x-pulsar-event-time", "Event time")):
        if key in said:
            yield f"{title}: {said[key]}"
    properties = {key.removeprefix(_PROPERTY): text for key, text in said.items() if key.startswith(_PROPERTY)}
    if properties:
        yield "Properties:"
        yield from (f"{key}    {text}" for key, text in properties.items())
    yield from _dump(message.payload)


def _dump(data: bytes) -> Iterator[str]:
    edge = "+--------+" + "-" * 49 + "+" + "-" * 16 + "+"
    yield " " * 9 + "+" + "-" * 49 + "+"
    yield " " * 9 + "|" + "".join(f"  {digit:x}" for digit in range(16)) + " |"
    yield edge
    for start in range(0, len(data), 16):
        part = data[start : start + 16]
        shown = "".join(chr(byte) if 32 < byte < 127 else "." for byte in part)
        yield f"|{start:08x}|{''.join(f' {byte:02x}' for byte in part):<48} |{shown:<16}|"
    yield edge


def jackson(value: Any, depth: int = 0) -> str:  # noqa: ANN401
    """JSON as Pulsar's tools write it for reading: members by line, elements of a list in one."""
    if isinstance(value, dict):
        if not value:
            return "{ }"
        inner = "  " * (depth + 1)
        members = (f"{inner}{json.dumps(str(key))} : {jackson(one, depth + 1)}" for key, one in value.items())
        return "{\n" + ",\n".join(members) + "\n" + "  " * depth + "}"
    if isinstance(value, list):
        return "[ " + ", ".join(jackson(one, depth) for one in value) + " ]" if value else "[ ]"
    return json.dumps(value, ensure_ascii=False)
