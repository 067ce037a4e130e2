"""Builds Geminga as it is, or with ``GEMINGA_COMPILE=1`` the modules of ``[tool.geminga] compiled`` as C, by mypyc.

The second is for ``make compiled``, and for nobody else yet: CONTRIBUTING.md says what is missing.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from setuptools import setup

#: The shared library of all compiled modules is called ``geminga__mypyc``.
GROUP = "geminga"


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
    # No debug information: it is most of the library.
    return mypycify(["--config-file=pyproject.toml", *paths], opt_level="3", debug_level="0", group_name=GROUP)


setup(ext_modules=extensions() if os.environ.get("GEMINGA_COMPILE") == "1" else [])
