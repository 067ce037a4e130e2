"""Generate ``geminga.client.blocking`` from the asynchronous client: same names, signatures and docstrings.

``python tools/generate_blocking.py`` writes the modules; ``--check`` writes nothing and fails, naming the files, if
what is checked in differs from what the asynchronous classes give. Needs ``ruff`` (extra ``dev``).

Of each class of ``CLASSES`` the public methods are taken, up to the comment that begins what is
for the client's own parts.
Coroutines are awaited on the loop's thread, plain methods are called on it; ``async with`` becomes ``with``, and what
is a class of ``CLASSES`` itself comes back wrapped. Aliases and option tables that speak of such a class (listeners)
are generated again, so that they speak of the blocking one. By hand is only what ``blocking/_facade.py`` and
``blocking/_listeners.py`` hold.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "geminga" / "client"
TARGET = SOURCE / "blocking"

#: Class -> its module in ``client.blocking``; in ``client`` too, if ``HOMES`` names no other.
CLASSES = {
    "Client": "_client",
    "Producer": "_producer",
    "Consumer": "_consumer",
    "Reader": "_reader",
    "TableView": "_table_view",
    "Transaction": "_transaction",
}
HOMES = {
    "Producer": "_api.producer",
    "Consumer": "_messages.consumer",
    "Transaction": "_api.transaction",
}
#: What makes a class one that is entered and closed, and its module.
ENTERED, ENTERED_HOME = "ClosedAtEnd", "_api.opening"
#: What the class stands on, if it is not ``Facade``.
BASES = {"Producer": "ProducerFacade", "Transaction": "TransactionFacade"}
#: Bodies that the general rules do not give, and what the docstring says more then.
BODIES = {
    ("Producer", "send_nowait"): "self._post(content, callback, fields)",
    ("Producer", "flush"): "self._flush()",
    ("Producer", "close"): "self._close()",
    ("Transaction", "__aexit__"): "self._run(lambda: self._target.__aexit__(kind, error, traceback))",
    ("TableView", "__iter__"): "return iter(self._call(lambda: list(self._target)))",
    ("TableView", "keys"): "return self._call(lambda: dict(self._target.items()).keys())",
    ("TableView", "values"): "return self._call(lambda: dict(self._target.items()).values())",
    ("TableView", "items"): "return self._call(lambda: dict(self._target.items()).items())",
}
#: What is done with a wrapped result before it is given.
WRAPPED = {("Client", "create_producer"): "._joined(self._target)"}
#: Listeners among the arguments -> what brings them from the loop to a thread of theirs (in ``_listeners.py``).
LISTENERS = {
    ("Client", "create_reader", "reader_listener"): "for_reader({}, self._thread)",
    ("TableView", "for_each", "callback"): "for_table({})",
    ("TableView", "for_each_and_listen", "callback"): "for_table({})",
}
_COPY = "Blocking: a copy, the view goes on meanwhile."
NOTES = {
    ("Producer", "send_nowait"): (
        "Blocking: where the asynchronous one raises because there is no room, this one waits; errors of a message "
        "without callback come with the next :meth:`flush`. Callbacks run on a thread of their own and may block."
    ),
    ("TableView", "keys"): _COPY,
    ("TableView", "values"): _COPY,
    ("TableView", "items"): _COPY,
}
#: What is said otherwise of the blocking classes.
WORDS = {
    "= await ": "= ",
    "geminga.client.connect": "geminga.client.blocking.connect",
    "Not for use by several threads": "For use by any number of threads",
    " Bound to the loop it is first used on.": "",
    "To be awaited, or entered: ``with": "``with",
    "may be a coroutine function, which is awaited before the next message": "it runs on its own thread and may block",
}
#: A string that may be an annotation: a name, perhaps with parameters.
IS_ANNOTATION = re.compile(r"\w+(\[[\w, \[\].]+\])?")
NEXT = """
try:
    return self._run(self._target.__anext__)
except StopAsyncIteration:
    raise StopIteration from None
