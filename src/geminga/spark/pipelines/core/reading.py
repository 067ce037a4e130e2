"""Nodes of a file as the kinds that keys have; what does not fit becomes a Problem and a harmless value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from geminga.spark.pipelines.core import yaml_text as yaml
from geminga.spark.pipelines.core.problems import Problem, nearest
from geminga.spark.rules.option_values import OptionError, OptionValues

_DURATION: Final = re.compile(r"([0-9]{1,12})\s*([a-z]+)", re.IGNORECASE)
_UNITS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86_400_000),
}
#: Nobody waits longer, and Spark's intervals end somewhere.
DURATION_MS_MAX: Final = 100 * 366 * 86_400_000
#: Spark counts rows and files of a batch in 32 bits, and sizes in 64.
NUMBER_MAX: Final = (1 << 31) - 1
SIZE_MAX: Final = (1 << 63) - 1
ITEMS_MAX: Final = 1000
NAMES_MAX: Final = 10_000
#: A file of other things is not told key by key.
UNKNOWN_TOLD_MAX: Final = 100


class CheckedMapping:
    """A mapping with known keys. Each value is asked for once; ``is_given`` says whether a key is there."""

    def __init__(self, node: yaml.Node | None, path: str, known: Iterable[str], problems: list[Problem]) -> None:
        self._path = path
        self._problems = problems
        self._node = node if isinstance(node, yaml.Mapping) else yaml.Mapping(node.line if node else 0)
        names = frozenset(known)
        if node is not None and not isinstance(node, yaml.Mapping):
            self.tell("", f"{_kind(node)} where keys and values were expected", node.line)
        unknown = [(key, line) for key, line in self._node.lines.items() if key not in names]
        for key, line in unknown[:UNKNOWN_TOLD_MAX]:
            self.tell(key, f"not a key here; {nearest(key, names)}", line)
        if len(unknown) > UNKNOWN_TOLD_MAX:
            self.tell("", f"{len(unknown) - UNKNOWN_TOLD_MAX} more keys that are none here", unknown[-1][1])

    def tell(self, key: str, text: str, line: int = 0) -> None:
        """Note what is wrong with a key, or with the whole."""
        path = ".".join(part for part in (self._path, key) if part)
        self._problems.append(Problem(path, text, line or self.line(key)))

    def line(self, key: str) -> int:
        """Of a key, or of the whole."""
        return self._node.lines.get(key, self._node.line)

    def is_given(self, key: str) -> bool:
        """Whether the key is there with a value."""
        node = self._node.entries.get(key)
        return node is not None and not (isinstance(node, yaml.Scalar) and node.is_null)

    def node(self, key: str) -> yaml.Node | None:
        """The value; None without one."""
        return self._node.entries[key] if self.is_given(key) else None

    def text(self, key: str, default: str = "", *, is_empty_allowed: bool = False) -> str:
        """Text in one scalar."""
        node = self.node(key)
        if node is None:
            return default
        if not isinstance(node, yaml.Scalar):
            self.tell(key, f"{_kind(node)} where text was expected", node.line)
            return default
        if not node.text.strip() and not is_empty_allowed:
            self.tell(key, "empty: expected text", node.line)
            return default
        return node.text.strip()

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        """One of ``allowed``; the first is the default."""
        value = self.text(key, allowed[0])
        if value not in allowed:
            self.tell(key, f"{value[:40]!r}: {nearest(value, allowed)}")
            return allowed[0]
        return value

    def number(self, key: str, default: int) -> int:
        """A whole number above 0."""
        value = self.text(key, str(default))
        is_number = re.fullmatch(r"[0-9]{1,10}", value) is not None and int(value) <= NUMBER_MAX
        if not is_number or (self.is_given(key) and int(value) == 0):
            self.tell(key, f"{value[:40]!r}: expected a whole number above 0, and not above {NUMBER_MAX}")
            return default
        return int(value)

    def size(self, key: str, default: int) -> int:
        """Bytes."""
        value = self.text(key)
        try:
            found = OptionValues({key: value}).size(key, default, minimum=1)
        except OptionError:
            found = -1
        if not default <= found <= SIZE_MAX or not value.isascii():
            self.tell(key, f"{value[:40]!r}: expected a number of bytes, such as 4194304 or 4m, at most {SIZE_MAX}")
            return default
        return found

    def duration_ms(self, key: str, default: int = 0) -> int:
        """Milliseconds above 0."""
        if not self.is_given(key):
            return default
        value = self.text(key)
        found = duration_ms(value)
        if not found:
            self.tell(key, f"{value[:40]!r}: expected a duration above 0, such as 500ms, 10 seconds, 2h or 7 days")
            return default or 1
        return found

    def names(self, key: str) -> tuple[str, ...]:
        """A sequence of texts, or one text with commas."""
        node = self.node(key)
        if node is None:
            return ()
        if isinstance(node, yaml.Scalar):
            parts = [part.strip() for part in node.text.split(",")]
        elif isinstance(node, yaml.Sequence):
            parts = []
            for item in node.items:
                if isinstance(item, yaml.Scalar) and not item.is_null:
                    parts.append(item.text.strip())
                else:
                    self.tell(key, f"{_kind(item)} where a name was expected", item.line)
        else:
            self.tell(key, "keys and values where names were expected: [a, b] or a, b", node.line)
            return ()
        if not all(parts) or not parts:
            self.tell(key, "an empty name", node.line)
        if len(parts) > NAMES_MAX:
            self.tell(key, f"{len(parts)} names: expected at most {NAMES_MAX}", node.line)
            return ()
        for twice in sorted(part for part, times in Counter(parts).items() if part and times > 1):
            self.tell(key, f"{twice}: twice", node.line)
        return tuple(dict.fromkeys(part for part in parts if part))

    def texts(self, key: str) -> Mapping[str, str]:
        """A mapping of names to texts, in order."""
        node = self.node(key)
        if node is None:
            return {}
        if not isinstance(node, yaml.Mapping):
            self.tell(key, f"{_kind(node)} where names and values were expected", node.line)
            return {}
        found: dict[str, str] = {}
        if len(node.entries) > ITEMS_MAX:
            self.tell(key, f"{len(node.entries)} names: expected at most {ITEMS_MAX}", node.line)
            return found
        for name, value in node.entries.items():
            if not isinstance(value, yaml.Scalar) or value.is_null or not value.text.strip():
                what = "nothing" if isinstance(value, yaml.Scalar) else _kind(value)
                self.tell(f"{key}.{name}", f"{what} where text was expected", node.lines[name])
            else:
                found[name] = value.text.strip()
        return found

    def nodes(self, key: str, *, is_one_allowed: bool = False) -> list[yaml.Node]:
        """The items of a sequence."""
        node = self.node(key)
        if node is None:
            return []
        if is_one_allowed and isinstance(node, yaml.Mapping):
            return [node]
        if not isinstance(node, yaml.Sequence):
            self.tell(key, f"{_kind(node)} where a sequence (lines that begin with a dash) was expected", node.line)
            return []
        if len(node.items) > ITEMS_MAX:
            self.tell(key, f"{len(node.items)} items: expected at most {ITEMS_MAX}")
        return node.items[:ITEMS_MAX]


def duration_ms(text: str) -> int:
    """Milliseconds; 0 for what is no duration."""
    total = 0
    rest = text.strip()
    while rest:
        match = _DURATION.match(rest)
        unit = _UNITS.get(match[2].lower()) if match else None
        if match is None or unit is None:
            return 0
        total += int(match[1]) * unit
        rest = rest[match.end() :].lstrip()
    return total if total <= DURATION_MS_MAX else 0


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.Sequence):
        return "a sequence"
    if isinstance(node, yaml.Mapping):
        return "keys and values"
    return "nothing" if node.is_null else f"the text {node.text[:40]!r}"
