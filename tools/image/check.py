"""``make image-test``: the image in real containers; one line a check, exit code 1 if any failed.

Its size, start, memory and what it starts as; the testcontainers libraries of Java, Go and Python through podman's
Docker API; a Spring Boot application by Spring's service connection; every block of docs/deploy.md, a cluster of three
bookies and two brokers among them. Needs root, podman (``podman.py`` beside this names the packages), Go, Maven, Java
17, and package indexes. ``PARTS``: some of them only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools.image.build import build
from tools.image.files import ROOT
from tools.image.page_blocks import blocks
from tools.image.podman import IMAGE, docker_api, environment, podman, require
from tools.image.prometheus_image import make_prometheus
from tools.image.systemd import systemd
from tools.image.zookeeper_image import make_zookeeper
from tools.interop.artifacts import java

OUT: Final = ROOT / "build" / "image-test"
PROGRAMS: Final = ROOT / "tests" / "image"
PAGE: Final = ROOT / "docs" / "deploy.md"
#: Compressed as gzip does by default.
SIZE_MB_MAX: Final = 120
READY_S_MAX: Final = 2.0
STARTS: Final = 3
#: Of others, for this alone.
PACKAGES: Final = ("podman-compose==1.6.0", "testcontainers==4.15.0")
LIMIT_S: Final = 300.0
#: Of Go and Maven, which fetch and compile what others wrote the first time.
BUILD_LIMIT_S: Final = 900.0
#: In a container as on Kubernetes: any user with group 0, nothing to write to but the volume.
_BARE: Final = ("--read-only", "--read-only-tmpfs=false", "--user=12345:0", "--cap-drop=all")
_COMMAND: Final = (
    "/bin/bash",
    "-c",
    "/pulsar/bin/apply-config-from-env.py /pulsar/conf/standalone.conf && bin/pulsar standalone -nss",
)


class Failed(Exception):
    """A check that did not find what it has to; the text says what it found."""


def size() -> str:
    """Megabytes, compressed."""
    with tempfile.NamedTemporaryFile() as kept:
        saved = subprocess.Popen(["podman", "save", IMAGE], env=environment(), stdout=subprocess.PIPE)
        subprocess.run(["gzip", "-6"], stdin=saved.stdout, stdout=kept, check=True)
        if saved.wait():
            raise Failed(f"podman save ended with {saved.returncode}")
        megabytes = os.path.getsize(kept.name) / 1e6
    if megabytes > SIZE_MB_MAX:
        raise Failed(f"{megabytes:.1f} MB compressed, at most {SIZE_MB_MAX} are allowed")
    return f"{megabytes:.1f} MB compressed"


def start() -> str:
    """Of three starts the shortest: what else a machine does only adds to it."""
    starts = [_start() for _ in range(STARTS)]
    seconds, text = min(starts)
    if seconds > READY_S_MAX:
        raise Failed(
            f"ready after {', '.join(f'{one:.2f} s' for one, _ in starts)}, {READY_S_MAX} s are allowed; "
            f"{os.getloadavg()[0]:.1f} processes wanted this machine's {os.cpu_count()} processors"
        )
    return f"{text} (of {', '.join(f'{one:.2f}' for one, _ in starts)})"


def _start() -> tuple[float, str]:
    """Seconds from the container's first process to its ready line, and memory; read-only, as any user with group 0."""
    container = podman(
        *("run", "--detach", *_BARE, "--volume=/pulsar/data", "--env=PULSAR_PREFIX_clusterName=bare", IMAGE, *_COMMAND)
    ).stdout.strip()
    try:
        seconds, log = _ready(container)
        if "Successfully updated the policies on namespace public/default" not in log or "OPEN: " not in log:
            raise Failed(f"its first lines are not those that are waited for: {log}")
        podman("exec", container, "bin/healthcheck")
        ask = "from urllib.request import urlopen; print(urlopen('http://127.0.0.1:8080/admin/v2/clusters').read())"
        clusters = podman("exec", container, "python3", "-c", ask).stdout
        if '["bare"]' not in clusters:
            raise Failed(f"clusters are {clusters}, expected bare: what a variable said was lost on a read-only root")
        status = podman("exec", container, "cat", "/proc/1/status").stdout
        kilobytes = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert kilobytes is not None
        begun = time.monotonic()
        podman("stop", "--time=20", container)
        stopped_s = time.monotonic() - begun
        code = podman("inspect", "--format={{.State.ExitCode}}", container).stdout.strip()
        if code != "0":
            raise Failed(f"after SIGTERM it ended with {code}, expected 0")
    finally:
        podman("rm", "--force", "--volumes", container, check=False)
    return seconds, f"ready after {seconds} s, {int(kilobytes[1]) // 1024} MiB resident, stopped in {stopped_s:.1f} s"


def _ready(container: str) -> tuple[float, str]:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        done = podman("logs", container)
        log = done.stdout + done.stderr
        if found := re.search(r"is ready after ([0-9.]+) s", log):
            return float(found[1]), log
        if podman("inspect", "--format={{.State.Running}}", container).stdout.strip() != "true":
            raise Failed(f"it ended while starting:\n{log}")
    raise Failed(f"not ready within 30 s:\n{log}")


