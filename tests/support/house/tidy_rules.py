"""The rules of the code base as pure functions: a module in, sentences about what breaks the rule out.

``tests/tidy`` runs each rule over the product, and over a small planted sample that must be caught.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

from geminga.model import errors
from support.house.floors import is_pure
from support.house.source_tree import SourceModule, imported_modules, imports_of

#: Which packages a package may import (besides itself). The order is that of the layers, lowest first.
LAYERS: Mapping[str, frozenset[str]] = {
    "version": frozenset(),
    "model": frozenset(),
    "runtime": frozenset({"model"}),
    "wire": frozenset({"model"}),
    # Tokens, passwords and subjects of certificates: pure.
    "security": frozenset({"model"}),
    # What filters of entries are written with, and their processes, which are no part of the broker's.
    "entry_filters": frozenset({"wire", "model"}),
    "sim": frozenset({"runtime", "model"}),
    "metadata": frozenset({"runtime", "model"}),
    "client": frozenset({"wire", "runtime", "model"}),
    # Asks brokers over HTTP: it shares nothing with them but names.
    "admin": frozenset({"runtime", "model"}),
    # What lake files are: on threads, with file systems of its own.
    "lake": frozenset({"wire", "runtime", "model"}),
    "spark": frozenset({"client", "lake", "wire", "runtime", "model"}),
    "bookie": frozenset({"metadata", "wire", "runtime", "model"}),
    "bookkeeper": frozenset({"metadata", "wire", "runtime", "model"}),
    # Restores copies, beside whoever writes.
    "replication": frozenset({"bookkeeper", "metadata", "wire", "runtime", "model"}),
    "managed_ledger": frozenset({"lake", "bookkeeper", "metadata", "wire", "runtime", "model"}),
    # Its coordinator, buffers and logs reach topics through ports of its own, which the broker implements.
    "transaction": frozenset({"managed_ledger", "wire", "runtime", "model"}),
    # The client: to read and write topics that another broker, or another cluster, serves.
    "broker": frozenset(
        [
            "transaction",
            "managed_ledger",
            "lake",
            "bookkeeper",
            "client",
            "entry_filters",
            "metadata",
            "security",
            "wire",
            "runtime",
            "model",
        ]
    ),
    # Between clients and brokers: it authenticates as these do.
    "proxy": frozenset({"broker", "client", "metadata", "wire", "runtime", "model"}),
    "app": frozenset(
        [
            "admin",
            "proxy",
            "broker",
            "transaction",
            "managed_ledger",
            "lake",
            "bookkeeper",
            "bookie",
            "replication",
            "client",
            # Its pipelines, when a command of them runs.
            "spark",
            "metadata",
            "security",
            "wire",
            "runtime",
            "model",
            "version",
        ]
    ),
    # geminga/__init__.py, __main__.py, pytest_plugin.py, pyspark_geminga.py: what users import.
    "": frozenset({"app", "client", "spark", "model", "version"}),
}

#: What a pure module may not import: the world.
IMPURE = frozenset(
    [
        "asyncio",
        "socket",
        "os",
        "io",
        "time",
        "random",
        "uuid",
        "threading",
        "subprocess",
        "logging",
        "secrets",
        "selectors",
    ]
)

#: Last parts of the names of modules that a pure one may import from its own or a lower package.
_PURE_SIBLINGS = frozenset({"ports", "config", "errors"})

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
#: Of a package's docstring.
PACKAGE_WORDS_MIN = 4

_BANNED_MODULE_WORDS = frozenset(
    ["util", "utils", "helper", "helpers", "manager", "managers", "common", "misc", "impl", "base2", "stuff"]
)
_BANNED_CLASS_SUFFIXES = ("Impl", "Manager", "Helper", "Helpers", "Util", "Utils", "Base2")

#: Packages that own the operating system, tasks and threads.
_OS_OWNERS = frozenset({"runtime", "app", "sim", "spark", "lake"})
#: Packages that may catch every exception: ``runtime.spawn``, the process boundary, and the simulator's own loop; and
#: the processes that run entry filters, which tell what code of others raises.
_BROAD_CATCHERS = frozenset({"runtime", "app", "sim", "entry_filters"})

_BANNED_ATTRIBUTE_CALLS = frozenset(
    [
        "create_task",
        "run_in_executor",
        "to_thread",
        "ensure_future",
        "read_text",
        "write_text",
        "read_bytes",
        "write_bytes",
    ]
)

_MARKERS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"]) + r")\b")
_UNFINISHED = "NotImplemented" + "Error"
_HOST_PATH = re.compile(r"(?<![\w.])/(?:wo" + r"rk|ro" + r"ot|ho" + r"me/\w+|tmp/(?:gem" + r"inga|v))/\w")
#: Papers that are not in the repository: a reader can not look them up, so the rule itself is said.
_PAPER = re.compile(
    r"\b(?:MISS" + r"ION|FAC" + r"TS)\b|\b(?:DES" + r"IGN|STY" + r"LE|SPA" + r"RK) \d|\bS[0-4] \d+(?:-\d+)?[,.):]"
)
_REGISTRY = re.compile(
    r"py" + r"pi\.org|python" + r"hosted\.org|arti" + r"factory|--(?:extra-)?index" + r"-url\b[ =]\S*:"
)
#: The word is spelt without its second e; these are public names, or Pulsar's own.
_LONG_SPELLING = re.compile(r"\w*cknowledg" + r"ement\w*", re.IGNORECASE)
_SPELT_LONG = {
    "flush_acknowledg" + "ements",
    "on_send_acknowledg" + "ement",
    "cumulativeacknowledg" + "ementnotallowederror",
}


def layer_violations(module: SourceModule, known: frozenset[str]) -> list[str]:
    """Imports of a package that the layer table does not allow."""
    allowed = LAYERS.get(module.package)
    if allowed is None:
        return [f"{module.name}: package {module.package!r} is not in the layer table"]
    found = []
    for imported in imports_of(module, known):
        parts = imported.target.split(".")
        if parts[0] != "geminga":
            continue
        target = parts[1] if len(parts) > 1 else ""
        if target in ("pytest_plugin", "__main__"):
            target = ""
        if target == "" and imported.target == "geminga.pytest_plugin" and module.package == "":
            continue
        if target != module.package and target not in allowed:
            found.append(f"{module.name}:{imported.line} imports {imported.target}, not allowed in {module.package!r}")
    return found


#: Compositions, and who may know them: parts below get what they use, one by one.
WHOLES: Mapping[str, re.Pattern[str]] = {
    "geminga.client._client": re.compile(r"geminga\.client(\.blocking\b.*)?"),
}


def whole_violations(module: SourceModule, known: frozenset[str]) -> list[str]:
    """Parts that know, be it by type, the composition that joins them."""
    return [
        f"{module.name}:{imported.line} knows {imported.target} as a whole: take what is used of it"
        for imported in imports_of(module, known)
        if imported.target in WHOLES and not WHOLES[imported.target].fullmatch(module.name)
    ]


def private_violations(module: SourceModule, known: frozenset[str]) -> list[str]:
    """Imports of what the client keeps to itself: other packages use its public names, as every application does."""
    if module.package == "client":
        return []
    return [
        f"{module.name}:{imported.line} imports {imported.target}, which is private to the client"
        for imported in imports_of(module, known)
        if re.match(r"geminga\.client\.(\w+\.)*_", imported.target)
    ]


def import_cycles(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Cycles among modules that import each other while importing (depth first, each reported once)."""
    state: dict[str, int] = {}
    found = []

    def visit(name: str, path: list[str]) -> None:
        state[name] = 1
        for target in sorted(set(graph.get(name, ()))):
            if target not in graph or target == name:
                continue
            if state.get(target) == 1:
                found.append(" -> ".join([*path[path.index(target) :], target]))
            elif target not in state:
                visit(target, [*path, target])
        state[name] = 2

    for name in sorted(graph):
        if name not in state:
            visit(name, [name])
    return found


