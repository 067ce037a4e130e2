"""How a command is described: a line of a table, in the language that :func:`parsed` reads.

A row is ``name METHOD path; option; option``: lines that begin with a blank continue the one before. The path is below
``/admin/v2/``, unless it begins with a slash, and has the names of :mod:`geminga.admin.calls` in braces: those that no
option gives are the words behind the command, in their order. ``name =word; ...`` is a command with a function of its
own in :mod:`geminga.app.administration.special`; its places follow the word. ``!`` behind the path: what it loses can
not be brought back, so that it is asked first. ``%``: it is done to each partition, one by one.

An option is ``target:kind`` and its names: ``/name`` fills a place of the path, ``?key`` of the query, ``.key`` is a
member of the body, ``@`` the body, ``=name`` is for the command's function. Behind the kind ``!`` says that it must be
given, ``^`` that exactly one of those with ``^`` must, ``+`` at least one of those with ``+``, ``=text`` what holds
where it is not given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_PLACE: Final = re.compile(r"\{(\w+\??)\}")
_OPTION: Final = re.compile(r"([/?.@=])(\w*):([\w/-]+)([!^+]?)(?:=(\S*))?((?: -\S+| [a-z]\S*)+)")


#: Commands with a function that look at something, beside those whose names say so.
_LOOKS: Final = frozenset({"compaction-status", "get", "offload-status", "partitioned-lookup"})


class Option(NamedTuple):
    """One that may be named."""

    #: ``/``, ``?``, ``.``, ``@`` or ``=``.
    where: str
    key: str
    #: One of :data:`geminga.app.administration.units.KINDS`, or words with slashes between.
    kind: str
    names: tuple[str, ...]
    #: ``!``, ``^``, ``+`` or nothing.
    need: str = ""
    #: As it would be said; None: none.
    default: str | None = None

    @property
    def longest(self) -> str:
        """The name that is told."""
        return max(self.names, key=len)

    @property
    def takes_value(self) -> bool:
        """Whether a word follows it."""
        return self.kind not in ("flag", "off", "disabled")


class Command(NamedTuple):
    """One command of a group."""

    group: str
    name: str
    #: Empty: it has a function.
    method: str
    path: str
    #: Name of its function, or empty.
    function: str
    #: Names of the words that follow it; those with a ``?`` may be left out.
    places: tuple[str, ...]
    options: tuple[Option, ...]
    destroys: bool = False
    is_by_partition: bool = False

    @property
    def words(self) -> str:
        """As it is called."""
        return f"{self.group} {self.name}"

    @property
    def is_look(self) -> bool:
        """Whether it changes nothing and tells something."""
        if not self.function:
            return self.method == "GET"
        return self.name.startswith(("get-", "list", "peek-")) or self.name in _LOOKS

    def option(self, name: str) -> Option | None:
        """That of a name."""
        return next((option for option in self.options if name in option.names), None)


def parsed(group: str, rows: str) -> Iterator[Command]:
    """The commands of rows; raises ValueError for what is none."""
    lines: list[str] = []
    for line in rows.splitlines():
        if line.startswith(" "):
            lines[-1] += line
        elif line:
            lines.append(line)
    for line in lines:
        yield _command(group, line)


def _command(group: str, line: str) -> Command:
    head, *rest = (part.strip() for part in line.split(";"))
    name, method, *words = head.split()
    marks = set(words.pop()) if words and set(words[-1]) <= {"!", "%"} else set()
    options = tuple(option_of(part) for part in rest if part)
    filled = {option.key for option in options if option.where == "/"}
    if method.startswith("="):
        return Command(group, name, "", "", method[1:], tuple(words), options, "!" in marks, "%" in marks)
    path = " ".join(words)
    places = tuple(place for place in _PLACE.findall(path) if place not in filled)
    return Command(group, name, method, path, "", places, options, "!" in marks, "%" in marks)


def option_of(text: str) -> Option:
    """Raises ValueError."""
    found = _OPTION.fullmatch(" ".join(text.split()))
    if found is None:
        raise ValueError(f"no option: {text!r}")
    where, key, kind, need, default, names = found.groups()
    return Option(where, key, kind, tuple(names.split()), need, default)
