"""What the public modules of Geminga export, read from the source: definitions, signatures, docstrings.

A name of a module's ``__all__`` is followed through re-exports to where it is defined; nothing is imported. Of a class
its public methods are its own and those of the classes of Geminga that it stands on, up to the comment that begins what
is for the client's own parts. What ``connect`` of :mod:`geminga.admin` gives has attributes whose classes hold the
calls: they are public, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
#: The public modules, in the order of the index.
MODULES = (
    "geminga",
    "geminga.client",
    "geminga.client.blocking",
    "geminga.client.schema",
    "geminga.client.failover",
    "geminga.admin",
    "geminga.admin.blocking",
    "geminga.admin.values",
    "geminga.spark",
    "geminga.spark.pipelines",
    "geminga.entry_filters",
    "geminga.pytest_plugin",
)
#: Tables of arguments -> the class whose fields they are.
OPTIONS = {
    "ClientArguments": "ClientOptions",
    "ConsumerArguments": "ConsumerOptions",
    "ProducerArguments": "ProducerOptions",
    "ReaderArguments": "ConsumerOptions",
}
#: Begins the part of a class that is not for users.
OWN_PARTS = re.compile(r"^ *# ---- for (?:the client's own parts|its topics)", re.MULTILINE)
#: A class that says so is not made by users: how it is made is no part of what is public.
_MADE_BY = re.compile(r"[Mm]ade by :|[Gg]iven by :|what :\w+:`[^`]+` gives|comes from :|are received")
#: Those that ``connect`` of their module makes, and that do not say so.
_MADE_BY_CONNECT = frozenset({"AdminClient"})
_ATTRIBUTE = re.compile(r"^ *#: ?(.*)$")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Member:
    """A method, property, field or member of an enumeration."""

    name: str
    #: ``method``, ``property`` or ``field``.
    kind: str
    text: str
    doc: str
    #: None for fields.
    node: Function | None = None


@dataclass(frozen=True, slots=True)
class Name:
    """A public name."""

    name: str
    #: Where it is exported from.
    module: str
    #: ``class``, ``function`` or ``constant``.
    kind: str
    #: As it is written, without the body.
    text: str
    doc: str
    node: ast.stmt
    #: Where it is defined.
    home: str
    members: tuple[Member, ...] = ()
    bases: tuple[str, ...] = field(default=())


class Source:
    """One module."""

    def __init__(self, module: str) -> None:
        path = SOURCE.joinpath(*module.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.module = module
        self.text = file.read_text(encoding="utf-8")
        self.lines = self.text.splitlines()
        self.tree = ast.parse(self.text)
        self.imports: dict[str, tuple[str, str]] = {}
        self.definitions: dict[str, ast.stmt] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    self.imports.setdefault(alias.asname or alias.name, (node.module, alias.name))
        for statement in self.tree.body:
            for name in names_made_by(statement):
                self.definitions[name] = statement

    @property
    def doc(self) -> str:
        """The module's docstring."""
        return ast.get_docstring(self.tree) or ""

    def exported(self) -> list[str]:
        """``__all__``; of a module without one what is public and defined there."""
        made = self.definitions.get("__all__")
        if isinstance(made, ast.Assign | ast.AnnAssign) and made.value is not None:
            return list(ast.literal_eval(made.value))
        return [name for name in self.definitions if not name.startswith("_")]

    def comment_above(self, line: int) -> str:
        """The ``#:`` lines right above ``line``, counted from 1."""
        found: list[str] = []
        while line >= 2 and (match := _ATTRIBUTE.match(self.lines[line - 2])):
            found.insert(0, match[1])
            line -= 1
        return " ".join(found)


