"""The two servers under test, floor and product, as processes on a scratch directory, and the generator beside them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tools.standalone_process import ROOT, StandaloneProcess

from bench.frames import write_frames

#: A generator has ended by then.
LOAD_LIMIT_S: Final = 600.0


class BenchError(Exception):
    """A measurement could not be made; the text says why."""


@dataclass(slots=True)
class Bench:
    """What all measurements share."""

    scratch: Path
    seconds: float
    warmup_s: float
    #: How often floor and product take turns; medians are shown.
    rounds: int
    loop: str
    settings: dict[str, str]
    #: Where the product is imported from; another commit's, to compare with.
    source: Path = ROOT / "src"

    def frames(self, payload_bytes: int, count: int) -> Path:
        """A file of pre-encoded sends, made once per size and count."""
        path = self.scratch / f"frames-{payload_bytes}-{count}"
        if not path.exists():
            write_frames(path, count, payload_bytes)
        return path

    @contextlib.contextmanager
    def directory(self, name: str) -> Iterator[Path]:
        """A new one, which goes at the end with all that is in it."""
        path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.scratch))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def product(self, **settings: str) -> Iterator[StandaloneProcess]:
        """A fresh standalone."""
        merged = {"gemingaEventLoop": self.loop, **self.settings, **settings}
        told = environment(self.source)
        with (
            self.directory("product") as directory,
            StandaloneProcess(directory / "data", log=directory / "log", settings=merged, environment=told) as broker,
        ):
            yield broker

    @contextlib.contextmanager
    def floor(self, *, codec: str = "generated") -> Iterator[int]:
        """The bare floor; its port."""
        with self.directory("floor") as directory:
            command = [sys.executable, "-m", "bench.floor", str(directory), "--loop", self.loop, "--codec", codec]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment())
            assert process.stdout is not None
            try:
                yield json.loads(process.stdout.readline())["port"]
            finally:
                process.kill()
                process.wait()
                process.stdout.close()


def environment(source: Path = ROOT / "src") -> dict[str, str]:
    """For children that import the product from this checkout, or from ``source``."""
    return {**os.environ, "PYTHONPATH": str(source)}


def start_load(mode: str, *, module: str = "bench.load", **options: Any) -> subprocess.Popen[str]:
    """A generator process."""
    command = [sys.executable, "-m", module, json.dumps({"mode": mode, **options}, default=str)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
    )


@dataclass(slots=True)
class SparkLoads:
    """Generators that import the sources of the bench, as Spark's workers below them do."""

    bench: Bench
    module: str
    #: Of the broker.
    url: str
    variables: dict[str, str] = field(default_factory=dict)

    def start(self, mode: str, **options: Any) -> subprocess.Popen[str]:
        """One, which takes lines; what a session writes beside its answers goes to ``spark.log``."""
        return subprocess.Popen(
            [sys.executable, "-m", self.module, json.dumps({"mode": mode, "url": self.url, **options})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if mode != "spark" else self._log.open("w"),
            text=True,
            cwd=ROOT,
            env={**environment(), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **self.variables},
        )

    def start_session(self) -> subprocess.Popen[str]:
        """One with a session that is ready. Raises BenchError."""
        scratch = self.bench.scratch / "spark"
        scratch.mkdir()
        process = self.start("spark", scratch=str(scratch))
        assert process.stdout is not None
        answer = json.loads(process.stdout.readline() or "{}")
        if "ready" not in answer:
            raise BenchError(f"Spark did not start: {answer.get('error', self._log.read_text()[-500:])}")
        return process

    @property
    def _log(self) -> Path:
        return self.bench.scratch / "spark.log"


def finish_load(process: subprocess.Popen[str], timeout_s: float = LOAD_LIMIT_S) -> dict[str, Any]:
    """Its answer; raises :class:`BenchError`."""
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise BenchError(f"the load did not end within {timeout_s:.0f} s") from None
    lines = output.strip().splitlines()
    answer: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": errors.strip()[-500:]}
    if "error" in answer:
        raise BenchError(str(answer["error"]))
    return answer


def load(mode: str, *, module: str = "bench.load", limit_s: float = LOAD_LIMIT_S, **options: Any) -> dict[str, Any]:
    """Run a generator to its end; raises :class:`BenchError`."""
    return finish_load(start_load(mode, module=module, **options), limit_s)
