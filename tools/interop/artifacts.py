"""The class path of a pinned Pulsar, resolved by Maven into Maven's own cache; nothing of it is kept here.

``build/interop/classpath-VERSION.txt`` remembers the answer: Maven is asked again when ``pom.xml`` is newer or a file
is gone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
POM: Final = HERE / "pom.xml"
#: Of Pulsar 5, of which one that is asked for by its number may be.
POM_5: Final = HERE / "pom-5.xml"
#: Of ``pulsar-admin``, of a version of its own: not each of Pulsar's has it as an artifact.
ADMIN_POM: Final = HERE / "admin-pom.xml"
#: Of the pinned broker with the provider of OpenID Connect, which is no part of it.
OIDC_POM: Final = HERE / "oidc-pom.xml"
#: Where everything that is made lies; ignored by git.
BUILD: Final = HERE.parents[1] / "build" / "interop"
#: Maven fetches some 250 MB the first time.
RESOLVE_LIMIT_S: Final = 900.0


class ToolError(Exception):
    """Java or Maven is not there, too old, or could not do it; the text says what to do."""


def pinned_version(pom: Path = POM) -> str:
    """The version in ``pom.xml``."""
    found = re.search(r"<pulsar\.version>([^<]+)<", pom.read_text(encoding="utf-8"))
    if found is None:
        raise ToolError(f"{pom.name} names no pulsar.version")
    return found[1]


def judge_version() -> str:
    """The version that is asked for (``INTEROP_PULSAR``), else the pinned one."""
    return os.environ.get("INTEROP_PULSAR") or pinned_version()


def java_needed(version: str) -> int:
    """The feature version that a broker of Pulsar ``version`` does not run below."""
    return 21 if version.startswith("5.") else 17


def java() -> str:
    """The Java runtime: ``INTEROP_JAVA``, else that of ``JAVA_HOME``, else ``java``."""
    home = os.environ.get("JAVA_HOME")
    name = os.environ.get("INTEROP_JAVA") or (str(Path(home) / "bin" / "java") if home else "java")
    found = shutil.which(name)
    if found is None:
        raise ToolError(f"{name}: no Java here; install a Java runtime (17 or newer) or set INTEROP_JAVA")
    return found


def java_version() -> int:
    """The feature version of :func:`java`."""
    told = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'version "(\d+)', told)
    return int(found[1]) if found else 0


def class_path(version: str) -> str:
    """The class path of Pulsar ``version``; raises ToolError."""
    pom = POM_5 if version.startswith("5.") else POM
    return _resolved(pom, version, BUILD / f"classpath-{version}.txt")


def admin_class_path() -> str:
    """That of ``pulsar-admin``, of the version that ``INTEROP_ADMIN`` names or the pinned one; raises ToolError."""
    version = os.environ.get("INTEROP_ADMIN") or pinned_version(ADMIN_POM)
    answer = BUILD / f"classpath-admin-{version}.txt"
    if version.startswith("5."):
        return _resolved(POM_5, version, answer, artifact="pulsar-client-tools")
    return _resolved(ADMIN_POM, version, answer)


def oidc_class_path() -> str:
    """That of the pinned broker with its provider of OpenID Connect; raises ToolError."""
    version = pinned_version(OIDC_POM)
    return _resolved(OIDC_POM, version, BUILD / f"classpath-oidc-{version}.txt")


def _resolved(pom: Path, version: str, answer: Path, *, artifact: str = "") -> str:
    if answer.exists() and answer.stat().st_mtime > pom.stat().st_mtime:
        found = answer.read_text(encoding="utf-8").strip()
        if all(Path(part).exists() for part in found.split(os.pathsep)):
            return found
    maven = shutil.which("mvn")
    if maven is None:
        raise ToolError("no Maven here (mvn): it resolves Pulsar's artifacts")
    BUILD.mkdir(parents=True, exist_ok=True)
    arguments = ["-q", "-B", "-f", str(pom), f"-Dpulsar.version={version}"]
    if artifact:
        arguments.append(f"-Dpulsar.artifact={artifact}")
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={answer}"]
    try:
        done = subprocess.run([maven, *arguments, *goal], capture_output=True, text=True, timeout=RESOLVE_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise ToolError(f"Maven did not resolve Pulsar {version} within {RESOLVE_LIMIT_S:.0f} s") from None
    if done.returncode:
        raise ToolError(f"Maven could not resolve Pulsar {version}:\n{(done.stdout + done.stderr)[-2000:]}")
    return answer.read_text(encoding="utf-8").strip()