def purity_violations(module: SourceModule, known: frozenset[str]) -> list[str]:
    """What a pure module imports though it reaches the world, or is a shell."""
    if not is_pure(module.name if module.is_package_init else module.name.rpartition(".")[0]):
        return []
    found = []
    for imported in imports_of(module, known):
        parts = imported.target.split(".")
        if parts[0] in IMPURE:
            found.append(f"{module.name}:{imported.line} is pure but imports {imported.target}")
        elif parts[0] == "geminga" and not (
            parts[1:2] == ["model"]
            or is_pure(imported.target)
            or is_pure(imported.target.rpartition(".")[0])
            or parts[-1] in _PURE_SIBLINGS
        ):
            found.append(f"{module.name}:{imported.line} is pure but imports the shell {imported.target}")
    return found


def size_violations(module: SourceModule) -> list[str]:
    """Modules past the limit whose docstring does not say why, and functions past theirs."""
    found = []
    lines = module.text.count("\n")
    docstring = ast.get_docstring(module.tree) or ""
    if lines > MODULE_LINES_MAX and not re.search(r"\b(lines|long)\b.*\bbecause\b", docstring, re.DOTALL):
        found.append(f"{module.name} has {lines} lines, and its docstring does not say because of what")
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = function_lines(node)
            if length > FUNCTION_LINES_MAX:
                found.append(f"{module.name}:{node.lineno} {node.name} has {length} lines")
    return found


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        first = node.body[0]
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


