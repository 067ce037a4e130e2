"""Documents for people: nested plain values as indented lines, or as one JSON value."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from geminga.app.lifecycle.terminal_text import visible

Value = object


def render(document: Value, *, is_json: bool) -> str:
    """The document as text."""
    if is_json:
        return json.dumps(document, indent=2)
    return "\n".join(_lines(document, 0))


def rows(documents: Iterable[Mapping[str, Value]], *, is_json: bool) -> Iterator[str]:
    """Lines of what :func:`render` gives of a list of them, one after the other: only one is held."""
    if not is_json:
        for document in documents:
            yield from _lines([document], 0)
        return
    before = "["
    for document in documents:
        yield before
        before = textwrap.indent(json.dumps(document, indent=2), "  ") + ","
    yield "[]" if before == "[" else before.removesuffix(",")
    if before != "[":
        yield "]"


def _lines(value: Value, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(value, Mapping):
        width = max((len(_title(str(key))) for key in value), default=0)
        for key, item in value.items():
            title = _title(str(key))
            if _is_plain(item):
                yield f"{indent}{title:<{width}}  {_plain(item)}"
            else:
                yield f"{indent}{title}"
                yield from _lines(item, depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            if isinstance(item, Mapping) and all(_is_plain(each) for each in item.values()):
                yield indent + ", ".join(f"{_title(str(key))} {_plain(each)}" for key, each in item.items())
            elif isinstance(item, Mapping):
                yield from _lines(item, depth)
                yield ""
            else:
                yield f"{indent}{_plain(item)}"
    else:
        yield indent + _plain(value)


def _is_plain(value: Value) -> bool:
    if isinstance(value, str) or not isinstance(value, Mapping | Sequence):
        return True
    return not value or (
        isinstance(value, Sequence) and all(isinstance(item, str | int) for item in value) and len(value) <= 8
    )


def _plain(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str):
        return ", ".join(visible(str(each), is_name=True) for each in value) or "none"
    return visible(str(value), is_name=True)


def _title(key: str) -> str:
    """``markDeletePosition`` and ``mark_delete`` as words; a name with other characters stays as it is."""
    if not re.fullmatch(r"[A-Za-z_]+", key):
        return visible(key, is_name=True)
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", key).lower()
