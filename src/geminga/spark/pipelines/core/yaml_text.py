"""A strict part of YAML 1.2: text in, nodes with their lines out.

What is read means the same to every YAML reader: mappings and sequences by indentation or in brackets, plain, quoted
and block scalars, comments, one document. What a configuration file does not need, and what surprises, is an error
that says so: anchors and aliases (a few lines can become gigabytes), tags, complex and duplicate keys, tabs as
indentation, several documents. Scalars keep their text: who reads them knows which type is due, so that ``no`` is never
taken for false.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final, NoReturn

#: Bounds of a file: nobody writes more by hand.
TEXT_CHARACTERS_MAX: Final = 1 << 20
DEPTH_MAX: Final = 24

_NULLS: Final = frozenset(["", "~", "null", "Null", "NULL"])
_PLAIN_KEY: Final = re.compile(
    r"((?:[^\s\-?:,\[\]{}#&*!|>'\"%@`]|[\-:](?=[^\s:]))(?:[^:#]|:(?=\S)|(?<=\S)#)*):(?=\s|$)"
)
_QUOTED_KEY: Final = re.compile(r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*')\s*:(?=\s|$)")
_BLOCK_HEADER: Final = re.compile(r"([|>])(-?)\s*(?:\s#.*)?")
_ESCAPES: Final = {"0": "\0", "a": "\a", "e": "\x1b", "v": "\v", " ": " "}
_REFUSED: Final = {
    "&": "anchors (&) are not read here: write the value where it is used",
    "*": "aliases (*) are not read here: write the value where it is used; text that begins with * goes into quotes",
    "!": "tags (!) are not read here: text that begins with ! goes into quotes",
    "%": "text that begins with % goes into quotes",
    "@": "text that begins with @ goes into quotes",
    "`": "text that begins with a backquote goes into quotes",
    "?": "complex keys (?) are not read here",
    "]": "a bracket closes that was not opened",
    "}": "a brace closes that was not opened",
    ",": "text that begins with a comma goes into quotes",
}


class YamlError(ValueError):
    """Text that is not in this part of YAML; ``line`` counts from 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Scalar:
    """Text as written, without quotes."""

    text: str
    line: int
    #: Not in quotes and not a block.
    is_plain: bool = True

    @property
    def is_null(self) -> bool:
        """Nothing at all, ``~`` or ``null``."""
        return self.is_plain and self.text in _NULLS


@dataclass(frozen=True, slots=True)
class Sequence:
    """Items in order."""

    line: int
    items: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys and values in order; no key twice."""

    line: int
    entries: dict[str, Node] = field(default_factory=dict)
    #: Line of each key.
    lines: dict[str, int] = field(default_factory=dict)

    def put(self, key: str, line: int, value: Node) -> None:
        """Add an entry; raises YamlError for a key that is there."""
        if key in self.entries:
            raise YamlError(line, f"{key}: this key is here twice, first in line {self.lines[key]}")
        self.entries[key] = value
        self.lines[key] = line


Node = Scalar | Sequence | Mapping


def parse_yaml(text: str) -> Node:
    """The document; an empty one is a null scalar. Raises YamlError."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise YamlError(1, f"{len(text)} characters: expected at most {TEXT_CHARACTERS_MAX}")
    return _Reader(text.removeprefix("\ufeff")).document()


