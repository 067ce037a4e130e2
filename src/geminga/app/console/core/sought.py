"""Which messages a visitor looks for: by key, properties, a text in the value, publish time. All must hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.app.console.core.entries import ViewedMessage
from geminga.app.console.core.moments import milliseconds_of

#: Characters of one thing that is looked for, and how many properties.
CHARACTERS_MAX: Final = 500
PROPERTIES_MAX: Final = 10


class SoughtError(ValueError):
    """A field of the form that is not understood; the text says what was expected."""


class Sought(NamedTuple):
    """What is looked for; what is empty does not matter."""

    key: str = ""
    properties: Mapping[str, str] = {}
    #: Anywhere in the value as it is shown, whatever the case of its letters.
    text: str = ""
    #: Milliseconds since the epoch: from there on, and before; 0: none.
    since_ms: int = 0
    until_ms: int = 0

    @property
    def is_all(self) -> bool:
        """Whether nothing is looked for."""
        return self == Sought()

    def may_be(self, message: ViewedMessage) -> bool:
        """Whether all but the text holds: it is asked before the value is read."""
        if self.key and self.key not in _texts(message.key):
            return False
        if any(message.properties.get(name) != value for name, value in self.properties.items()):
            return False
        if not (self.since_ms or self.until_ms):
            return True
        published_ms = milliseconds_of(message.publish_time) if message.publish_time else 0
        return published_ms >= self.since_ms and (not self.until_ms or published_ms < self.until_ms)

    def has_text(self, value: str) -> bool:
        """Whether the text is in a value."""
        return not self.text or self.text.casefold() in value.casefold()


def sought_of(query: Mapping[str, str]) -> Sought:
    """By a form: ``key``, ``property`` (``name=value``, one a line), ``text``, ``since``, ``until``.

    Raises SoughtError, MomentError.
    """
    for name in ("key", "property", "text", "since", "until"):
        if len(query.get(name, "")) > CHARACTERS_MAX:
            raise SoughtError(f"{name} has more than {CHARACTERS_MAX} characters")
    since, until = query.get("since", "").strip(), query.get("until", "").strip()
    found = Sought(
        query.get("key", ""),
        properties_of(query.get("property", "")),
        query.get("text", ""),
        milliseconds_of(since) if since else 0,
        milliseconds_of(until) if until else 0,
    )
    if found.since_ms and found.until_ms and found.since_ms >= found.until_ms:
        raise SoughtError("nothing is published from a time on and before an earlier one: since must be before until")
    return found


def properties_of(text: str) -> dict[str, str]:
    """``name=value``, one a line. Raises SoughtError."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > PROPERTIES_MAX:
        raise SoughtError(f"{len(lines)} properties; at most {PROPERTIES_MAX} are taken")
    found = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals or not name:
            raise SoughtError(f"{line!r} is no property: expected name=value")
        found[name] = value
    return found


def _texts(key: str | bytes | None) -> tuple[str, ...]:
    """How a key may be typed: as it is shown, bytes in hexadecimal digits too."""
    if isinstance(key, bytes):
        return key.decode("utf-8", "backslashreplace"), key.hex(" "), key.hex()
    return () if key is None else (key,)