"""
#: What a method gives that may be awaited or entered.
_OPENING = "Opening"
#: Ends the public part of a class.
OWN_PARTS = ("# ---- for the client's own parts", "# ---- for its topics")
#: In the public part, and yet not for threads that block: the client's own parts, and what programs on a loop use.
OWN_METHODS = {"start_listening", "next_for_listener", "entry_stream"}
#: Asynchronous -> blocking, for methods that Python calls.
SPECIAL = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
KEPT_SPECIAL = {"__len__", "__contains__", "__getitem__", "__iter__"}
HEADER = '"""{doc}\n\nGenerated from ``{source}`` by ``tools/generate_blocking.py``: do not edit.\n"""\n\n'

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """One module of the asynchronous client: tree, text, where its names come from."""

    def __init__(self, module: str) -> None:
        path = path_of(module)
        self.module = module
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        #: Name -> (module, name there), absolute.
        self.imports: dict[str, tuple[str, str]] = {}
        self.definitions: dict[str, ast.stmt] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (node.module, alias.name)
        for statement in self.tree.body:
            if isinstance(statement, ast.ClassDef | ast.FunctionDef):
                self.definitions[statement.name] = statement
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self.definitions[statement.targets[0].id] = statement

    def find_class(self, name: str) -> ast.ClassDef:
        """Its definition here."""
        found = self.definitions[name]
        assert isinstance(found, ast.ClassDef)
        return found


def path_of(module: str) -> Path:
    """The file of a module of ``geminga.client``; ``""`` is the package itself."""
    return SOURCE / f"{module.replace('.', '/')}.py" if module else SOURCE / "__init__.py"


@cache
def source_of(module: str) -> Source:
    """Parsed once."""
    return Source(module)


def home_of(name: str) -> str:
    """The module of the asynchronous class."""
    return HOMES.get(name, CLASSES[name])


def classes() -> dict[str, str]:
    """Those of ``CLASSES`` that exist."""
    return {name: module for name, module in CLASSES.items() if path_of(home_of(name)).exists()}


@dataclass
class Output:
    """One generated module, as it grows."""

    source: Source
    imports: dict[str, set[str]] = field(default_factory=dict)
    definitions: list[str] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    body: list[str] = field(default_factory=list)

    def import_name(self, module: str, name: str, alias: str = "") -> None:
        """``from module import name as alias``."""
        self.imports.setdefault(module, set()).add(f"{name} as {alias}" if alias and alias != name else name)

    def need(self, text: ast.AST, source: Source, *, apart_from: str = "") -> None:
        """Import, or define again, every name that ``text`` uses."""
        for name in names_in(text):
            if name == apart_from or name in self.done:
                continue
            if name in classes():
                self.import_name(f"geminga.client.blocking.{CLASSES[name]}", name)
            elif name in source.definitions:
                self.bring(name, source)
            elif name in source.imports:
                module, original = source.imports[name]
                here = module.removeprefix("geminga.client.")
                if module.startswith("geminga.client._") and speaks_of_classes(original, source_of(here)):
                    self.bring(original, source_of(here))
                else:
                    self.import_name(module, original, name)

    def bring(self, name: str, source: Source) -> None:
        """A name that ``source`` defines: defined again if it speaks of generated classes, else imported."""
        if not speaks_of_classes(name, source):
            self.import_name(f"geminga.client.{source.module}", name)
            return
        self.done.add(name)
        definition = source.definitions[name]
        self.need(definition, source, apart_from=name)
        lines = source.text.splitlines()
        start = definition.lineno - 1
        while start and lines[start - 1].startswith("#:"):
            start -= 1
        self.definitions.append(blocking_words("\n".join(lines[start : definition.end_lineno])))

    def text(self, doc: str) -> str:
        """The whole module, unformatted."""
        lines = [
            HEADER.format(doc=doc, source=f"client/{self.source.module.replace('.', '/')}.py"),
            "from __future__ import annotations\n\n",
        ]
        modules = [CLASSES[name] for name in CLASSES if home_of(name) == self.source.module]
        own = f"geminga.client.blocking.{modules[0] if modules else ''}"
        for module, names in sorted(self.imports.items()):
            if module != own:
                lines.append(f"from {module} import {', '.join(sorted(names))}\n")
        return "".join(lines) + "\n" + "\n\n".join([*self.definitions, *self.body]) + "\n"


def names_in(node: ast.AST) -> list[str]:
    """Names used in annotations, also within string annotations, sorted."""
    found = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str) and IS_ANNOTATION.fullmatch(part.value):
            found.update(names_in(ast.parse(part.value, mode="eval")))
    return sorted(found)


def speaks_of_classes(name: str, source: Source) -> bool:
    """Whether an alias or a table of options mentions a generated class, directly or not."""
    definition = source.definitions.get(name)
    if isinstance(definition, ast.ClassDef):
        if not any("TypedDict" in ast.unparse(base) for base in definition.bases):
            return False
    elif not (isinstance(definition, ast.Assign) and isinstance(definition.value, ast.Subscript)):
        return False
    for used in names_in(definition):
        if used in classes():
            return True
        if used != name and used in source.definitions and speaks_of_classes(used, source):
            return True
        module, original = source.imports.get(used, ("", ""))
        if module.startswith("geminga.client._") and speaks_of_classes(
            original, source_of(module.removeprefix("geminga.client."))
        ):
            return True
    return False


def blocking_words(text: str) -> str:
    """A docstring of the asynchronous client, said for the blocking one."""
    text = re.sub(r"``async (with|for)", r"``\1", text)
    text = re.sub(r"\basync (with|for)\b", r"\1", text)
    text = re.sub(r"``await ", "``", text)
    for said, blocking in WORDS.items():
        text = text.replace(said, blocking)
    return text


def public_methods(source: Source, node: ast.ClassDef) -> list[Function]:
    """The methods to generate, in order."""
    lines = source.text.splitlines()
    end = node.end_lineno or node.lineno
    for number in range(node.lineno, end):
        if lines[number].strip() in OWN_PARTS:
            end = number
            break
    return [
        part
        for part in node.body
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
        and part.lineno <= end
        and part.name not in OWN_METHODS
        and (not part.name.startswith("_") or part.name in SPECIAL or part.name in KEPT_SPECIAL)
    ]


def docstring(class_name: str, node: Function | ast.ClassDef, indent: str) -> str:
    """The docstring as it stands in the source, in blocking words."""
    text = ast.get_docstring(node)
    if text is None:
        return ""
    note = NOTES.get((class_name, node.name))
    if note:
        text += "\n\n" + "\n".join(re.findall(r".{1,108}(?:\s+|$)", note))
    text = blocking_words(text)
    lines = [line.rstrip() for line in text.splitlines()]
    closing = f"\n{indent}" if len(lines) > 1 else ""
    return (
        f'{indent}"""'
        + "\n".join([lines[0], *[f"{indent}{line}" if line else "" for line in lines[1:]]])
        + f'{closing}"""\n'
    )