def names_made_by(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement of a module defines; an overload is overwritten by what implements it."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield statement.name
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id
    elif isinstance(statement, ast.If):
        for inner in (*statement.body, *statement.orelse):
            yield from names_made_by(inner)


@cache
def source_of(module: str) -> Source:
    """Parsed once."""
    return Source(module)


def home_of(module: str, name: str) -> tuple[Source, str] | None:
    """Where a name is defined, and as what; None: outside of Geminga."""
    while module.partition(".")[0] == "geminga":
        source = source_of(module)
        if name in source.definitions:
            return source, name
        if name not in source.imports:
            return None
        module, name = source.imports[name]
    return None


def public_names(module: str) -> list[Name]:
    """All of them, in order of ``__all__``; with the classes behind attributes of a client of the administration."""
    found: list[Name] = []
    for name in source_of(module).exported():
        if name.startswith("__"):
            continue
        where = home_of(module, name)
        assert where is not None, f"{module}.{name}: not defined in geminga"
        found.append(name_at(module, name, *where))
    if module == "geminga.admin":
        client = home_of(module, "AdminClient")
        assert client is not None
        found += [name_at(module, name, *where) for name, where in _behind_attributes(*client)]
    return found


def _behind_attributes(source: Source, name: str) -> Iterator[tuple[str, tuple[Source, str]]]:
    """Classes of the calls: attributes that the initializer makes, and attributes of these."""
    made = source.definitions[name]
    for node in ast.walk(made):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
            inner = home_of(source.module, node.value.func.id)
            if inner is not None and isinstance(inner[0].definitions[inner[1]], ast.ClassDef):
                yield inner[1], inner


def name_at(module: str, name: str, source: Source, own_name: str) -> Name:
    """The public name that ``own_name`` of ``source`` is in ``module``."""
    node = source.definitions[own_name]
    if isinstance(node, ast.ClassDef):
        bases = tuple(ast.unparse(base) for base in node.bases)
        text = f"class {name}({', '.join(bases)})" if bases else f"class {name}"
        members = tuple(_members(source, node))
        return Name(name, module, "class", text, _doc(node), node, source.module, members, bases)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return Name(name, module, "function", signature(node), _doc(node), node, source.module)
    text = ast.unparse(node) if len(ast.unparse(node)) < 200 else f"{name}: ..."
    return Name(name, module, "constant", text, source.comment_above(node.lineno), node, source.module)


def _doc(node: ast.ClassDef | Function) -> str:
    return ast.get_docstring(node) or ""


def signature(node: Function) -> str:
    """As it is written, in one line; decorators apart."""
    given = f"def {node.name}({', '.join(_arguments(node.args))})"
    kind = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{kind}{given} -> {ast.unparse(node.returns)}" if node.returns is not None else f"{kind}{given}"


def _arguments(given: ast.arguments) -> Iterator[str]:
    """Each as in ``name: type = default``; the marks between them as arguments of their own."""
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults)) + [*given.defaults]
    for at, (one, default) in enumerate(zip(plain, defaults, strict=True), 1):
        yield _argument(one, default)
        if given.posonlyargs and at == len(given.posonlyargs):
            yield "/"
    if given.vararg is not None:
        yield f"*{_argument(given.vararg)}"
    elif given.kwonlyargs:
        yield "*"
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _argument(one, default)
    if given.kwarg is not None:
        yield f"**{_argument(given.kwarg)}"


def _argument(given: ast.arg, default: ast.expr | None = None) -> str:
    text = f"{given.arg}: {ast.unparse(given.annotation)}" if given.annotation is not None else given.arg
    if default is None:
        return text
    return f"{text} = {ast.unparse(default)}" if given.annotation is not None else f"{text}={ast.unparse(default)}"


def _members(source: Source, node: ast.ClassDef, seen: frozenset[str] = frozenset()) -> Iterator[Member]:
    """Of the class, then of those of Geminga that it stands on: what is public, and how it is made."""
    text = "\n".join(source.lines[node.lineno - 1 : node.end_lineno])
    cut = OWN_PARTS.search(text)
    end = node.lineno + text[: cut.start()].count("\n") if cut is not None else (node.end_lineno or 0) + 1
    own: dict[str, Member] = {}
    for statement in node.body:
        if statement.lineno < end:
            own |= {m.name: m for m in _member(source, node, statement) if m.name not in seen}
    if _MADE_BY.search(_doc(node)) or node.name in _MADE_BY_CONNECT:
        own.pop("__init__", None)
        seen |= {"__init__"}
    yield from own.values()
    seen |= own.keys()
    for base in node.bases:
        while isinstance(base, ast.Subscript):
            base = base.value
        if not isinstance(base, ast.Name):
            continue
        where = home_of(source.module, base.id)
        if where is not None and isinstance(inner := where[0].definitions[where[1]], ast.ClassDef):
            if _is_error(inner) or "Enum" in "".join(ast.unparse(b) for b in inner.bases):
                continue
            inherited = tuple(_members(where[0], inner, seen))
            yield from inherited
            seen |= {member.name for member in inherited}


def _is_error(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith(("Error", "Exception")) for base in node.bases)


def _member(source: Source, owner: ast.ClassDef, node: ast.stmt) -> Iterator[Member]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if node.name.startswith("_") and (node.name != "__init__" or len(ast.unparse(node.args)) == len("self")):
            if node.name == "__init__":
                yield from _attributes(source, node)
            return
        decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
        if "setter" in decorators or "overload" in decorators:
            return
        if node.name == "__init__":
            yield from _attributes(source, node)
            if not _is_error(owner) or _doc(node):
                yield Member("__init__", "method", signature(node), _doc(node), node)
        elif decorators & {"property", "cached_property"}:
            returns = ast.unparse(node.returns) if node.returns is not None else "object"
            yield Member(node.name, "property", f"{node.name}: {returns}", _doc(node), node)
        else:
            kind = "".join(f"@{one}\n" for one in ("classmethod", "staticmethod") if one in decorators)
            yield Member(node.name, "method", kind + signature(node), _doc(node), node)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        if not node.target.id.startswith("_"):
            yield Member(node.target.id, "field", ast.unparse(node), source.comment_above(node.lineno))
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        if not name.startswith("_") and name not in ("retriable", "server_error"):
            yield Member(name, "field", ast.unparse(node), source.comment_above(node.lineno))


def _attributes(source: Source, node: Function) -> Iterator[Member]:
    """Attributes with a ``#:`` line that an initializer makes: those of clients of the administration."""
    for statement in node.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if (
            isinstance(target, ast.Attribute)
            and not target.attr.startswith("_")
            and isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.Call)
            and source.module.startswith("geminga.admin")
        ):
            kind = ast.unparse(statement.value.func)
            yield Member(target.attr, "field", f"{target.attr}: {kind}", source.comment_above(statement.lineno))
