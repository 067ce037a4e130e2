"""A home of Spark whose Python processes start quickly.

Spark gives its Python processes PySpark as a zip of sources, from which each new one compiles every module again: most
of the time of a small batch that writes. PySpark as it is installed has them compiled, and is what the processes take
where a home has no such zip. So a local session is given one of links to the installed parts, without the zip.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import site
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "SPARK_HOME"
#: What Spark's scripts and its launcher look for; those that are not installed (yet) lead nowhere, as before.
PARTS: Final = ("bin", "conf", "data", "jars", "sbin")


def make_home(directory: Path, installed: Path) -> Path:
    """Links in ``directory`` to the parts of the PySpark at ``installed``; harmless twice. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for part in PARTS:
        # Two drivers may start at once; what is there was made so, as the directory's name tells where it leads.
        with contextlib.suppress(FileExistsError):
            (directory / part).symlink_to(installed / part)
    return directory


@contextlib.contextmanager
def quick_home(master: str | None, settings: Mapping[str, str], installed: Path) -> Iterator[Path | None]:
    """While a session is started, ``SPARK_HOME`` is such a home; what it is, None if it is left as it was.

    Left to itself is who chose a home or other Pythons, and all but local masters: others look for the zip.
    """
    home = _home(installed) if _may_be_quick(master, settings, installed) else None
    if home is None:
        yield None
        return
    os.environ[VARIABLE] = str(home)
    try:
        yield home
    finally:
        os.environ.pop(VARIABLE, None)


def _may_be_quick(master: str | None, settings: Mapping[str, str], installed: Path) -> bool:
    if VARIABLE in os.environ or not (installed / "jars").is_dir():
        return False
    chosen = master or settings.get("spark.master", "")
    if not chosen.startswith("local"):
        return False
    if str(installed.parent) not in _places_of_every_process():
        return False
    pythons = {os.environ.get("PYSPARK_PYTHON", sys.executable), settings.get("spark.pyspark.python", sys.executable)}
    return pythons == {sys.executable}


def _places_of_every_process() -> list[str]:
    """Where this Python looks for packages without being told in the program."""
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [*site.getsitepackages(), *user, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]


def _home(installed: Path) -> Path | None:
    name = f"spark-{hashlib.sha256(str(installed).encode()).hexdigest()[:16]}"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    try:
        return make_home(Path(cache) / "geminga" / name, installed)
    except OSError:  # no place to write to: Spark's own way then
        return None
