"""What a pipeline file says: YAML in, nodes with their lines out.

PyYAML reads the text; here its events become nodes, and what a configuration file does not need, and what surprises,
becomes an error that says so: anchors and aliases (a few lines can become gigabytes), tags, directives, complex and
duplicate keys, several documents. Scalars keep their text: who reads them knows which type is due, so that ``no`` is
never taken for false. The reader is PyYAML's in Python, not the one in C: it joins the halves of characters that JSON
escapes by two, and says the same wherever it runs; the largest file that is taken costs it some seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from geminga.model.extras import needed_for

with needed_for("A pipeline file", "spark"):
    import yaml
    from yaml.events import (
        AliasEvent,
        CollectionEndEvent,
        DocumentStartEvent,
        Event,
        MappingStartEvent,
        NodeEvent,
        ScalarEvent,
        SequenceStartEvent,
    )
    from yaml.tokens import DirectiveToken

#: yaml.SafeLoader, whose methods have no types.
_Loader: TypeAlias = Any

#: Bounds of a file: nobody writes more by hand.
TEXT_CHARACTERS_MAX: Final = 1 << 20
DEPTH_MAX: Final = 24

_NULLS: Final = frozenset(["", "~", "null", "Null", "NULL"])
#: Line ends to YAML 1.1, which PyYAML reads, and none to YAML 1.2: where they stand bare, readers differ.
_LINE_ENDS_OF_SOME: Final = re.compile("[\x85\u2028\u2029]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ANCHORS: Final = "anchors (&) are not read here: write the value where it is used"
_ALIASES: Final = (
    "aliases (*) are not read here: write the value where it is used; text that begins with * goes into quotes"
)
_TAGS: Final = "tags (!) are not read here: text that begins with ! goes into quotes"
_DIRECTIVES: Final = "directives (%) are not read here"
_BARE: Final = "U+{:04X} can not stand here bare: letters, digits, signs and blanks do; its escape in double quotes can"
_COMPLEX_KEYS: Final = "a key is text: complex keys are not read here"
_SECOND_DOCUMENT: Final = "a second document begins: expected one"
_ENDLESS_QUOTE: Final = "the quote does not end"
_NO_COLON: Final = "expected a key with a colon"
#: What PyYAML says, its context and its problem, and what it means to who wrote the file; the first that fits.
_MEANINGS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(words), meaning)
    for words, meaning in (
        (r"scanning an anchor", _ANCHORS),
        (r"scanning an alias", _ALIASES),
        (r"(scanning|parsing) a tag", _TAGS),
        (r"scanning a directive", _DIRECTIVES),
        (r"quoted scalar: found unexpected end of stream", _ENDLESS_QUOTE),
        (r"quoted scalar: found unexpected document separator", _ENDLESS_QUOTE),
        (r"found character '\\t'", "a tab is no indentation: use spaces"),
        (r"found character '(.)'", "text that begins with {} goes into quotes"),
        (r"mapping values are not allowed", "a colon with a space behind it ends a key: put the text into quotes"),
        (
            r"sequence entries are not allowed",
            "an item (-) begins in a line of its own; text that begins with a dash goes into quotes",
        ),
        (r"could not find expected ':'", _NO_COLON),
        (r"expected <block end>, but found '\?'", "expected an item (-), as in the lines before it"),
        (r"expected <block end>, but found '-'", "an item (-) where a key was expected"),
        (r"expected <block end>, but found '<block ", "expected the same indentation as in the lines before it"),
        (r"expected <block end>, but found", "expected nothing behind what a quote or bracket closed"),
        (r"expected '<document start>'", "expected nothing more at this indentation"),
        (r"but found '\]'", "a bracket closes that was not opened"),
        (r"but found '\}'", "a brace closes that was not opened"),
        (r"but found ','", "text that begins with a comma goes into quotes"),
        (r"but got '<stream end>'", "the file ends inside of brackets"),
    )
)


class YamlError(ValueError):
    """Text that is not YAML, or of a kind that is not read here; ``line`` counts from 1."""

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
    if odd := _LINE_ENDS_OF_SOME.search(text):
        raise YamlError(_line_of(text, odd.start()), _BARE.format(ord(odd[0])))
    try:
        return _document(yaml.SafeLoader(text))
    except yaml.reader.ReaderError as error:
        raise YamlError(_line_of(text, error.position), _BARE.format(error.character)) from None
    except yaml.MarkedYAMLError as error:
        raise _meant(error) from None


def _line_of(text: str, position: int) -> int:
    return len(re.findall(r"\r\n|\n|\r", text[:position])) + 1


def _meant(error: yaml.MarkedYAMLError) -> YamlError:
    said = f"{error.context}: {error.problem}"
    meaning = said.removeprefix("None: ")
    for words, written in _MEANINGS:
        if found := words.search(said):
            meaning = written.format(*found.groups())
            break
    # Of what has no end, the line that it began in.
    is_endless = meaning in (_ENDLESS_QUOTE, _NO_COLON)
    mark = error.context_mark if is_endless else error.problem_mark
    return YamlError(1 if mark is None else mark.line + 1, meaning)


def _next(loader: _Loader) -> Event | None:
    try:
        event: Event | None = loader.get_event() if loader.check_event() else None
        return event
    except (ValueError, OverflowError):
        # An escape of a number that no character has.
        raise YamlError(loader.line + 1, "an escape stands for no character") from None


def _document(loader: _Loader) -> Node:
    """Raises YamlError and yaml.YAMLError."""
    loader.get_event()
    if loader.check_token(DirectiveToken):
        raise YamlError(loader.peek_token().start_mark.line + 1, _DIRECTIVES)
    builder = _Builder()
    is_begun = False
    while (event := _next(loader)) is not None:
        line = 1 if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, DocumentStartEvent):
            if is_begun:
                raise YamlError(line, _SECOND_DOCUMENT)
            is_begun = True
        elif isinstance(event, NodeEvent | CollectionEndEvent):
            builder.take(event, line)
    return Scalar("", 1) if builder.made is None else builder.made


class _Builder:
    """Nodes of the events of a document."""

    def __init__(self) -> None:
        #: The whole; None: nothing came yet.
        self.made: Node | None = None
        #: Collections that are not closed, each with its key whose value is due: text and line.
        self._open: list[tuple[Sequence | Mapping, list[tuple[str, int]]]] = []

    def take(self, event: Event, line: int) -> None:
        if isinstance(event, AliasEvent):
            raise YamlError(line, _ALIASES)
        if isinstance(event, CollectionEndEvent):
            self._put(self._open.pop()[0])
            return
        if getattr(event, "anchor", None) is not None:
            raise YamlError(line, _ANCHORS)
        if getattr(event, "tag", None) is not None:
            raise YamlError(line, _TAGS)
        if isinstance(event, ScalarEvent):
            self._put(Scalar(_whole(event.value, line), line, is_plain=event.style is None))
        else:
            self._begin(event, line)

    def _begin(self, event: Event, line: int) -> None:
        if len(self._open) >= DEPTH_MAX:
            raise YamlError(line, f"nested more than {DEPTH_MAX} deep")
        if self._open and isinstance(self._open[-1][0], Mapping) and not self._open[-1][1]:
            raise YamlError(line, _COMPLEX_KEYS)
        assert isinstance(event, MappingStartEvent | SequenceStartEvent)
        self._open.append((Mapping(line) if isinstance(event, MappingStartEvent) else Sequence(line), []))

    def _put(self, node: Node) -> None:
        if not self._open:
            self.made = node
            return
        parent, due = self._open[-1]
        if isinstance(parent, Sequence):
            parent.items.append(node)
        elif due:
            key, line = due.pop()
            parent.put(key, line, node)
        else:
            assert isinstance(node, Scalar)
            due.append((node.text, node.line))


def _whole(text: str, line: int) -> str:
    """With the characters that were escaped by two halves, as JSON does it."""
    if _SURROGATE.search(text) is None:
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise YamlError(line, "an escape is half a character") from None
