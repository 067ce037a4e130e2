"""``make wheels``: a compiled wheel for each Python here, and a pure one for all others, in dist/; each tried.

Compiling needs a C compiler (five minutes a Python) and a package index. The wheel without compiled code, and the
sdist, need neither: a machine without a compiler installs them, and runs the same code. What a wheel asks of the system
is told by ``auditwheel show``.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.compiled import copy_tree
from tools.package_check import DIST, ROOT, Environment, Failed, pythons, run

#: A busy machine has an hour for what takes five minutes.
COMPILING_S_MAX: Final = 3600
#: What a build takes of requirements.lock: the compiler, and what has types for the modules that are compiled.
BUILD_PACKAGES: Final = frozenset(
    (
        "ast-serialize",
        "crc32c",
        "cramjam",
        "google-re2",
        "googleapis-common-protos",
        "librt",
        "mmh3",
        "mypy",
        "mypy-extensions",
        "opentelemetry-api",
        "opentelemetry-exporter-http-transport",
        "opentelemetry-exporter-otlp-common",
        "opentelemetry-exporter-otlp-proto-common",
        "opentelemetry-exporter-otlp-proto-http",
        "opentelemetry-proto",
        "opentelemetry-sdk",
        "opentelemetry-semantic-conventions",
        "packaging",
        "pathspec",
        "protobuf",
        "pyroaring",
        "setuptools",
        "types-protobuf",
        "typing-extensions",
        "wheel",
    )
)


def locked(names: frozenset[str], lock: str) -> str:
    """Lines of a lock file for these packages, hashes included."""
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", lock)
    kept = [block for block in blocks if re.split(r"[=\[ ]", block, maxsplit=1)[0] in names]
    missing = names - {re.split(r"[=\[ ]", block, maxsplit=1)[0] for block in kept}
    if missing:
        raise Failed(f"requirements.lock does not have {', '.join(sorted(missing))}")
    return "".join(kept)


def built(program: str, directory: Path, *, is_compiled: bool) -> Path:
    """The wheel that this Python makes. Raises Failed."""
    made = Environment(directory / "build", program)
    (directory / "build.txt").write_text(locked(BUILD_PACKAGES, (ROOT / "requirements.lock").read_text()))
    pip = [made.python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run([*pip, "install", "--no-deps", "--require-hashes", "-r", directory / "build.txt"])
    copy_tree(directory / "tree")
    out = directory / "out"
    command = [*pip, "wheel", ".", "--no-deps", "--no-build-isolation", "-w", out]
    kind = {"GEMINGA_COMPILE": "1" if is_compiled else ""}
    run(command, cwd=directory / "tree", env=kind, timeout_s=COMPILING_S_MAX)
    (wheel,) = out.glob("*.whl")
    for old in DIST.glob(f"geminga-*-{wheel.name.split('-', 2)[2]}"):
        old.unlink()
    return wheel.replace(DIST / wheel.name)


def tried(program: str, wheel: Path, directory: Path, *, is_compiled: bool) -> str:
    """What the installed command says of itself, after a story was told with it. Raises Failed."""
    made = Environment(directory / "use", program)
    made.install(f"geminga[server] @ {wheel.as_uri()}")
    said = made.says(is_compiled=is_compiled)
    made.serves()
    return f"{said}; {wheel.stat().st_size / 2**20:.1f} MiB"


def asked_of_the_system(wheel: Path, directory: Path) -> str:
    """The oldest platform that ``auditwheel show`` finds a wheel to be good for. Raises Failed."""
    made = Environment(directory / "audit", sys.executable)
    made.install("auditwheel")
    told = " ".join(run([made.python, "-m", "auditwheel", "show", wheel]).split())
    found = re.search(r'constrains the platform tag to "(\w+)"|following platform tag: "(\w+)"', told)
    if found is None:
        raise Failed(f"auditwheel says of {wheel.name}: {told}")
    return found[1] or found[2]


def wheels(wanted: frozenset[str]) -> Iterator[str]:
    """Builds and tries; a line for each. Raises Failed."""
    DIST.mkdir(exist_ok=True)
    for version, program in pythons():
        if wanted and version not in wanted:
            continue
        with tempfile.TemporaryDirectory(prefix="wheels-") as place:
            wheel = built(program, Path(place), is_compiled=True)
            told = tried(program, wheel, Path(place), is_compiled=True)
            yield f"Python {version}: {wheel.name}: {told}; asks for {asked_of_the_system(wheel, Path(place))}"
    with tempfile.TemporaryDirectory(prefix="wheels-") as place:
        wheel = built(sys.executable, Path(place), is_compiled=False)
        yield f"any Python: {wheel.name}: {tried(sys.executable, wheel, Path(place), is_compiled=False)}"


def main() -> int:
    """0, or 1 with the sentence of the first step that failed."""
    parser = argparse.ArgumentParser(prog="make wheels", description=__doc__)
    parser.add_argument("--python", action="append", default=[], help="of this version alone, as 3.12")
    try:
        for line in wheels(frozenset(parser.parse_args().python)):
            print(line, flush=True)
    except Failed as failure:
        print(f"wheels: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
