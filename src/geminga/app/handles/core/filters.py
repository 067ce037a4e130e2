"""Which messages are wanted: by key, properties, a place in their JSON, publish time. All that is given must hold."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from geminga.app.handles.core.message_lines import MessageLine
from geminga.model.errors import ConfigurationError

_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


class JsonTest(NamedTuple):
    """What a place of a JSON payload must be."""

    steps: tuple[str | int, ...]
    value: object


class Filter(NamedTuple):
    """What is wanted; what is None or empty does not matter."""

    key: str | None = None
    properties: Mapping[str, str] = {}
    tests: Sequence[JsonTest] = ()
    #: Milliseconds since the epoch; from there on, and before.
    since_ms: int = 0
    until_ms: int = 0

    def wants(self, line: MessageLine) -> bool:
        """Whether all holds."""
        if self.key is not None and line.key not in (self.key, self.key.encode()):
            return False
        if any(line.properties.get(name) != value for name, value in self.properties.items()):
            return False
        if self.since_ms and line.publish_time_ms < self.since_ms:
            return False
        if self.until_ms and line.publish_time_ms >= self.until_ms:
            return False
        return not self.tests or _holds(self.tests, line.payload)


def json_test(text: str) -> JsonTest:
    """``order.lines[0].id=5``: a path of names and numbers, a value of JSON or a text. Raises ConfigurationError."""
    path, equals, value = text.partition("=")
    path = path.removeprefix("$").removeprefix(".")
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            break
        steps.append(found[1] if found[1] is not None else int(found[2]))
        at = found.end()
    if not equals or not steps or at < len(path):
        raise ConfigurationError(f"{text!r} is no test of JSON: expected PATH=VALUE, as in order.lines[0].id=5")
    try:
        return JsonTest(tuple(steps), json.loads(value))
    except ValueError:
        return JsonTest(tuple(steps), value)


def _holds(tests: Sequence[JsonTest], payload: bytes | None) -> bool:
    try:
        document = json.loads(payload or b"")
    except (ValueError, RecursionError):  # nested too deep to be looked into
        return False
    return all(_is_equal(_at(document, test.steps), test.value) for test in tests)


def _is_equal(found: object, value: object) -> bool:
    """As in JSON: true is not 1."""
    return found == value and isinstance(found, bool) == isinstance(value, bool)


class _Nothing:
    """Is equal to nothing."""


def _at(document: Any, steps: Sequence[str | int]) -> object:  # noqa: ANN401  (any JSON)
    for step in steps:
        if isinstance(step, int):
            if not isinstance(document, list) or step >= len(document):
                return _Nothing
            document = document[step]
        else:
            if not isinstance(document, dict) or step not in document:
                return _Nothing
            document = document[step]
    return document
