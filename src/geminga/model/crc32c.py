"""CRC32C: the function of the C extension in the distribution ``crc32c``, and nothing else of it.

Its package imports its command line and the metadata of all distributions as well, and with them parsers of arguments,
mail and calendars: as much as a twentieth of a broker's start. The extension needs none of that.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["crc32c"]


def _extension() -> ModuleType:
    package = find_spec("crc32c")  # finds it, and runs nothing of it
    if package is None:
        raise ModuleNotFoundError("No module named 'crc32c'", name="crc32c")
    spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError("the package crc32c has no extension _crc32c", name="crc32c")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from crc32c import crc32c
else:
    crc32c = _extension().crc32c
