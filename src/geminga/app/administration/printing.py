"""What a command prints: for people, as JSON, as YAML, or as ``pulsar-admin`` has it, which scripts read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from geminga.admin.values import StoredMessage
from geminga.app.administration.arguments import Given
from geminga.app.administration.command import Command
from geminga.app.administration.session import UNSENT
from geminga.app.commands.documents import render
from geminga.app.lifecycle.terminal_text import visible

_PROPERTY: Final = "x-pulsar-property-"


def printed(command: Command, given: Given, value: Any, how: str) -> str:  # noqa: ANN401
    """The text, without its last line end; empty for nothing. ``how``: table, json, yaml or pulsar."""
    if value is UNSENT:
        return ""
    if how == "pulsar":
        from geminga.app.administration.shapes import lines_of

        return "\n".join(lines_of(command, given, value))
    if value is None and not command.is_look:
        return ""
    plain = _plain(value)
    if how == "json":
        return json.dumps(plain, indent=2, ensure_ascii=False)
    return "\n".join(yaml_of(plain, 0)) if how == "yaml" else table(plain)


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
        return "\n".join(_shown(one) if isinstance(one, str) else render(one, is_json=False) for one in value)
    return visible(value) if isinstance(value, str) else render(value, is_json=False)


def _shown(value: object) -> str:
    """On one line: names are others' choice."""
    return visible(str(value), is_name=True)


def _is_flat(one: Mapping[str, Any]) -> bool:
    return not any(isinstance(each, dict | list) for each in one.values())


def _columns(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[*map(_shown, names)], *([_shown(row.get(name, "-")) for name in names] for row in rows)]
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