def of_java() -> str:
    """Testcontainers for Java: its PulsarContainer with transactions."""
    return _of_maven("java")


def of_spring() -> str:
    """Spring Boot: an application that Spring's service connection connects to the container."""
    return _of_maven("spring")


def _of_maven(name: str) -> str:
    classes, paths = OUT / name, OUT / f"{name}-classpath.txt"
    goals = ("compile", "dependency:build-classpath", f"-Dmdep.outputFile={paths}", f"-DbuildDirectory={classes}")
    _output([_program("mvn"), "-q", "-B", *goals], PROGRAMS / name, os.environ, BUILD_LIMIT_S)
    where = f"{classes / 'classes'}{os.pathsep}{paths.read_text(encoding='utf-8').strip()}"
    return _testcontainers([java(), "-cp", where, "image.Main", IMAGE])


def of_go() -> str:
    """Testcontainers for Go: its module pulsar with transactions."""
    program = OUT / "go-image"
    _output([_program("go"), "build", "-o", str(program), "."], PROGRAMS / "go", os.environ, BUILD_LIMIT_S)
    return _testcontainers([str(program), IMAGE])


def of_python() -> str:
    """Testcontainers for Python: a generic container."""
    return _testcontainers([sys.executable, str(PROGRAMS / "python" / "main.py"), IMAGE])


def page() -> str:
    """Every block of the page, in order, in one directory."""
    make_zookeeper()
    make_prometheus()
    done = 0
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "deploy").symlink_to(ROOT / "deploy")
        for block in blocks(PAGE.read_text(encoding="utf-8")):
            if block.kind == "yaml":
                Path(directory, block.file).write_text(block.text, encoding="utf-8")
                continue
            try:
                said = _output(["/bin/bash", "-euc", block.text], Path(directory), _with_packages())
            except Failed as error:
                raise Failed(f"{PAGE.name}, line {block.line}: {error}") from None
            if "consume" in block.text and "] hello" not in said:
                raise Failed(f"{PAGE.name}, line {block.line}: no message was consumed: {said}")
            done += 1
    return f"{done} blocks of {PAGE.name} did what it says"


def _testcontainers(command: list[str]) -> str:
    with tempfile.TemporaryDirectory() as directory, docker_api(Path(directory)) as variables:
        said = _output(command, ROOT, {**_with_packages(), **variables})
    found = re.search(r"started in \d+ ms", said)
    if found is None or not said.rstrip().endswith("passed"):
        raise Failed(said[-2000:])
    return found[0]


def _with_packages() -> Mapping[str, str]:
    """The environment in which what others wrote for this is found."""
    place = OUT / "packages"
    if not place.exists():
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        subprocess.run([*pip, "--target", str(place), *PACKAGES], check=True)
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**environment(), "PYTHONPATH": str(place), "PATH": path}


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Failed(f"{name} is not here")
    return found


def _output(command: list[str], directory: Path, variables: Mapping[str, str], limit_s: float = LIMIT_S) -> str:
    try:
        done = subprocess.run(
            command, cwd=directory, env=variables, capture_output=True, text=True, check=False, timeout=limit_s
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{command[0]} did not end within {limit_s:g} s: {error.stderr!r}"[-3000:]) from None
    if done.returncode:
        raise Failed(f"{command[0]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


CHECKS: Final[Mapping[str, Callable[[], str]]] = {
    "size": size,
    "start": start,
    "java": of_java,
    "spring": of_spring,
    "go": of_go,
    "python": of_python,
    "page": page,
    "systemd": systemd,
}


def main() -> None:
    """Build the image unless told not to, and check it."""
    parser = argparse.ArgumentParser(prog="make image-test")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(CHECKS)}; all without")
    parser.add_argument("--built", action="store_true", help="the image is there: do not build it")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(CHECKS):
        parser.error(f"{', '.join(sorted(unknown))}: expected some of {', '.join(CHECKS)}")
    require()
    if not given.built:
        build()
    tried = podman("run", "--rm", IMAGE, "true", check=False)
    if tried.returncode:
        raise SystemExit(
            f"no container runs on this machine: {tried.stderr.strip()[-1000:]}\nThe image is built; its programs are "
            "tested without containers by tests/integration/test_container_programs.py"
        )
    OUT.mkdir(parents=True, exist_ok=True)
    verdicts: dict[str, str] = {}
    for part in given.parts or CHECKS:
        begun = time.monotonic()
        try:
            word, text = "passed", CHECKS[part]()
        except (Failed, SystemExit) as error:
            word, text = "FAILED", str(error)
        verdicts[part] = word
        print(f"{word} {time.monotonic() - begun:6.1f} s  {part}: {text}", flush=True)
    if "FAILED" in verdicts.values():
        raise SystemExit(json.dumps(verdicts))


if __name__ == "__main__":
    main()