def wrapped_class(returns: ast.expr | None) -> tuple[str, str]:
    """(class, annotation to construct it by) if a result must be wrapped; empty strings otherwise."""
    if returns is None:
        return "", ""
    used = [name for name in names_in(returns) if name in classes()]
    if not used:
        return "", ""
    text = ast.unparse(returns)
    if isinstance(returns, ast.BinOp):  # a union of the same class, over what it holds
        return used[0], f"{used[0]}[Any]"
    return used[0], text


def awaits(node: Function) -> bool:
    """Whether it is a coroutine function, or gives one that may be entered."""
    return isinstance(node, ast.AsyncFunctionDef) or _OPENING in ast.unparse(node.returns or ast.Constant(None))


def without_opening(returns: ast.expr | None) -> ast.expr | None:
    """What is awaited: ``Opening[X]`` is ``X`` to whoever blocks."""
    if returns is None:
        return None
    return ast.parse(re.sub(rf"{_OPENING}\[(\w+(?:\[\w+\])?)\]", r"\1", ast.unparse(returns)), mode="eval").body


class ClassWriter:
    """Writes the blocking twin of one class."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.source = source_of(home_of(name))
        self.node = self.source.find_class(name)
        self.out = Output(self.source)
        self.out.done.add(name)

    def write(self) -> str:
        """The module's text, unformatted."""
        base = BASES.get(self.name, "Facade")
        # Generic itself, or a base that is generic in one variable.
        generic = next((b.slice for b in self.node.bases if isinstance(b, ast.Subscript)), None)
        self.out.import_name("geminga.client.blocking._facade", base)
        if isinstance(generic, ast.Name):
            self.out.need(generic, self.source)
            self.out.import_name("typing", "Generic")
            variable = generic.id
            inner = variable if base != "Facade" else f"Async{self.name}[{variable}]"
            bases = f"{base}[{inner}], Generic[{variable}]"
        else:
            bases = f"{base}[Async{self.name}]" if base == "Facade" else base
        if f"Async{self.name}" in bases:
            self.out.import_name(f"geminga.client.{self.source.module}", self.name, f"Async{self.name}")
        text = f"class {self.name}({bases}):\n" + docstring(self.name, self.node, "    ") + "\n    __slots__ = ()\n\n"
        text += "\n".join(self.method(node, self.source) for node in public_methods(self.source, self.node))
        if ENTERED in [ast.unparse(base) for base in self.node.bases]:
            entered = source_of(ENTERED_HOME)
            methods = public_methods(entered, entered.find_class(ENTERED))
            text += "\n".join(["", *(self.method(node, entered) for node in methods if node.name in SPECIAL)])
        self.out.body.append(text)
        return self.out.text(f"The blocking ``{self.name}``.")

    def method(self, node: Function, source: Source) -> str:
        """One method of the class, or of what it stands on in ``source``, with its decorators."""
        is_awaited = awaits(node)
        node.returns = without_opening(node.returns)
        decorators = [ast.unparse(d) for d in node.decorator_list]
        kept = "".join(f"    @{d}\n" for d in decorators if d in ("overload", "property"))
        if "overload" in decorators:
            self.out.import_name("typing", "overload")
        self.out.need(node.args, source)
        if node.returns is not None:
            self.out.need(node.returns, source)
        name = SPECIAL.get(node.name, node.name)
        returns = ast.unparse(node.returns) if node.returns is not None else "None"
        returns = returns.replace("AsyncIterator[", "Iterator[").replace("AsyncGenerator[", "Iterator[")
        if "Iterator[" in returns and "Iterator" not in self.out.done:
            self.out.imports.get("collections.abc", set()).discard("AsyncIterator")
            self.out.import_name("collections.abc", "Iterator")
        head = f"{kept}    def {name}({ast.unparse(node.args)}) -> {returns}:"
        if "overload" in decorators:
            return f"{head} ...\n"
        return f"{head}\n{docstring(self.name, node, '        ')}{self.body(node, decorators, is_awaited=is_awaited)}\n"

    def body(self, node: Function, decorators: list[str], *, is_awaited: bool) -> str:
        """What it does."""
        indent = "        "
        own = BODIES.get((self.name, node.name))
        if own is not None:
            return f"{indent}{own}\n"
        if node.name in ("__aenter__", "__aiter__"):
            return f"{indent}return self\n"
        if node.name == "__aexit__":
            return f"{indent}self.close()\n"
        if node.name == "__anext__":
            return NEXT.replace("\n", f"\n{indent}").lstrip("\n").rstrip() + "\n"
        if "property" in decorators:
            call = f"self._call(lambda: self._target.{node.name})"
        elif node.name == "__len__":
            call = "self._call(lambda: len(self._target))"
        else:
            arguments = self._arguments(node)
            how = "_run" if is_awaited else "_call"
            call = f"self.{how}(lambda: self._target.{node.name}({arguments}))"
        wrapper, construct = wrapped_class(node.returns)
        if wrapper:
            if wrapper != self.name:
                self.out.import_name(f"geminga.client.blocking.{CLASSES[wrapper]}", wrapper)
            if construct.endswith("[Any]"):
                self.out.import_name("typing", "Any")
                self.out.import_name(f"geminga.client.{home_of(wrapper)}", wrapper, f"Async{wrapper}")
                given = f"{construct}(made, self._thread){WRAPPED.get((self.name, node.name), '')}"
                return f"{indent}made: Async{construct} = {call}\n{indent}return {given}\n"
            return f"{indent}return {construct}({call}, self._thread)\n"
        is_none = node.returns is None or ast.unparse(node.returns) == "None"
        return f"{indent}{'' if is_none else 'return '}{call}\n"

    def _arguments(self, node: Function) -> str:
        """What the method passes on: its own parameters, listeners through a thread of their own."""
        given = [self._passed(node, a.arg) for a in [*node.args.posonlyargs, *node.args.args][1:]]
        if node.args.vararg:
            given.append(f"*{node.args.vararg.arg}")
        given += [f"{a.arg}={self._passed(node, a.arg)}" for a in node.args.kwonlyargs]
        if node.args.kwarg:
            name = node.args.kwarg.arg
            given.append(f"**{self._passed_options(node, name)}")
        return ", ".join(given)

    def _passed(self, node: Function, name: str) -> str:
        if name == "txn":
            self.out.import_name("geminga.client.blocking._facade", "asynchronous")
            return "asynchronous(txn)"
        through = LISTENERS.get((self.name, node.name, name))
        if through is None:
            return name
        self.out.import_name("geminga.client.blocking._listeners", through.partition("(")[0])
        return through.format(name)

    def _passed_options(self, node: Function, name: str) -> str:
        annotation = node.args.kwarg.annotation if node.args.kwarg else None
        own = {used for used in names_in(annotation) if used in self.out.done} if annotation is not None else set()
        if "MessageFields" in own:
            self.out.import_name("geminga.client.blocking._facade", "with_transaction")
            return f"with_transaction({name})"
        if own:
            self.out.import_name("geminga.client.blocking._listeners", "with_listener")
            return f"with_listener({name}, self._thread)"
        return name


