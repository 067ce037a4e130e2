"""Two trees side by side, base and this one, and the processes that measure a row in one of them."""

from __future__ import annotations

import ast
import compileall
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.compiled import COMPILED, stale
from tools.standalone_process import ROOT

from bench.compare import unpack
from bench.guard import callgrind
from bench.guard.planting import planted
from bench.servers import BenchError

#: Of a run of one row, the slowest of which takes half a minute on a machine that is idle.
_LIMIT_S = 600
#: Where Python gets a block of memory for an object or a table; what its free lists have is not counted.
_ALLOCATING = ("_PyObject_Malloc", "_PyObject_Calloc")
#: What a row does and how it is measured. At a commit from before modules moved it imports them by other names.
_MEASURING = ("loads.py", "rows.py", "worker.py", "callgrind.py")


def differ_by_imports_only(one: str, other: str) -> bool:
    """Whether two modules do the same, with names from wherever."""
    return _without_imports(one) == _without_imports(other)


def _without_imports(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [each for each in body if not isinstance(each, ast.Import | ast.ImportFrom)]
        elif isinstance(node, ast.Constant) and str(node.value).endswith(".py"):
            node.value = ""  # where a load is planted in, which moves as well
    return ast.dump(tree)


class Tree:
    """A copy of ``src``; directories of the two have names of one length, for paths are hashed and compared too."""

    def __init__(self, directory: Path, tests: Path) -> None:
        """``tests``: with the worlds in which the loads run, of the same age as the source."""
        self.directory = directory
        self.source = directory / "src"
        self.tests = tests

    @classmethod
    def of_commit(cls, commit: str, directory: Path) -> Tree:
        """Raises BenchError."""
        directory.mkdir()
        unpack(commit, directory, "tests/support", "bench")
        theirs, ours = directory / "bench" / "guard", ROOT / "bench" / "guard"
        is_same = theirs.is_dir() and all(
            differ_by_imports_only((theirs / name).read_text(), (ours / name).read_text()) for name in _MEASURING
        )
        if not is_same:
            # Another load, or none: the same is to be measured in both, so this tree's is.
            shutil.rmtree(directory / "bench")
        return cls(directory, directory / "tests").compiled()

    @classmethod
    def of_this(cls, directory: Path) -> Tree:
        """The working tree as it stands, also what nobody committed."""
        shutil.copytree(ROOT / "src", directory / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        return cls(directory, ROOT / "tests").compiled()

    @classmethod
    def of_compiled(cls, directory: Path) -> Tree:
        """The working tree as ``make compiled`` made it. Raises BenchError where that was another tree."""
        if other := next(stale(), None):
            raise BenchError(f"{COMPILED.relative_to(ROOT)} has not {other} as it is now: make compiled")
        shutil.copytree(COMPILED, directory / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        return cls(directory, ROOT / "tests").compiled()

    def compiled(self) -> Tree:
        """To bytecode. Where Python may write none of it, each run would compile all modules again."""
        compileall.compile_dir(self.source, quiet=1)
        return self

    def plant(self, file: str, function: str, turns: int) -> None:
        """A loop of so many turns at the head of a function, in the place of one planted before; 0: none."""
        path, original = self.source / "geminga" / file, ROOT / "src" / "geminga" / file
        text = original.read_text()
        path.write_text(planted(text, function, turns) if turns else text)
        compileall.compile_file(path, force=True, quiet=1)

    def counted(self, row: str) -> dict[str, float]:
        """Instructions and allocations a message. Raises BenchError."""
        out = self.directory / "callgrind.out"
        answer = self._run([*callgrind.command(out), sys.executable, "-m", "bench.guard.worker", "counted", row])
        text = out.read_text()
        messages = answer["messages"]
        return {
            "instructions": callgrind.instructions(text) / messages,
            "allocations": callgrind.calls_of(text, _ALLOCATING) / messages,
        }

    def plain(self, row: str) -> dict[str, float]:
        """Calls, kept blocks, bytes on the network and CPU time a message. Raises BenchError."""
        answer = self._run([sys.executable, "-m", "bench.guard.worker", "plain", row])
        return {name: value for name, value in answer.items() if name != "messages"}

    def _run(self, command: list[str]) -> dict[str, float]:
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": f"{self.source}:{self.tests}:{ROOT}",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        try:
            done = subprocess.run(
                command,
                env=environment,
                cwd=self.directory,
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BenchError(f"no answer in {_LIMIT_S} s") from None
        if done.returncode:
            raise BenchError(_complaint(done.stderr))
        answer = json.loads(done.stdout.splitlines()[-1])
        if not str(answer.pop("product")).startswith(str(self.source)):
            raise BenchError("another product was measured than this tree's")
        return dict(answer)


def _complaint(text: str) -> str:
    """The line that names the error; the simulator tells its history behind it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if line.partition(":")[0].rpartition(".")[2].endswith(("Error", "Exception"))]
    return (named or lines or ["it ended without a word"])[-1]