def name_violations(module: SourceModule) -> list[str]:
    """Modules and classes named after nothing."""
    found = []
    for part in module.name.split("."):
        if _BANNED_MODULE_WORDS & set(part.split("_")):
            found.append(f"{module.name}: {part!r} says nothing; name the thing")
    for node in module.nodes:
        if isinstance(node, ast.ClassDef) and node.name.endswith(_BANNED_CLASS_SUFFIXES):
            found.append(f"{module.name}:{node.lineno} class {node.name}: name the thing, not its role in the code")
    return found


def world_violations(module: SourceModule) -> list[str]:
    """Ways around the ports that the linter does not see: files, tasks, executors, sleeping, broad excepts."""
    found = []
    for node in module.nodes:
        where = f"{module.name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call) and module.package not in _OS_OWNERS:
            if isinstance(node.func, ast.Name) and node.func.id == "open":
                found.append(f"{where} opens a file: use runtime.Disk")
            elif isinstance(node.func, ast.Attribute) and node.func.attr in _BANNED_ATTRIBUTE_CALLS:
                found.append(f"{where} calls {node.func.attr}: tasks, threads and files belong to runtime")
            elif getattr(node.func, "attr", "") == "sleep" and ast.unparse(node.func) in (
                "asyncio.sleep",
                "time.sleep",
            ):
                found.append(f"{where} sleeps: wait for an event or a timer of the loop")
        elif isinstance(node, ast.ExceptHandler) and module.package not in _BROAD_CATCHERS:
            caught = "everything" if node.type is None else ast.unparse(node.type)
            if {"everything", "Exception", "BaseException"} & set(re.findall(r"\w+", caught)) and not _reraises(node):
                found.append(f"{where} catches {caught}: name the errors, or let runtime.spawn report it")
    return found


def _reraises(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


#: Packages whose texts name ledgers, files and nodes.
_STORAGE = frozenset({"bookie", "bookkeeper", "managed_ledger", "metadata", "replication"})


def told_violations(module: SourceModule) -> list[str]:
    """Texts that were written for the log, on their way to clients.

    The broker tells ``error.told``; storage raises what clients are told literally only with words it does not fill in.
    """
    found = []
    calls = [node for node in module.nodes if isinstance(node, ast.Call)]
    # ``close`` takes the line for the log.
    logged = {id(part) for node in calls if getattr(node.func, "attr", "") == "close" for part in node.args}
    for node in calls:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        is_for_clients = module.package == "broker" and ".schema.core" not in module.name and id(node) not in logged
        if is_for_clients and ast.unparse(node) in ("str(error)", "repr(error)"):
            found.append(f"{module.name}:{node.lineno} tells str(error): error.told is for clients")
        error = getattr(errors, name, None) if module.package in _STORAGE else None
        is_told = isinstance(error, type) and issubclass(error, errors.GemingaError) and not error.public_text
        if is_told and not all(isinstance(part, ast.Constant) for part in node.args):
            found.append(f"{module.name}:{node.lineno} {name} is told to clients: a text without names in it")
    return found


def header_violations(module: SourceModule) -> list[str]:
    """Missing module docstring, a package that tells no more than its name, or missing postponed annotations."""
    found = []
    told = ast.get_docstring(module.tree)
    if not told:
        found.append(f"{module.name} has no docstring")
    elif module.is_package_init and len(told.split()) < PACKAGE_WORDS_MIN:
        found.append(f"{module.name}: {told!r} says little more than its name; say what the package promises")
    has_code = any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.AnnAssign) for node in module.nodes
    )
    postponed = any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" and node.names[0].name == "annotations"
        for node in module.tree.body
    )
    if has_code and not postponed:
        found.append(f"{module.name} lacks: from __future__ import annotations")
    return found


