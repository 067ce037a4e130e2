"""What a public name has to say, as functions: names of :mod:`tools.api_names` in, what is missing out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from tools.api_names import OPTIONS, Function, Member, Name, home_of, source_of

#: In the name of a number: it has a unit.
_QUANTITY = re.compile(
    r"timeout|delay|interval|period|duration|_age\b|backoff|lifetime|deadline|(?:^|_)(?:size|memory|expire|time|ttl)(?:_|$)"
)
#: A name that says its unit, or that is none of time and size.
_SAYS_UNIT = re.compile(
    r"(?:_|^)(?:ms|millis|milliseconds|s|seconds|secs|minutes|hours|days|bytes|mb|MB|messages|max|min|count|number)(?:_max|_min)?$"
    r"|(?:InMinutes|InMB|InByte|InSecond|Seconds|Minutes|InMsg|Millis|Ms)$|_in_bytes|messages|event_time$"
)
#: In a text: it says a unit.
_UNIT = re.compile(
    r"(?i)\b(?:seconds?|milliseconds?|minutes?|hours?|days?|bytes?|ms|s|MB|KiB|MiB|GiB|timedelta|messages?|entries|bits?)\b"
)
_NUMBERS = re.compile(r"\b(?:int|float)\b")
#: Calls that raise for a bad argument.
RAISING = {
    "check_argument": "InvalidConfiguration",
    "check_kinds": "InvalidConfiguration",
    "options_from": "InvalidConfiguration",
    "parse_topic": "InvalidTopicName",
}
#: What needs no word: the end of an iteration, a name that is not there, a defect.
_NO_WORD = frozenset({"StopIteration", "StopAsyncIteration", "AttributeError", "AssertionError", "KeyError"})
#: Says what is raised, or that nothing is.
_TELLS = re.compile(r"\b[Rr]aise|[Hh]armless|[Aa]s of :")
#: Says what is raised by naming who says it.
_REFERENCE = re.compile(r"[Rr]aises (?:what|as)|[Ss]ee :|[Aa]s :meth:|[Ss]ee ``")


def bare(name: Name) -> Iterator[str]:
    """The name, and what users see of it, without a docstring or a ``#:`` line."""
    where = f"{name.module}.{name.name}"
    if not name.doc:
        yield f"{where} has no {'docstring' if name.kind != 'constant' else '#: line'}"
    for member in name.members:
        if member.kind != "field" and member.name != "__init__" and not member.doc:
            yield f"{where}.{member.name} has no docstring"