class _Reader:
    """Goes through the lines once; ``_row`` is the next that is not read."""

    def __init__(self, text: str) -> None:
        self._lines = re.split(r"\r\n|\n|\r", text)
        self._row = 0
        self._depth = 0

    def document(self) -> Node:
        self._skip()
        if self._row < len(self._lines) and re.fullmatch(r"---\s*(#.*)?", self._lines[self._row]):
            self._row += 1
            self._skip()
        if self._row >= len(self._lines):
            return Scalar("", 1)
        if re.match(r"(---|\.\.\.)(\s|$)", self._lines[self._row]):
            self._fail("expected a document: keys and values")
        node = self._block(self._indent())
        self._skip()
        if self._row < len(self._lines) and re.fullmatch(r"\.\.\.\s*", self._lines[self._row]):
            self._row += 1
            self._skip()
        if self._row < len(self._lines):
            if self._lines[self._row].startswith("---"):
                self._fail("a second document begins: expected one")
            self._fail("expected nothing more at this indentation")
        return node

    def _fail(self, problem: str, row: int | None = None) -> NoReturn:
        raise YamlError((self._row if row is None else row) + 1, problem)

    def _skip(self) -> None:
        """To the next line that is neither empty nor a comment."""
        while self._row < len(self._lines):
            stripped = self._lines[self._row].strip(" \t")
            if stripped and not stripped.startswith("#"):
                return
            self._row += 1

    def _indent(self) -> int:
        line = self._lines[self._row]
        indent = len(line) - len(line.lstrip(" "))
        if line[indent] == "\t":
            self._fail("a tab is no indentation: use spaces")
        if line.startswith("%"):
            self._fail("directives (%) are not read here")
        return indent

    def _block(self, indent: int) -> Node:
        """What begins in this line at ``indent``."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._fail(f"nested more than {DEPTH_MAX} deep")
        rest = self._lines[self._row][indent:]
        if _is_item(rest):
            node: Node = self._sequence(indent)
        elif _key_of(rest) is not None:
            node = self._mapping(indent)
        else:
            node = self._value(indent, indent - 1)
        self._depth -= 1
        return node

    def _sequence(self, indent: int) -> Sequence:
        found = Sequence(self._row + 1)
        while self._at(indent) and _is_item(self._lines[self._row][indent:]):
            line = self._lines[self._row]
            start = len(line) - len(line[indent + 1 :].lstrip(" "))
            rest = line[start:]
            if _is_item(rest) or _key_of(rest) is not None:
                # The item begins a sequence or mapping of its own in this line: its dash counts as indentation.
                self._lines[self._row] = " " * start + rest
                found.items.append(self._block(start))
            else:
                found.items.append(self._value(start, indent))
        self._check_next(indent)
        return found

    def _mapping(self, indent: int) -> Mapping:
        found = Mapping(self._row + 1)
        while self._at(indent):
            line = self._lines[self._row]
            key = _key_of(line[indent:])
            if key is None:
                if _is_item(line[indent:]):
                    self._fail("an item (-) where a key was expected")
                self._fail(f"{_short(line[indent:])}: expected a key with a colon")
            text, length = key
            number = self._row + 1
            after = indent + length
            after += len(line[after:]) - len(line[after:].lstrip(" "))
            value = self._value(after, indent, is_of_key=True)
            found.put(_unquoted(text, number), number, value)
        self._check_next(indent)
        return found

    def _at(self, indent: int) -> bool:
        self._skip()
        if self._row >= len(self._lines) or re.match(r"(---|\.\.\.)(\s|$)", self._lines[self._row]):
            return False
        return self._indent() == indent

    def _check_next(self, indent: int) -> None:
        self._skip()
        if self._row < len(self._lines) and self._indent() > indent:
            self._fail(f"indented by {self._indent()}: expected {indent}, as the lines before it")

    def _value(self, column: int, parent: int, *, is_of_key: bool = False) -> Node:
        """What begins in this line at ``column``; ``parent`` is the indentation of what it belongs to."""
        line = self._lines[self._row]
        rest = line[column:].lstrip(" \t")
        column = len(line) - len(rest)
        if not rest or rest.startswith("#"):
            return self._below(parent, is_of_key=is_of_key)
        first = rest[0]
        if first in _REFUSED and not (first == "?" and rest[1:2].strip()):
            self._fail(_REFUSED[first])
        if _is_item(rest):
            self._fail("an item (-) begins in a line of its own; text that begins with a dash goes into quotes")
        if first in "|>":
            return self._block_scalar(rest, parent)
        if first in "\"'[{":
            node, row, column = _Flow(self._lines, self._row, column, parent).node()
            tail = self._lines[row][column:]
            if tail.strip() and not re.match(r"\s+#", tail):
                self._fail(f"{_short(tail.strip())}: expected nothing behind the closing {_CLOSING[first]}", row)
            self._row = row + 1
            return node
        return self._plain(rest, parent)

    def _below(self, parent: int, *, is_of_key: bool) -> Node:
        """A value that begins in a line of its own, or none."""
        number = self._row + 1
        self._row += 1
        self._skip()
        if self._row < len(self._lines):
            indent = self._indent()
            line = self._lines[self._row]
            is_deeper = indent > parent or (is_of_key and indent == parent and _is_item(line[indent:]))
            if is_deeper and not re.match(r"(---|\.\.\.)(\s|$)", line):
                return self._block(indent)
        return Scalar("", number)

    def _plain(self, first: str, parent: int) -> Scalar:
        number = self._row + 1
        parts = [self._plain_part(first)]
        is_over = _has_comment(first)
        self._row += 1
        gap = 0
        while self._row < len(self._lines) and not is_over:
            line = self._lines[self._row]
            stripped = line.strip(" \t")
            if not stripped:
                gap += 1
                self._row += 1
                continue
            indent = len(line) - len(line.lstrip(" "))
            if indent <= parent or stripped.startswith("#") or re.match(r"(---|\.\.\.)(\s|$)", line):
                break
            parts.append("\n" * gap + self._plain_part(stripped) if gap else " " + self._plain_part(stripped))
            gap = 0
            is_over = _has_comment(stripped)
            self._row += 1
        return Scalar("".join(parts), number)

    def _plain_part(self, text: str) -> str:
        # Not \s+#, which looks at every blank of a long row of them anew.
        comment = re.search(r"\s#", text)
        cut = (text[: comment.start()] if comment else text).rstrip()
        if re.search(r":(\s|$)", cut):
            self._fail(f"{_short(cut)}: a colon with a space behind it ends a key: put the text into quotes")
        return cut

    def _block_scalar(self, header: str, parent: int) -> Scalar:
        match = _BLOCK_HEADER.fullmatch(header)
        if match is None:
            self._fail(f"{_short(header)}: expected | or > alone, or with - behind it")
        number = self._row + 1
        self._row += 1
        lines: list[str] = []
        indent = -1
        while self._row < len(self._lines):
            line = self._lines[self._row]
            if line.strip(" "):
                at = len(line) - len(line.lstrip(" "))
                if at <= parent:
                    break
                indent = at if indent < 0 else indent
                if at < indent and line[at] == "#":
                    break
                if at < indent:
                    self._fail(f"indented by {at}: the block began with {indent}")
                if line[at] == "\t" and at == indent:
                    self._fail("a tab is no indentation: use spaces")
            lines.append(line[indent:] if indent >= 0 else "")
            self._row += 1
        while lines and not lines[-1].strip(" "):
            del lines[-1]
        return Scalar(_chomped(lines, match[1], match[2]), number, is_plain=False)


def _chomped(lines: list[str], style: str, chomping: str) -> str:
    if style == "|":
        text = "\n".join(lines)
    else:
        text = ""
        for number, line in enumerate(lines):
            if number == 0:
                text = line
            elif not text.strip("\n"):
                text += "\n" + line
            elif not line or not lines[number - 1] or line[:1] in " \t" or lines[number - 1][:1] in " \t":
                before = lines[number - 1]
                folds = bool(line) and not before and line[:1] not in " \t"
                text += ("" if folds else "\n") + line
            else:
                text += " " + line
    return text if chomping == "-" or not lines else text + "\n"


_CLOSING: Final = {'"': "quote", "'": "quote", "[": "bracket", "{": "brace"}


_FLOW_QUOTED: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'")
#: A # begins no text, and goes on with one that has no space before it.
_FLOW_PLAIN: Final = re.compile(r"(?:[^,\[\]{}:#]|:(?=[^\s,\[\]{}]))(?:[^,\[\]{}:#]|:(?=[^\s,\[\]{}])|(?<=\S)#)*")


class _Flow:
    """A quoted scalar, or a collection in brackets, which may go on over lines."""

    def __init__(self, lines: list[str], row: int, column: int, parent: int) -> None:
        self._lines = lines
        self._row = row
        self._column = column
        self._parent = parent
        self._depth = 0

    def node(self) -> tuple[Node, int, int]:
        node = self._one()
        return node, self._row, self._column

    def _fail(self, problem: str) -> NoReturn:
        raise YamlError(min(self._row, len(self._lines) - 1) + 1, problem)

    def _rest(self) -> str:
        return self._lines[self._row][self._column :]

    def _skip(self) -> str:
        """The next character that counts, on this line or a later one."""
        while True:
            # Never a copy of the rest: a line may be the whole file.
            line, column = self._lines[self._row], self._column
            while column < len(line) and line[column] in " \t":
                column += 1
            is_spaced = column > self._column or self._column == 0
            if column < len(line) and not (line[column] == "#" and is_spaced):
                self._column = column
                return line[column]
            self._row += 1
            self._column = 0
            if self._row >= len(self._lines):
                self._fail("the file ends inside of brackets")
            line = self._lines[self._row]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= self._parent:
                self._fail("expected the closing bracket, or a deeper indentation")

    def _one(self) -> Node:
        first = self._skip()
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._fail(f"nested more than {DEPTH_MAX} deep")
        if first == "[":
            node: Node = self._sequence()
        elif first == "{":
            node = self._mapping()
        else:
            node = self._scalar()
        self._depth -= 1
        return node

    def _scalar(self) -> Scalar:
        text, line, start = self._lines[self._row], self._row + 1, self._column
        if text[start] in "\"'":
            match = _FLOW_QUOTED.match(text, start)
            if match is None:
                self._fail("the quote does not end in its line")
            self._column = match.end()
            return Scalar(_unquoted(match[0], line), line, is_plain=False)
        if text[start] in _REFUSED:
            self._fail(_REFUSED[text[start]])
        match = _FLOW_PLAIN.match(text, start)
        if match is None:
            self._fail(f"{_short(self._rest())}: expected a value")
        self._column = match.end()
        if text[self._column : self._column + 1] in ("[", "{"):
            self._fail(f"{_short(text[start:])}: text with brackets in it goes into quotes here")
        text = match[0].rstrip()
        return Scalar(text, line)

    def _sequence(self) -> Sequence:
        found = Sequence(self._row + 1)
        self._column += 1
        while self._skip() != "]":
            found.items.append(self._one())
            self._after_item("]")
        self._column += 1
        return found

    def _mapping(self) -> Mapping:
        found = Mapping(self._row + 1)
        self._column += 1
        while self._skip() != "}":
            key = self._one()
            if not isinstance(key, Scalar):
                self._fail("a key is text")
            if self._skip() != ":":
                self._fail(f"{_short(key.text)}: expected a colon behind the key")
            self._column += 1
            is_empty = self._skip() in ",}"
            value: Node = Scalar("", self._row + 1) if is_empty else self._one()
            found.put(key.text, key.line, value)
            self._after_item("}")
        self._column += 1
        return found

    def _after_item(self, closing: str) -> None:
        following = self._skip()
        if following == ",":
            self._column += 1
        elif following != closing:
            self._fail(f"{_short(self._rest())}: expected a comma or {closing}")


def _is_item(rest: str) -> bool:
    return rest == "-" or rest.startswith(("- ", "-\t"))


def _key_of(rest: str) -> tuple[str, int] | None:
    """The key that begins a line, and the length up to behind its colon."""
    match = (_QUOTED_KEY if rest[:1] in ('"', "'") else _PLAIN_KEY).match(rest)
    if match is None or re.search(r"\s#", match[1]):
        return None
    return match[1].rstrip(), match.end()


def _has_comment(text: str) -> bool:
    return re.search(r"\s#", text) is not None


def _unquoted(text: str, line: int) -> str:
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    if not text.startswith('"'):
        return text
    try:
        found = _UNESCAPE.sub(_unescaped, text[1:-1])
        # Two escapes of JSON are one character beyond 16 bits.
        return found.encode("utf-16", "surrogatepass").decode("utf-16")
    except ValueError:
        raise YamlError(line, f"{_short(text)}: an escape that is not known; \\\\ is a backslash") from None


_UNESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        return chr(int(code[1:], 16))
    if code in _ESCAPES:
        return _ESCAPES[code]
    return str(json.loads(f'"\\{code}"'))


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
