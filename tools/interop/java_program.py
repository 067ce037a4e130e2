"""Java programs of our own on Pulsar's own classes: one source file each, run as it is by the broker's ``java``."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.interop.apache_standalone import die_with_parent
from tools.interop.artifacts import HERE, class_path, java, pinned_version

#: A program compiles in some four seconds, on two cores that have other things to do, too.
RUN_LIMIT_S: Final = 240.0


def run_java(
    source: Path, *arguments: str, version: str = "", properties: Mapping[str, str] | None = None
) -> list[str]:
    """Lines that the program in ``source`` prints; AssertionError with its last words if it fails. Needs a JDK.

    ``properties``: of its Java.
    """
    program = [java(), "-Xmx256m", f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"]
    program += [f"-D{name}={value}" for name, value in (properties or {}).items()]
    program += ["-cp", class_path(version or pinned_version()), str(source), *arguments]
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=RUN_LIMIT_S, preexec_fn=die_with_parent, check=False
    )
    assert done.returncode == 0, f"{source.name} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}"
    return done.stdout.splitlines()
