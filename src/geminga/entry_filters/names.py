"""Names of filters: which there are, where they are, and, in a process of their own, what they are.

A name is that of an entry point of the group ``geminga.entry_filters``, or ``module:callable`` of the file
``module.py`` in the directory of filters. Nothing else is ever imported: who may set a namespace's policies can name
filters, and is not to choose what code runs.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final, cast

from geminga.entry_filters import ENTRY_POINTS, EntryFilter
from geminga.model.errors import NotFoundError

#: Filters that one policy may name, and characters of a name.
NAMES_MAX: Final = 16
NAME_CHARACTERS_MAX: Final = 200
#: Before the name of a filter's file, among the modules.
_MODULE_PREFIX: Final = "_geminga_entry_filter_"
_IN_FILE: Final = re.compile(r"([A-Za-z_]\w*):([A-Za-z_]\w*)", re.ASCII)


class FilterNameError(NotFoundError):
    """A name that nothing is known by, or whose filter can not be loaded."""


def names_of(text: str) -> tuple[str, ...]:
    """The names in Pulsar's ``entryFilterNames``, in their order: commas between them, blank ones left out."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def check_names(names: tuple[str, ...], directory: str) -> None:
    """Raise FilterNameError for the first one that is not declared, in Pulsar's words."""
    if len(names) > NAMES_MAX:
        raise FilterNameError(f"{len(names)} entry filters, at most {NAMES_MAX} are taken")
    for name in names:
        if not is_declared(name, directory):
            raise FilterNameError(f"Entry filter '{name[:NAME_CHARACTERS_MAX]}' not found")


def is_declared(name: str, directory: str) -> bool:
    """Whether a filter is known by that name. Nothing is imported to find out."""
    if len(name) > NAME_CHARACTERS_MAX:
        return False
    return _file_of(name, directory) is not None or name in _declared()


def load(name: str, directory: str) -> EntryFilter:
    """The callable; for a process of filters alone. Raises FilterNameError with what is wrong."""
    try:
        path = _file_of(name, directory)
        found = _declared()[name].load() if path is None and name in _declared() else _from_file(name, path)
    except FilterNameError:
        raise
    except BaseException as error:  # code of others: whatever it raises is told
        raise FilterNameError(f"it can not be loaded: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise FilterNameError(f"it is {type(found).__name__}, which can not be called")
    return cast("EntryFilter", found)


@lru_cache(maxsize=1)
def _declared() -> dict[str, EntryPoint]:
    return {found.name: found for found in entry_points(group=ENTRY_POINTS)}


def _file_of(name: str, directory: str) -> Path | None:
    match = _IN_FILE.fullmatch(name)
    if match is None or not directory:
        return None
    path = Path(directory) / f"{match[1]}.py"
    return path if path.is_file() else None


def _from_file(name: str, path: Path | None) -> object:
    if path is None:
        raise FilterNameError("it is not found")
    module_name, _, attribute = name.partition(":")
    # No file takes the name of a module that others import.
    spec = importlib.util.spec_from_file_location(f"{_MODULE_PREFIX}{module_name}", path)
    if spec is None or spec.loader is None:
        raise FilterNameError(f"{path.name} can not be read")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses, pickle and type hints look a class's module up there.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    if not hasattr(module, attribute):
        raise FilterNameError(f"{path.name} has no {attribute}")
    return getattr(module, attribute)