def without_unit(name: Name) -> Iterator[str]:
    """Numbers that have a unit which neither their name nor their text says."""
    where = f"{name.module}.{name.name}"
    if isinstance(name.node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _unsaid_units(where, name.node, name.doc)
    if name.name in OPTIONS:  # a table of arguments; what they are is told there
        return
    for member in name.members:
        if member.kind == "field":
            text = member.doc or name.doc
            if _is_quantity(member.name, member.text) and not _UNIT.search(text):
                yield f"{where}.{member.name}: no unit"
        elif member.node is not None:
            yield from _unsaid_units(f"{where}.{member.name}", member.node, f"{member.doc}\n{_class_doc(name, member)}")
            returns = ast.unparse(member.node.returns) if member.node.returns is not None else ""
            if _is_quantity(member.name, returns) and not _UNIT.search(member.doc) and "How long" not in member.doc:
                yield f"{where}.{member.name}: no unit of what it gives"


def _class_doc(name: Name, member: Member) -> str:
    """An initializer may be told by its class."""
    return name.doc if member.name == "__init__" else ""


def _is_quantity(name: str, annotation: str) -> bool:
    return bool(_NUMBERS.search(annotation) and _QUANTITY.search(name) and not _SAYS_UNIT.search(name))


def _unsaid_units(where: str, node: Function, doc: str) -> Iterator[str]:
    for given in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        annotation = ast.unparse(given.annotation) if given.annotation is not None else ""
        if not _is_quantity(given.arg, annotation):
            continue
        said = [line for line in re.split(r"(?<=[.;])\s", doc) if f"``{given.arg}``" in line]
        if not any(_UNIT.search(line) for line in said):
            yield f"{where}: {given.arg} has no unit"


def without_errors(name: Name) -> Iterator[str]:
    """Errors that a function raises by itself, or by checking its arguments, and does not tell of."""
    where = f"{name.module}.{name.name}"
    if isinstance(name.node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _untold(where, name.node, name.doc)
    for member in name.members:
        if member.node is not None:
            yield from _untold(f"{where}.{member.name}", member.node, f"{member.doc}\n{_class_doc(name, member)}")


def silent_waits(name: Name) -> Iterator[str]:
    """Coroutines that do not say what they raise, or that it is nothing: who waits for others hears of their faults."""
    where = f"{name.module}.{name.name}"
    coroutines = [(f"{where}.{member.name}", member.node, member.doc) for member in name.members]
    for called, node, doc in [(where, name.node, name.doc), *coroutines]:
        if isinstance(node, ast.AsyncFunctionDef) and not _TELLS.search(doc):
            yield f"{called}: waits and does not say what it raises"


def _untold(where: str, node: Function, doc: str) -> Iterator[str]:
    if _REFERENCE.search(doc):
        return
    for error in sorted(set(raised_by(node))):
        if error not in doc and error not in _NO_WORD:
            yield f"{where}: raises {error} and does not say so"


def raised_by(node: Function) -> Iterator[str]:
    """Names of what its body raises, functions within it left out."""
    inner = {
        id(below) for one in ast.walk(node) if one is not node and isinstance(one, Function) for below in ast.walk(one)
    }
    for found in ast.walk(node):
        if id(found) in inner:
            continue
        if isinstance(found, ast.Raise) and isinstance(found.exc, ast.Call) and isinstance(found.exc.func, ast.Name):
            if found.exc.func.id[0].isupper():
                yield found.exc.func.id
        elif isinstance(found, ast.Call) and isinstance(found.func, ast.Name) and found.func.id in RAISING:
            yield RAISING[found.func.id]


#: Where types appear that are not public, and why they may: a name, or what it begins with.
EXCUSED = {
    # Programs that move entries as they are, as Spark's source does: what these take and give is made by each other.
    "geminga.client.BatchSource": "entries",
    "geminga.client.EntryBatch": "entries",
    "geminga.client.EntryProducer.send_encoded": "entries",
    "geminga.client.EntryStream": "entries",
    "geminga.client.FileKeyDecryptor": "entries",
    "geminga.client.open_batches": "entries",
    # The world a client lives in, which only simulations give.
    "geminga.client.connect": "simulation",
    "geminga.client.blocking.connect": "simulation",
    "geminga.client.failover.FailoverClient.runtime": "simulation",
    # What TLS is made of, once for all connections.
    "geminga.client.ClientOptions.tls_made": "the client's",
}


def is_excused(where: str) -> bool:
    """Whether ``where`` is, or belongs to, a name of ``EXCUSED``; the blocking client's as the other's."""
    where = where.replace(".blocking.", ".")
    if where.startswith("geminga.client.schema.") and where.endswith(".codec"):
        return True  # between a field and the schemas
    return any(where == name or where.startswith(f"{name}.") for name in EXCUSED)


def leaks(names: Iterable[Name], known: frozenset[str]) -> Iterator[str]:
    """Types of Geminga in public signatures that no public module exports. ``known``: ``module.name`` where defined."""
    for name in names:
        where = f"{name.module}.{name.name}"
        if isinstance(name.node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _leaks_of(where, name.home, name.node, known)
        for member in name.members:
            if member.node is not None:
                yield from _leaks_of(f"{where}.{member.name}", name.home, member.node, known)


def _leaks_of(where: str, module: str, node: Function, known: frozenset[str]) -> Iterator[str]:
    given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
    annotations = [one.annotation for one in given if one is not None] + [node.returns]
    for annotation in annotations:
        for part in ast.walk(annotation) if annotation is not None else ():
            if isinstance(part, ast.Name) and (found := home_of(module, part.id)) is not None:
                source, name = found
                is_variable = re.fullmatch(r"[A-Z]{1,2}(?:_co|_contra)?", name)
                if f"{source.module}.{name}" not in known and not is_variable and not is_excused(where):
                    yield f"{where} speaks of {source.module}.{name}, which is not public"


def homes(names: Iterable[Name]) -> frozenset[str]:
    """Where public names are defined, as ``module.name``."""
    found = set()
    for name in names:
        where = home_of(name.module, name.name) or (source_of(name.home), name.name)
        found.add(f"{where[0].module}.{where[1]}")
    return frozenset(found)
