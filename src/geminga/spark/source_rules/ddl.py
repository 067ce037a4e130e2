"""The DDL of columns, such as ``id long, item struct<a: int>``, as far as reading values needs it.

Spark parses it in the JVM, which the processes that read topics do not have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

#: Names of simple types -> the one name that is used here.
_SIMPLE: Final = {
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("tinyint", "byte"), "tinyint"),
    **dict.fromkeys(("smallint", "short"), "smallint"),
    **dict.fromkeys(("int", "integer"), "int"),
    **dict.fromkeys(("bigint", "long"), "bigint"),
    **dict.fromkeys(("float", "real"), "float"),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), "timestamp"),
    **{name: name for name in ("double", "date", "timestamp_ntz", "time", "string", "binary", "variant", "void")},
}
#: Types whose values are not looked at.
_KEPT: Final = ("char", "character", "varchar", "interval")
_DECIMALS: Final = ("decimal", "dec", "numeric")
_DECIMAL_DEFAULT: Final = (10, 0)
_DEPTH_MAX: Final = 50
_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+)|([<>(),:]))")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type: its name in lower case, and what it is made of."""

    name: str
    #: Of a decimal.
    precision: int = 0
    scale: int = 0
    #: Of an array its elements, of a map its values.
    item: ColumnType | None = None
    #: Of a struct.
    fields: tuple[tuple[str, ColumnType], ...] = ()


def parse_columns(ddl: str) -> dict[str, ColumnType]:
    """Name -> type, in order; raises ValueError."""
    parser = _Parser(ddl)
    found = dict(parser.fields("", 0))
    parser.expect_end()
    return found


def _near(name: str) -> str:
    near = get_close_matches(name, [*_SIMPLE, *_KEPT, *_DECIMALS, "array", "map", "struct"], n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"{text[at:].strip()[:40]!r}: expected a name or a type")
            self._tokens.append(match[1] or match[2])
            at = match.end()
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._peek()
        if (expected and token != expected) or not token:
            raise ValueError(f"{token or 'the end'!r}: expected {expected or 'a name and a type, such as id long'}")
        self._at += 1
        return token

    def _took(self, token: str) -> bool:
        if self._peek().lower() != token:
            return False
        self._at += 1
        return True

    def expect_end(self) -> None:
        """Raises ValueError for what is left."""
        if self._peek():
            raise ValueError(f"{self._peek()!r}: expected the end, or a comma")

    def fields(self, closing: str, depth: int) -> list[tuple[str, ColumnType]]:
        """Name -> type, up to a bracket or the end."""
        found: list[tuple[str, ColumnType]] = []
        while True:
            name = self._take()
            if name in "<>(),:" or name[0] in "'\"":
                raise ValueError(f"{name!r}: expected a name and a type, such as id long")
            self._took(":")
            found.append((name.strip("`").replace("``", "`"), self._type(depth)))
            while self._peek() not in (",", closing, ""):
                self._property()
            if not self._took(","):
                break
        names = [name.lower() for name, _ in found]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name}: twice")
        return found

    def _property(self) -> None:
        word = self._take().lower()
        if word == "not":
            if self._take().lower() != "null":
                raise ValueError("not: expected not null")
        elif word in ("comment", "collate"):
            self._take()
        elif word == "default":
            raise ValueError("default: a value that a message does not have is null")
        else:
            raise ValueError(f"{word!r}: expected a comma, not null or comment")

    def _type(self, depth: int) -> ColumnType:
        if depth > _DEPTH_MAX:
            raise ValueError(f"a type of more than {_DEPTH_MAX} levels")
        name = self._take().lower()
        if name in _DECIMALS:
            return self._decimal()
        if name == "array":
            self._take("<")
            found = ColumnType("array", item=self._type(depth + 1))
            self._take(">")
            return found
        if name == "map":
            self._take("<")
            key = self._type(depth + 1)
            if key.name != "string":
                raise ValueError(f"map<{key.name}, ...>: the keys of a JSON object are strings")
            self._take(",")
            found = ColumnType("map", item=self._type(depth + 1))
            self._take(">")
            return found
        if name == "struct":
            self._take("<")
            if self._took(">"):
                return ColumnType("struct")
            found = ColumnType("struct", fields=tuple(self.fields(">", depth + 1)))
            self._take(">")
            return found
        if not name.isidentifier():
            raise ValueError(f"{name!r}: expected a type")
        if name not in _SIMPLE and name not in _KEPT:
            raise ValueError(f"{name!r}: no type of Spark's{_near(name)}")
        if self._took("("):
            self._take()
            self._take(")")
        return ColumnType(_SIMPLE.get(name, name))

    def _decimal(self) -> ColumnType:
        precision, scale = _DECIMAL_DEFAULT
        if self._took("("):
            precision, scale = self._number(), 0
            if self._took(","):
                scale = self._number()
            self._take(")")
        if not 0 <= scale <= precision <= 38 or not precision:
            raise ValueError(f"decimal({precision},{scale}): expected up to 38 digits, and no more behind the point")
        return ColumnType("decimal", precision, scale)

    def _number(self) -> int:
        token = self._take()
        if not token.isdecimal():
            raise ValueError(f"{token!r}: expected a number of digits")
        return int(token)
