"""Builds Geminga as it is, or with ``GEMINGA_COMPILE=1`` the modules of ``[tool.geminga] compiled`` as C, by mypyc.

The second takes a C compiler and minutes: ``make wheels`` does it for each Python, ``make compiled`` for tests. Without
it, or with no compiler at all, what is installed is the same code, not compiled. ``GEMINGA_COMPILE_LEVEL`` is the C
compiler's level: 0 is there in a third of the time, and no faster than what is not compiled.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from setuptools import setup

#: The shared library of all compiled modules is called ``geminga__mypyc``.
GROUP = "geminga"
#: Types of packages that no compiled module imports need not be there: what imports them is not judged. A statement
#: that mypy takes for unreachable may be reached where a call changed what was compared: compiled code gets that wrong.
OPTIONS = ["--config-file=pyproject.toml", "--follow-imports=silent", "--ignore-missing-imports", "--warn-unreachable"]


def extensions() -> list[Any]:
    """One for each module that is compiled, and the library that they share. Raises SystemExit without mypy."""
    try:
        from mypyc.build import mypycify
    except ImportError as error:
        raise SystemExit(
            "GEMINGA_COMPILE=1 needs mypy in the environment that builds (--no-build-isolation)"
        ) from error
    os.environ.setdefault("MYPYPATH", "src")
    modules = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["geminga"]["compiled"]
    paths = [f"src/{module.replace('.', '/')}.py" for module in modules]
    level = os.environ.get("GEMINGA_COMPILE_LEVEL", "3")
    # No debug information: it is most of the library.
    return mypycify([*OPTIONS, *paths], opt_level=level, debug_level="0", group_name=GROUP)


setup(ext_modules=extensions() if os.environ.get("GEMINGA_COMPILE") == "1" else [])
