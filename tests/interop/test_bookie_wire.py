"""Apache BookKeeper's classes say again what the sample of the bookie protocol has of them, of our bytes, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from support.processes.bookie_wire import SAMPLE, lists, request_streams, sample

pytestmark = pytest.mark.integration

PROGRAM: Final = Path(__file__).parent / "java" / "BookieWire.java"


def told(directory: Path) -> dict[str, Any]:
    """What the classes on Pulsar's class path say."""
    from tools.interop.java_program import run_java

    written = [line.split() for line in run_java(PROGRAM, "write") if " " in line]
    answer: dict[str, Any] = {"written": dict(written)}
    for what, streams in (("requests", request_streams()), ("available", lists())):
        asked = directory / f"{what}.txt"
        asked.write_text("".join(stream.hex() + "\n" for stream in streams), encoding="utf-8")
        said = [line[2:] for line in run_java(PROGRAM, what, str(asked)) if line.startswith("> ")]
        assert len(said) == len(streams)
        answer[what] = [[stream.hex(), words] for stream, words in zip(streams, said, strict=True)]
    return answer


def test_apache_writes_and_reads_as_the_sample_says(tmp_path: Path, judge_is_apache: bool) -> None:
    if not judge_is_apache:
        pytest.skip("Apache's classes write and read")
    assert told(tmp_path) == sample()


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        SAMPLE.write_text(json.dumps(told(Path(scratch)), indent=0) + "\n", encoding="utf-8")
