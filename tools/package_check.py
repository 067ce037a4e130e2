"""``make package``: the wheel and the sdist, and environments that have to take them.

1. Both are built, and ``twine check`` passes. 2. Alone, Geminga is the client: few packages, little disk, no server;
type checkers find nothing in a user's program (``package_types``; npm).
3. With every Python that is found, ``geminga[server]`` starts a broker in a program and one by command, and a client
publishes and consumes: the wheel and the sdist, pure and with no compiler in reach, and the compiled wheel that
``make wheels`` made. 4. The same beside ``fastapi``, ``aiokafka`` and the newest uvicorn, and with the oldest version
that each range allows, beside an older uvicorn; there the tests of what others' ways decide run, too, with a real
ZooKeeper (Java 17). Needs a package index; nothing of it is in ``make test``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools import package_types

ROOT: Final = Path(__file__).resolve().parents[1]
#: What ``pip install geminga`` may bring, itself included, and how large it may be without bytecode.
PACKAGES_MAX: Final = 8
BASE_MIB_MAX: Final = 30.0
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
#: Where ``make wheels`` puts what it makes.
DIST: Final = ROOT / "dist"
#: What ``geminga --version`` says of the code that runs.
KINDS: Final = {True: "compiled", False: "pure Python"}
#: A machine without a C compiler.
NO_COMPILER: Final = {"CC": "/nonexistent/cc", "CXX": "/nonexistent/c++"}
#: Of a package whose insides are used: what fails where a version has them otherwise.
INSIDES: Final = (
    "tests/contract/test_metadata_store.py",
    "tests/integration/test_zookeeper.py",
    "tests/unit/metadata",
    "tests/integration/rest/test_http_connection.py",
    "tests/integration/rest/test_server.py",
    "tests/unit/broker/rest",
    "tests/unit/broker/websocket/test_socket.py",
    # They need cryptography and pyarrow, which no server does, and no insides of a package.
    "--ignore=tests/unit/broker/rest/message_routes/test_rights.py",
    "--ignore=tests/unit/broker/rest/message_routes/test_tail.py",
    "--ignore=tests/unit/broker/rest/test_given_up_ends.py",
    "--ignore=tests/unit/broker/rest/test_holes.py",
)
#: Where these run: the extras, and what tests need beside them.
EXTRAS_WITH_INSIDES: Final = ("server", "zookeeper")
TEST_PACKAGES: Final = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "uvloop", "pulsar-client[avro]")

STORY: Final = """
import asyncio, json, subprocess, sys, tempfile, urllib.request
import geminga
from geminga.client import connect

async def publish_and_consume(url):
    async with connect(url) as client:
        consumer = await client.subscribe("t", "s")
        producer = await client.create_producer("t")
        await producer.send(b"hello")
        message = await consumer.receive()
        assert message.data() == b"hello"
        await consumer.acknowledge(message)

with geminga.Standalone() as broker:
    asyncio.run(publish_and_consume(broker.service_url))
    assert urllib.request.urlopen(broker.web_service_url + "/admin/v2/clusters").status == 200

