"""``make image-files``: build/image with what container/Dockerfile copies: lib/ and bin/. Needs a package index.

lib/ has the wheel of this tree and what ``geminga[server,zookeeper,crypto,fast]`` needs, at the versions and with the
hashes of requirements.lock, for the Python of Debian 12 on a machine as this one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[2]
OUT: Final = ROOT / "build" / "image"
#: Of Debian 12.
PYTHON: Final = "3.11"
#: What an image of brokers, bookies and tools has; without Spark and the lake, which are large.
EXTRAS: Final = ("server", "zookeeper", "crypto", "fast")
PIP: Final = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def needed(extras: tuple[str, ...] = EXTRAS) -> set[str]:
    """Names of all packages beside Geminga that these extras bring."""
    found: set[str] = set()
    wanted = [("geminga", extra) for extra in ("", *extras)]
    seen = set(wanted)
    while wanted:
        package, extra = wanted.pop()
        for line in requires(package) or ():
            one = Requirement(line)
            if one.marker is not None and not one.marker.evaluate({"extra": extra, "python_version": PYTHON}):
                continue
            name = one.name.lower().replace("_", "-")
            if name != "geminga":
                found.add(name)
            for pair in ((name, part) for part in ("", *one.extras)):
                if pair not in seen:
                    seen.add(pair)
                    wanted.append(pair)
    return found


def locked(names: set[str]) -> Iterator[str]:
    """Their paragraphs of requirements.lock."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for paragraph in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE):
        if paragraph.partition("==")[0] in names:
            yield "".join(line for line in paragraph.splitlines(keepends=True) if not line.lstrip().startswith("#"))


def put_together() -> None:
    """Make it anew."""
    shutil.rmtree(OUT, ignore_errors=True)
    library = OUT / "lib"
    library.mkdir(parents=True)
    shutil.copytree(ROOT / "container" / "bin", OUT / "bin")
    target = ("install", "--no-compile", "--no-deps", "--target", str(library))
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        lock = place / "image.lock"
        lock.write_text("".join(locked(needed())), encoding="utf-8")
        subprocess.run(
            [*PIP, *target, "--only-binary=:all:", f"--python-version={PYTHON}", "--require-hashes", "-r", str(lock)],
            check=True,
        )
        # Programs of packages, for this machine's Python: none is used.
        shutil.rmtree(library / "bin", ignore_errors=True)
        # A copy: setuptools takes what an earlier build left in the tree.
        source = place / "source"
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source / name)
        build = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", temporary, str(source))
        subprocess.run([*PIP, *build], check=True)
        subprocess.run([*PIP, *target, *map(str, place.glob("geminga-*.whl"))], check=True)
    shutil.rmtree(library / "bin", ignore_errors=True)


if __name__ == "__main__":
    put_together()