def docstring_violations(module: SourceModule) -> list[str]:
    """Public classes without a docstring, and functions whose docstring lacks what their name can not say.

    That is which errors they raise (a sentence with "raises", or the error's name), which unit a time has whose name
    ends with none, and what a function is about that takes several things. A function that takes one thing at most
    and raises nothing may do without: no sentence is asked for that says its name again.
    """
    found = []
    for name, node in _public_definitions(module.tree.body, ""):
        docstring = ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef):
            lacks = [] if docstring else ["a docstring"]
        else:
            lacks = [] if docstring or len(_parameters(node)) < 2 else ["a docstring"]
            errors_raised = sorted(_raised(node.body, frozenset()))
            if errors_raised and not _tells_errors(module, node, docstring, errors_raised):
                lacks.append(f"Raises {', '.join(errors_raised)} in its docstring")
            lacks += [
                f"the unit of {one} in its docstring" for one in _unitless(node) if not _UNIT_WORD.search(docstring)
            ]
        found += [f"{module.name}:{node.lineno} {name} lacks {one}" for one in lacks]
    return found


#: Where a docstring says by other words what is raised: statuses of HTTP, exit codes; a simulator's escapes say why.
_SAYS_OTHERWISE = ("geminga.broker.rest.", "geminga.app.commands.", "geminga.sim.")
#: A bug is no error that anybody catches, and an iterator's end is none.
_NOT_TOLD = frozenset(
    {"InvariantError", "AssertionError", "SystemExit", "StopIteration", "StopAsyncIteration", "KeyboardInterrupt"}
)
_TIMES = frozenset({"timeout", "delay", "interval", "age", "duration", "period", "ttl", "deadline", "elapsed"})
_UNIT_SUFFIX = re.compile(r"_(ns|us|ms|s|millis|seconds|minutes|hours|days)$")
_UNIT_WORD = re.compile(
    r"\b(ns|us|ms|s|seconds?|milliseconds?|microseconds?|minutes?|hours?|days?|units?|see)\b", re.IGNORECASE
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _parameters(node: _Function) -> list[ast.arg]:
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [one for one in every if one.arg not in ("self", "cls", "_") and not one.arg.startswith("_")]


def _unitless(node: _Function) -> list[str]:
    """Times among the parameters, and the function itself if it gives one, whose names say no unit."""
    numbers = [one.arg for one in _parameters(node) if one.annotation is not None and _is_number(one.annotation)]
    named = [*numbers, node.name] if node.returns is not None and _is_number(node.returns) else numbers
    return [name for name in named if set(name.split("_")) & _TIMES and not _UNIT_SUFFIX.search(name)]


def _is_number(annotation: ast.expr) -> bool:
    if isinstance(annotation, ast.BinOp) and getattr(annotation.right, "value", ...) is None:
        annotation = annotation.left
    return isinstance(annotation, ast.Name) and annotation.id in ("int", "float")


def _raised(body: Iterable[ast.AST], caught: frozenset[str]) -> set[str]:
    """Names of the errors that statements raise by a call of their class, but for those that they catch themselves."""
    found: set[str] = set()
    for node in body:
        # An expression raises nothing by itself, and most of a tree is expressions.
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr):
            continue
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            name = ast.unparse(node.exc.func).rpartition(".")[2]
            if name[:1].isupper() and name not in caught | _NOT_TOLD:
                found.add(name)
        elif isinstance(node, ast.Try):
            own = {name for one in node.handlers if one.type for name in re.findall(r"\w+", ast.unparse(one.type))}
            found |= _raised(node.body, caught | own)
            found |= _raised([*node.handlers, *node.orelse, *node.finalbody], caught)
        else:
            found |= _raised(ast.iter_child_nodes(node), caught)
    return found


def _tells_errors(module: SourceModule, node: _Function, docstring: str, names: Iterable[str]) -> bool:
    if module.name.startswith(_SAYS_OTHERWISE) or re.search(r"\b([Rr]ais(e|es|ed)|[Ss]ee|[Ll]ike|port)\b", docstring):
        return True
    if node.name.startswith("check") or any(name in docstring for name in names):
        return True
    # Of one whole module.
    return re.search(r"\b[Rr]aises?\b", ast.get_docstring(module.tree) or "") is not None


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _public_definitions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, _Definition]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if any("setter" in ast.unparse(d) or "overload" in ast.unparse(d) for d in node.decorator_list):
                continue
            yield f"{prefix}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from _public_definitions(node.body, f"{prefix}{node.name}.")