with tempfile.TemporaryDirectory() as data:
    command = [sys.executable, "-m", "geminga", "standalone", "--json", "--data", data]
    command += ["--broker-port", "0", "--web-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            asyncio.run(publish_and_consume(json.loads(process.stdout.readline())["brokerServiceUrl"]))
        finally:
            process.terminate()
    assert process.returncode == 0, process.returncode
print("served")
"""


class Failed(Exception):
    """A step that did not do what it has to; the text says which."""


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    timeout_s: float = 900,
    env: Mapping[str, str] | None = None,
) -> str:
    """What a command prints; raises Failed with its last words. ``env``: variables beside those of this process."""
    words = [str(part) for part in command]
    all_of_them = {**os.environ, **(env or {})}
    done = subprocess.run(
        words, cwd=cwd, env=all_of_them, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    if done.returncode:
        raise Failed(f"{' '.join(words)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def pythons() -> Iterator[tuple[str, str]]:
    """(version, program) of those that are here."""
    kept = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in PYTHONS:
        programs = [shutil.which(f"python{version}"), *sorted(kept.glob(f"{version}.*/bin/python"))]
        for program in filter(None, programs):
            # pyenv has programs on the PATH that only say that there is none.
            told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
            if told.returncode == 0 and told.stdout.startswith(f"Python {version}."):
                yield version, str(program)
                break


def lower_bounds(extras: Sequence[str]) -> list[str]:
    """``name==version`` for the lower end of each range of these extras and of what everybody gets."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, str] = {}

    def take(lines: Sequence[str]) -> None:
        for line in lines:
            if own := re.match(r"geminga\[(.*)\]", line):
                for extra in own[1].split(","):
                    take(project["optional-dependencies"][extra])
            elif bound := re.match(r"([\w-]+)>=([\w.]+)", line):
                found[bound[1]] = bound[2]

    take(project["dependencies"])
    for extra in extras:
        take(project["optional-dependencies"][extra])
    return [f"{name}=={version}" for name, version in sorted(found.items())]


class Environment:
    """A virtual environment of one step."""

    def __init__(self, directory: Path, program: str) -> None:
        run([program, "-m", "venv", "--clear", directory])
        self.python = directory / "bin" / "python"
        self.directory = directory

    def install(self, *wanted: str | Path, env: Mapping[str, str] | None = None) -> None:
        """Raises Failed also where what is there now does not go together."""
        pip = (self.python, "-m", "pip", "--quiet", "--disable-pip-version-check")
        run([*pip, "install", "--no-compile", *wanted], env=env)
        run([*pip, "check"])

    def says(self, *, is_compiled: bool) -> str:
        """What the command says of itself; raises Failed if that is another kind."""
        said = run([self.python, "-m", "geminga", "--version"], cwd=self.directory).strip()
        if not said.endswith(f"({KINDS[is_compiled]})"):
            raise Failed(f"geminga --version should tell {KINDS[is_compiled]}: {said}")
        return said

    def packages(self) -> dict[str, str]:
        """Name -> version, without what every environment has."""
        listed = json.loads(run([self.python, "-m", "pip", "--disable-pip-version-check", "list", "--format", "json"]))
        return {row["name"]: row["version"] for row in listed if row["name"] not in ("pip", "setuptools", "wheel")}

    def size_mib(self) -> float:
        """Of what was installed, bytecode left out."""
        site = self.site
        skipped = ("pip", "setuptools", "_distutils_hack", "pkg_resources")
        files = (file for file in site.rglob("*") if file.is_file() and file.suffix != ".pyc")
        kept = (file for file in files if not file.relative_to(site).parts[0].startswith(skipped))
        return sum(file.stat().st_size for file in kept) / (1 << 20)

    @property
    def site(self) -> Path:
        """Where its packages are."""
        return next((self.directory / "lib").glob("python*/site-packages"))

    def lend(self, names: Sequence[str]) -> None:
        """Let it have packages of the environment that runs this; those that are not there are left out."""
        for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
            if path.name.partition("-")[0] in names and not (self.site / path.name).exists():
                (self.site / path.name).symlink_to(path)

    def serves(self) -> None:
        """Brokers start, in a program and by command, and a message goes through each."""
        if "served" not in run([self.python, "-c", STORY], cwd=self.directory, timeout_s=120):
            raise Failed("the broker did not serve")


def build(directory: Path) -> tuple[Path, Path]:
    """Wheel and sdist, checked."""
    tools = Environment(directory / "tools", sys.executable)
    tools.install("build", "twine")
    run([tools.python, "-m", "build", "--outdir", directory / "dist", ROOT])
    (wheel,), (sdist,) = ((directory / "dist").glob(pattern) for pattern in ("*.whl", "*.tar.gz"))
    run([tools.python, "-m", "twine", "check", "--strict", wheel, sdist])
    return wheel, sdist


def check(directory: Path) -> None:
    """All steps; raises Failed at the first that fails."""
    wheel, sdist = build(directory)
    print(f"built, and twine check passes: {wheel.name} ({wheel.stat().st_size >> 10} KiB), {sdist.name}", flush=True)

    alone = Environment(directory / "alone", sys.executable)
    alone.install(wheel)
    packages, size_mib = alone.packages(), alone.size_mib()
    if len(packages) > PACKAGES_MAX or size_mib > BASE_MIB_MAX:
        raise Failed(f"geminga alone is {len(packages)} packages and {size_mib:.1f} MiB: {sorted(packages)}")
    run([alone.python, "-c", "import geminga.client, geminga.client.blocking"])
    print(f"alone: {len(packages)} packages, {size_mib:.1f} MiB: {', '.join(sorted(packages))}", flush=True)

    for version, program in pythons():
        for source in (wheel, sdist):
            made = Environment(directory / f"python{version}", program)
            made.install(f"geminga[server] @ {source.as_uri()}", env=NO_COMPILER)
            made.serves()
            told = made.says(is_compiled=False)
            print(f"python {version}: {source.name} with [server] and no compiler serves: {told}", flush=True)
        if any(DIST.glob(f"geminga-*-cp{version.replace('.', '')}-*.whl")):
            check_compiled(directory / f"python{version}", version, program)
        else:
            print(f"python {version}: NOT CHECKED, dist/ has no compiled wheel for it (make wheels)", flush=True)

    check_types(directory / "typed", wheel)

    beside = Environment(directory / "beside", sys.executable)
    beside.install("fastapi", "uvicorn", "aiokafka", f"geminga[server,zookeeper] @ {wheel.as_uri()}")
    beside.serves()
    found = beside.packages()
    print(
        "beside: " + ", ".join(f"{name} {found[name]}" for name in ("fastapi", "uvicorn", "aiokafka", "h11", "kazoo"))
    )

    extras = EXTRAS_WITH_INSIDES
    oldest = Environment(directory / "oldest", sys.executable)
    bounds = [bound for bound in lower_bounds(extras) if not bound.startswith("protobuf")]
    oldest.install(f"geminga[{','.join(extras)}] @ {wheel.as_uri()}", *bounds)
    oldest.serves()
    print("oldest of each range serves: " + ", ".join(bounds), flush=True)
    for name, made in (("oldest", oldest), ("newest", beside)):
        made.install(*TEST_PACKAGES)
        # Half a GB, of which the tests use the jars: ZooKeeper's are among them.
        made.lend(("pyspark", "py4j"))
        told = run([made.python, "-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider", *INSIDES], cwd=ROOT)
        print(f"{name}: {told.splitlines()[-1]}", flush=True)


def compiled_wheel(version: str, made: Path = DIST) -> Path:
    """The one that ``make wheels`` made for a Python. Raises Failed."""
    found = sorted(made.glob(f"geminga-*-cp{version.replace('.', '')}-*.whl"))
    if len(found) != 1:
        raise Failed(f"{made.name}/ has {len(found)} compiled wheels for Python {version}, 1 is wanted: make wheels")
    return found[0]


def check_compiled(directory: Path, version: str, program: str) -> None:
    """The compiled wheel serves where there is no compiler. Raises Failed."""
    wheel = compiled_wheel(version)
    made = Environment(directory, program)
    made.install(f"geminga[server] @ {wheel.as_uri()}", env=NO_COMPILER)
    made.serves()
    print(f"python {version}: {wheel.name} with [server] serves: {made.says(is_compiled=True)}", flush=True)


def check_types(directory: Path, wheel: Path) -> None:
    """Type checkers find nothing in a user's program beside the wheel, and do find what is planted."""
    made = Environment(directory, sys.executable)
    made.install(f"geminga[server] @ {wheel.as_uri()}", "pytest", package_types.locked_mypy())
    right, wrong = package_types.write_programs(directory / "programs", made.python)
    pyright = package_types.install_pyright(directory / "pyright", run)
    for name, commands in (
        ("mypy --strict", [package_types.mypy_command(made.python, folder) for folder in (right, wrong)]),
        (f"pyright {package_types.PYRIGHT}", [[pyright, "--project", folder] for folder in (right, wrong)]),
    ):
        run(commands[0])
        try:
            run(commands[1])
        except Failed as error:
            if package_types.errors_in(str(error)) != package_types.MISTAKES:
                raise
        else:
            raise Failed(f"{name} finds nothing in a program with mistakes")
        print(f"typed: {name} passes a user's program, and finds {package_types.MISTAKES} planted mistakes", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, help="where all is made, and kept")
    given = parser.parse_args()
    try:
        if given.directory:
            given.directory.mkdir(parents=True, exist_ok=True)
            check(given.directory)
        else:
            with tempfile.TemporaryDirectory(prefix="geminga-package-") as directory:
                check(Path(directory))
    except Failed as error:
        raise SystemExit(f"package: {error}") from None


if __name__ == "__main__":
    main()