def package_text() -> str:
    """``blocking/__init__.py``: ``connect``, and every name of the asynchronous package."""
    source = source_of("")
    connect = source.definitions["connect"]
    assert isinstance(connect, ast.FunctionDef)
    exported: list[str] = next(
        ast.literal_eval(node.value)
        for node in source.tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    out = Output(source)
    out.done.add("connect")
    out.need(connect.args, source)
    out.import_name("geminga.client.blocking._client", "Client")
    out.import_name("geminga.client.blocking._facade", "on_loop")
    out.import_name("geminga.client", "connect", "connect_async")
    for name in exported:
        if name in source.imports and name not in classes():
            module, original = source.imports[name]
            found = source_of(module.removeprefix("geminga.client.")) if module.startswith("geminga.client._") else None
            if found is not None and speaks_of_classes(original, found):
                home = next(m for m in classes().values() if f"{original}" in generated(m))
                out.import_name(f"geminga.client.blocking.{home}", name)
            elif module.startswith(("geminga.client", "geminga.model")):
                out.import_name(module, original, name)
        elif name in classes():
            out.import_name(f"geminga.client.blocking.{CLASSES[name]}", name)
    passed = [connect.args.args[0].arg, *(f"{a.arg}={a.arg}" for a in connect.args.kwonlyargs)]
    if connect.args.kwarg:
        passed.append(f"**{connect.args.kwarg.arg}")
    text = f"def connect({ast.unparse(connect.args)}) -> Client:\n" + docstring("", connect, "    ")
    text += f"    return Client(*on_loop(lambda: connect_async({', '.join(passed)})))\n"
    out.body += [text, f"__all__ = {sorted(exported)!r}\n"]
    doc = (
        "``geminga.client.blocking``: the client for scripts and threads, with the names of the asynchronous one.\n\n"
        "::\n\n"
        '    with geminga.client.blocking.connect("pulsar://localhost:6650") as client:\n'
        '        producer = client.create_producer("topic")\n'
        '        producer.send(b"hello")\n\n'
        "One thread per process runs the loop; a forked child that makes its own client gets its own. Objects may be\n"
        "used from several threads. Listeners and callbacks run on threads that may block."
    )
    return out.text(doc).replace("client/.py", "client/__init__.py")


@cache
def generated(module: str) -> str:
    """Unformatted text of a class's module."""
    return ClassWriter(next(name for name, m in CLASSES.items() if m == module)).write()


def generate() -> dict[Path, str]:
    """Path -> text of every module, formatted."""
    texts = {f"{module}.py": generated(module) for module in classes().values()}
    texts["__init__.py"] = package_text()
    return {TARGET / name: formatted(text, name) for name, text in sorted(texts.items())}


def formatted(text: str, name: str) -> str:
    """As ``make fmt`` would leave it."""
    path = f"src/geminga/client/blocking/{name}"
    for arguments in (["check", "--fix", "--quiet", "--select", "I,F401"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", path, "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def main() -> int:
    """Run as a command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit code 1 if anything differs")
    is_check = parser.parse_args().check
    stale = [p for p, text in generate().items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    for path in stale:
        if is_check:
            sys.stderr.write(f"out of date: {path.relative_to(ROOT)}\n")
        else:
            path.write_text(generate()[path], encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