def export_violations(module: SourceModule) -> list[str]:
    """``__all__`` that names what is not there, or a package that re-exports without ``__all__``."""
    declared = _declared_exports(module.tree)
    if declared is None and not module.is_package_init:
        return []
    bound, imported = _bound_names(module.tree)
    if declared is None:
        if any(not name.startswith("_") for name in imported):
            return [f"{module.name} re-exports names but has no __all__"]
        return []
    found = [f"{module.name}: __all__ is not sorted or has duplicates"] if len(set(declared)) != len(declared) else []
    lazy = "__getattr__" in bound
    if not lazy:
        found += [f"{module.name}: __all__ names {name}, which is not there" for name in declared if name not in bound]
    if module.is_package_init:
        used = {node.id for node in module.nodes if isinstance(node, ast.Name)}
        found += [
            f"{module.name} imports {name} and neither uses nor exports it"
            for name in sorted(imported - used)
            if name not in declared and not name.startswith("_")
        ]
    return found


def _declared_exports(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            value: list[str] = ast.literal_eval(node.value)  # type: ignore[attr-defined]
            return list(value)
    return None


def _bound_names(tree: ast.Module) -> tuple[set[str], set[str]]:
    bound: set[str] = set()
    imported: set[str] = set()
    for node in ast.walk(ast.Module(body=tree.body, type_ignores=[])):
        if isinstance(node, ast.Import | ast.ImportFrom) and node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                continue
            names = {a.asname or a.name.split(".")[0] for a in node.names}
            bound |= names
            # "import x" is used inside; "from x import y" in a package's __init__ is a re-export.
            imported |= (
                names if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("geminga") else set()
            )
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name.split(".")[0])
    return bound, imported


def text_violations(name: str, text: str) -> list[str]:
    """Leftover markers, paths of somebody's machine, hosts of package indexes, papers that nobody finds here."""
    found: list[str] = []
    # Most files hold none of them, and one look at a whole text is cheaper than one at each line.
    if _UNFINISHED not in text and not any(
        one.search(text) for one in (_MARKERS, _HOST_PATH, _PAPER, _REGISTRY, _LONG_SPELLING)
    ):
        return found
    for number, line in enumerate(text.splitlines(), 1):
        if _MARKERS.search(line):
            found.append(f"{name}:{number} has a leftover marker: {line.strip()[:80]}")
        if _UNFINISHED in line:
            found.append(f"{name}:{number} is unfinished: {line.strip()[:80]}")
        if _HOST_PATH.search(line):
            found.append(f"{name}:{number} names a path of one machine: {line.strip()[:80]}")
        if _PAPER.search(line):
            found.append(f"{name}:{number} names a paper that is not here; say the rule: {line.strip()[:80]}")
        if _REGISTRY.search(line):
            found.append(f"{name}:{number} names a package index: {line.strip()[:80]}")
        found += [
            f"{name}:{number} spells acknowledgment as {word}"
            for word in _LONG_SPELLING.findall(line)
            if word.lower() not in _SPELT_LONG
        ]
    return found


def lock_violations(text: str) -> list[str]:
    """A lock file may hold names, versions, hashes and nothing that says where packages come from."""
    found = [f"line {n}: {line}" for n, line in enumerate(text.splitlines(), 1) if "://" in line or "index" in line]
    blocks = re.split(r"\n(?=[a-z])", text)
    found += [
        f"no hash: {block.splitlines()[0]}" for block in blocks if "==" in block and "--hash=sha256:" not in block
    ]
    return found


def untested_modules(modules: Iterable[SourceModule], tests: Mapping[str, str]) -> list[str]:
    """Modules that no test file imports or is named after. ``tests``: path below tests/ -> text.

    A name counts in the folder of the module's package, and for tests of the whole (processes, properties).
    """
    by_name = {module.name: module for module in modules}
    imported: set[str] = set()
    for path, text in tests.items():
        imported |= imported_modules(SourceModule(path.removesuffix(".py").replace("/", "."), text), by_name)
    found = []
    for module in by_name.values():
        last = module.name.rsplit(".", 1)[-1]
        if module.is_package_init or last in ("__main__", "ports") or module.name in imported:
            continue
        if not any(_is_named_after(path, module, last) for path in tests):
            found.append(f"{module.name} has no test file")
    return found


def _is_named_after(path: str, module: SourceModule, last: str) -> bool:
    *folders, file = path.removesuffix(".py").split("/")
    above = module.name.split(".")[:-1]
    names = {last, *(f"{folder}_{last}" for folder in above), f"{module.package}_{above[-1]}_{last}"}
    if file.removeprefix("test_").removesuffix("_properties") not in names:
        return False
    return folders[:1] != ["unit"] or module.package in ("", *folders)
