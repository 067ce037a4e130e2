"""Spark SQL expressions, as far as they can be checked without Spark: quotes, brackets, and which names they use."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

EXPRESSION_CHARACTERS_MAX: Final = 100_000
_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
  | (?P<string>(?:\b[rRxX])?'(?:[^'\\]|\\.|'')*'|(?:\b[rR])?"(?:[^"\\]|\\.)*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?\w*|\.\d+\w*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<arrow>->)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_CLOSES: Final = {")": "(", "]": "["}
#: Words of the language itself, units, and types: no columns, unless in backquotes.
_WORDS: Final = frozenset(
    " ".join(
        [
            "all and any array as asc between bigint binary boolean both byte case cast char collate",
            "current_catalog current_database current_date current_time current_timestamp current_user dayofweek",
            "day days dec decimal desc distinct div double else end escape every except exists extract false",
            "filter first float following for from group having hour hours ignore ilike in int integer interval",
            "is lateral leading like limit localtimestamp long map microsecond microseconds millisecond",
            "milliseconds minute minutes mod month months named not null nulls numeric on or order over partition",
            "position preceding quarter range real regexp respect rlike row rows second seconds short smallint",
            "some string struct symmetric then time timestamp timestamp_ltz timestamp_ntz timestampadd",
            "timestampdiff tinyint to trailing trim true try_cast unbounded unknown using utf8_binary utf8_lcase",
            "varchar variant void week weeks when where window within with xor year years zone epoch dow doy date",
            "last",
        ]
    ).split()
)


def defect(text: str) -> str:
    """What is wrong with the form of an expression; empty if nothing is seen without Spark."""
    if len(text) > EXPRESSION_CHARACTERS_MAX:
        return f"{len(text)} characters: expected at most {EXPRESSION_CHARACTERS_MAX}"
    opened: list[str] = []
    has_content = False
    for kind, token in _tokens(text):
        if kind == "space":
            continue
        has_content = True
        if kind != "other":
            continue
        if token in ("'", '"', "`"):
            return f"a quote ({token}) is not closed"
        if token == ";":
            return "a semicolon: expected one expression"
        if token in "([":
            opened.append(token)
        elif token in _CLOSES and (not opened or opened.pop() != _CLOSES[token]):
            return f"a {token} closes what is not open"
    if opened:
        return f"a {opened[-1]} is not closed"
    return "" if has_content else "no expression"


def names_in(text: str) -> frozenset[str]:
    """Names that may be columns: no functions, no fields behind a dot, no parameters of lambdas, no words of SQL."""
    tokens = [(kind, token) for kind, token in _tokens(text) if kind != "space"]
    parameters = _lambda_parameters(tokens)
    found = set()
    for number, (kind, token) in enumerate(tokens):
        before = tokens[number - 1][1] if number else ""
        after = tokens[number + 1][1] if number + 1 < len(tokens) else ""
        is_name = kind == "quoted" or (kind == "word" and token.lower() not in _WORDS and after != "(")
        if is_name and before != "." and before.lower() != "as" and token not in parameters:
            found.add(token.strip("`").replace("``", "`") if kind == "quoted" else token)
    return frozenset(found)


def words_in(texts: Iterable[str]) -> frozenset[str]:
    """Every word, whatever it stands for."""
    return frozenset(token.strip("`") for text in texts for kind, token in _tokens(text) if kind in ("word", "quoted"))


def _tokens(text: str) -> list[tuple[str, str]]:
    return [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(text)]


def _lambda_parameters(tokens: list[tuple[str, str]]) -> frozenset[str]:
    found = set()
    for number, (kind, _) in enumerate(tokens):
        if kind != "arrow" or not number:
            continue
        if tokens[number - 1][1] != ")":
            found.add(tokens[number - 1][1])
            continue
        at = number - 2
        while at >= 0 and tokens[at][1] != "(":
            if tokens[at][0] == "word":
                found.add(tokens[at][1])
            at -= 1
    return frozenset(found)


def columns_of(ddl: str) -> tuple[str, ...]:
    """The names that a DDL such as ``id long, item struct<a: int>`` declares; raises ValueError."""
    found = []
    for part in _split(ddl):
        match = re.match(r"\s*(`(?:[^`]|``)+`|[A-Za-z_]\w*)\s*:?\s*(\S.*)?$", part, re.DOTALL)
        if match is None or not match[2]:
            raise ValueError(f"{part.strip()!r}: expected a name and a type, such as id long")
        found.append(match[1].strip("`").replace("``", "`"))
    times = Counter(name.lower() for name in found)
    for twice in sorted({name for name in found if times[name.lower()] > 1}):
        raise ValueError(f"{twice}: twice")
    return tuple(found)


def _split(ddl: str) -> list[str]:
    """At the commas outside of brackets."""
    parts, depth = [""], 0
    for kind, token in _tokens(ddl):
        if kind == "other" and token in "<>()":
            depth += 1 if token in "<(" else -1
            if depth < 0:
                raise ValueError(f"a {token} closes what is not open")
        if token == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    if depth:
        raise ValueError("a bracket is not closed")
    return parts
