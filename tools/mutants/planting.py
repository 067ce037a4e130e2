"""Put a changed source into this process: into a module that is loaded already, or before it is loaded.

In a loaded module the functions get the code of the changed source, wherever they are held; nothing has to be imported
again. What a module does while it is imported can not be changed so: such a change is planted before anything of the
product is imported.
"""

from __future__ import annotations

import ast
import gc
import importlib.abc
import importlib.machinery
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Final, TypeAlias

_IS_FUNCTION: Final = 0x0002  # inspect.CO_NEWLOCALS: set for functions, not for modules and class bodies

#: File, qualified name, line and name of a piece of code -> the functions that run it.
FunctionsByCode: TypeAlias = Mapping[tuple[str, str, int], Sequence[FunctionType]]
#: A changed module: its text, or its syntax tree.
Source: TypeAlias = str | ast.Module


class NotPlantableError(Exception):
    """Only an import can plant this change."""


def functions_by_code() -> FunctionsByCode:
    """All functions of the process, those that the collector was told to leave alone, too."""
    found = defaultdict(list)
    was_frozen = gc.get_freeze_count()
    gc.unfreeze()
    for thing in gc.get_objects():
        if type(thing) is FunctionType:
            found[_key(thing.__code__)].append(thing)
    if was_frozen:
        gc.freeze()
    return found


def qualified_module(file: str) -> str:
    """``geminga.bookie.journal`` for ``src/geminga/bookie/journal.py``."""
    parts = Path(file).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def plant(module: str, file: str, source: Source, functions: FunctionsByCode) -> None:
    """Change a module: now if it is loaded, else when it is. Raises NotPlantableError."""
    loaded = sys.modules.get(module)
    if loaded is None:
        plant_before_import(module, file, source)
        return
    if loaded.__file__ != file:
        raise NotPlantableError(f"{module} was loaded from {loaded.__file__}, not from {file}")
    with open(file, encoding="utf-8") as original:
        changes = list(_changed(_compiled(original.read(), file), _compiled(source, file)))
    for old, _ in changes:
        if not old.co_flags & _IS_FUNCTION:
            raise NotPlantableError(f"{old.co_qualname} is run by the import")
    found = [(function, new) for old, new in changes for function in functions.get(_key(old), ())]
    if not found:
        raise NotPlantableError("no function is made of this line")
    for function, new in found:
        try:
            function.__code__ = new
        except ValueError as error:  # another number of free variables
            raise NotPlantableError(str(error)) from error


def plant_before_import(module: str, file: str, source: Source) -> None:
    """Whoever imports the module from now on gets the changed one."""
    assert module not in sys.modules, f"{module} is loaded"
    sys.meta_path.insert(0, _Finder(module, file, source))


def _compiled(source: Source, file: str) -> CodeType:
    return compile(source, file, "exec", dont_inherit=True)


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _changed(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Pairs of code objects that differ, the outermost function of each nest first, then what is nested in it."""
    old_nested, new_nested = _nested(old), _nested(new)
    if old.co_flags & _IS_FUNCTION:
        if old != new:
            yield old, new
    elif old.co_code != new.co_code or _constants(old) != _constants(new) or len(old_nested) != len(new_nested):
        yield old, new
        return
    by_key: dict[tuple[str, str, int], list[CodeType]] = defaultdict(list)
    for code in new_nested:
        by_key[_key(code)].append(code)
    for code in old_nested:
        others = by_key.get(_key(code))
        if others:
            yield from _changed(code, others.pop(0))


def _nested(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _constants(code: CodeType) -> list[object]:
    return [repr(constant) for constant in code.co_consts if not isinstance(constant, CodeType)]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves one module from the changed source."""

    def __init__(self, module: str, file: str, source: Source) -> None:
        self._module = module
        self._file = file
        self._source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of the one module."""
        if fullname != self._module:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=self._file)
        spec.has_location = True
        if self._file.endswith("__init__.py"):
            spec.submodule_search_locations = [self._file.removesuffix("/__init__.py")]
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed source."""
        exec(_compiled(self._source, self._file), module.__dict__)
