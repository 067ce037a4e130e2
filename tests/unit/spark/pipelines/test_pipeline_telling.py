"""What a pipeline says: errors in a paragraph, progress, metrics, where a checkpoint stands, the command line."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import nullcontext, suppress

import pyarrow as pa
import pytest
from pyspark import SparkContext

from geminga.app.commands import pipeline_commands
from geminga.app.commands.cli import main
from geminga.client import MessageId
from geminga.model.errors import ConfigurationError
from geminga.spark.pipelines import CheckpointInUseError, Pipeline, Sink, Source, reporter, run, running
from geminga.spark.pipelines import checkpoint as checkpoints
from geminga.spark.pipelines.core.checkpoint_text import CheckpointDamagedError, latest_number, parse_offsets
from geminga.spark.pipelines.core.explanation import explain
from geminga.spark.pipelines.core.progress import (
    STILL_BATCHES,
    Totals,
    exposition,
    figures_of,
    json_of,
    line_of,
    time_text,
)
from geminga.spark.pipelines.files import write_synced
from geminga.spark.pipelines.late import WatermarkUnknownError, read_watermark_ms
from geminga.spark.pipelines.positions import positions_of
from geminga.spark.pipelines.reporter import MetricsServer, Reporter
from geminga.spark.pipelines.running import PipelineFailedError, Stop, end_jvm, killed_if_urgent
from support.house.python_programs import run_python

OFFSETS = 'v1\n{"batchWatermarkMs":123,"batchTimestampMs":1767225600000,"conf":{}}\n{"t":{},"v":1}\n-'
PROGRESS = {
    "batchId": 7,
    "numInputRows": 1000,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "durationMs": {"triggerExecution": 500, "addBatch": 400},
    "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
    "stateOperators": [{"numRowsTotal": 5, "numRowsDroppedByWatermark": 2}],
    "sources": [{"latestOffset": '{"lag":{"entries":12,"ms":3400},"v":1}'}, {"latestOffset": None}],
    "sink": {"numOutputRows": 9},
}
IN_PYTHON = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure
org.apache.spark.SparkException: x
\tat org.apache.spark.A.b(A.scala:1)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
geminga.spark.sink_rules.errors.DeduplicationOffError: persistent://public/default/b: is not deduplicated
: switch it on

\tat org.apache.spark.api.python.BasePythonRunner (PythonRunner.scala:1)
"""
ANALYSIS = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name \
`centz` cannot be resolved. Did you mean one of the following? [`cents`, `id`]. SQLSTATE: 42703; line 1 pos 0;
'Filter ('centz > 1)
+- Project
"""
KEY_ERROR = "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'x'\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (IN_PYTHON, "persistent://public/default/b: is not deduplicated : switch it on"),
        (
            ANALYSIS,
            "A column, variable, or function parameter with name `centz` cannot be resolved. "
            "Did you mean one of the following? [`cents`, `id`].",
        ),
        (KEY_ERROR, "KeyError: 'x'"),
        ("java.io.IOException: disk full\n\tat a.b(C.java:1)", "IOException: disk full"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_an_error_is_a_paragraph(text, expected) -> None:
    assert explain(text) == expected
    assert len(explain(text * 1000 + "x" * 5000)) <= 1200


def test_a_watermark_that_has_no_year_is_told_as_it_is() -> None:
    assert time_text(1_767_225_600_000) == "2026-01-01T00:00:00.000+00:00"
    assert time_text(9_223_372_036_854_775) == "9223372036854775 ms"


def test_progress_becomes_figures_lines_and_metrics() -> None:
    figures = figures_of(PROGRESS)
    assert (figures.rows, figures.rows_per_second, figures.lag_entries, figures.lag_ms) == (1000, 2000.0, 12, 3400)
    assert (figures.dropped_rows, figures.state_rows, figures.rows_out) == (2, 5, 9)
    totals = Totals()
    assert totals.add(figures) == ""
    line = line_of(figures, totals)
    assert line.startswith("batch 7: 1,000 rows, 2,000 rows/s, lag 12 entries, 3.4 s, watermark 2026-01-01T00:00:00;")
    assert json.loads(json_of(figures))["batch"] == 7
    text = exposition("x", totals, is_active=True)
    assert 'geminga_pipeline_rows_total{pipeline="x"} 1000\n' in text
    assert 'geminga_pipeline_lag_entries{pipeline="x"} 12\n' in text
    assert 'geminga_pipeline_lag_milliseconds{pipeline="x"} 3400\n' in text
    assert text.count("# TYPE") == text.count("# HELP") == text.count("{pipeline=")
    assert figures_of({"batchId": 0, "sources": [{"latestOffset": "no json"}]}).lag_entries == -1


def test_a_watermark_that_stands_still_is_told_once() -> None:
    totals = Totals()
    told = [totals.add(figures_of({**PROGRESS, "batchId": number})) for number in range(3 * STILL_BATCHES)]
    assert [number for number, text in enumerate(told) if text] == [STILL_BATCHES]
    assert "watermark.of: each" in told[STILL_BATCHES]


def test_metrics_are_served_to_this_machine_and_nothing_else_is() -> None:
    totals = Totals()
    with MetricsServer(0, "x", totals, lambda: False) as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
            assert b'geminga_pipeline_up{pipeline="x"} 0' in answer.read()
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/other", timeout=10)
        caught.value.close()
        assert caught.value.code == 404
        # A name of a stranger's that was pointed at this machine.
        rebound = urllib.request.Request(f"http://127.0.0.1:{server.port}/metrics", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(rebound, timeout=10)
        caught.value.close()
        assert caught.value.code == 403


def test_who_sends_a_request_without_end_is_cut_off_and_others_are_answered(monkeypatch) -> None:
    monkeypatch.setattr(reporter, "REQUEST_TIMEOUT_S", 0.2)
    with MetricsServer(0, "x", Totals(), lambda: True) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
            slow.settimeout(0.02)
            sent = 0
            with suppress(ConnectionError):
                while True:
                    # A byte each 20 ms, so that no single read ever waits for long.
                    slow.sendall(b"G")
                    sent += 1
                    assert sent < 500, "nobody cuts it off"
                    with suppress(TimeoutError):
                        if not slow.recv(1):
                            break
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
            assert b'geminga_pipeline_up{pipeline="x"} 1' in answer.read()


def test_who_leaves_in_the_midst_of_a_request_is_not_told_of(capsys) -> None:
    with MetricsServer(0, "x", Totals(), lambda: True) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.sendall(b"GET /metr")
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
            assert answer.status == 200
    assert capsys.readouterr() == ("", "")


def test_a_port_of_metrics_that_is_taken_is_told_before_anything_is_begun(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        pipeline = Pipeline("x", sources=(Source(topics=("a",)),), sink=Sink(topic="b"), checkpoint=str(tmp_path / "c"))
        with pytest.raises(ConfigurationError, match=f"no metrics at 127.0.0.1:{port}: Address already in use"):
            run(pipeline, metrics_port=port)
    assert not (tmp_path / "c").exists()


class Gateway:
    """PySpark's: who asks it to shut down, and whether it answers."""

    def __init__(self, *, is_dead: bool = False) -> None:
        self.is_dead = is_dead

    def shutdown(self) -> None:
        if self.is_dead:
            raise ConnectionResetError("the JVM is gone")


def _jvm(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", program], stdin=subprocess.PIPE)


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_jvm_that_does_not_end_is_not_left_behind(is_dead: bool) -> None:
    hung, good = _jvm("import signal; signal.pause()"), _jvm("import sys; sys.stdin.read(); sys.exit(3)")
    for process, grace_s, code in ((hung, 0.05, -signal.SIGKILL), (good, 30.0, 3)):
        with pytest.raises(ConnectionResetError) if is_dead else nullcontext():
            end_jvm(Gateway(is_dead=is_dead), process, grace_s)
        assert process.poll() == code
        assert process.stdin is not None
        assert process.stdin.closed


def test_a_jvm_that_hangs_is_killed_when_the_end_was_asked_for_twice_and_not_before() -> None:
    stop = Stop()
    with _jvm("import signal; signal.pause()") as process, killed_if_urgent(process, stop, 0.0):
        stop.want()
        assert process.poll() is None
        stop.want()
        assert process.wait(30) == -signal.SIGKILL  # as a call to it would be waited for
    with _jvm("import signal; signal.pause()") as process:
        with killed_if_urgent(process, stop, 30.0):
            pass  # it let go in time
        stop.want()
        assert process.poll() is None
        process.kill()
    with killed_if_urgent(None, Stop()):
        pass  # another process started it, and ends it


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("wishes", [1, 2])
def test_a_jvm_that_hangs_while_it_starts_is_killed_when_the_end_is_asked_for(
    tmp_path, monkeypatch, number: signal.Signals, wishes: int
) -> None:
    """The second wish does not wait for what the first one does."""
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    program = (
        "import os, signal; "
        f"open('{tmp_path}/started', 'w').write(str(os.getpid())); os.kill(os.getppid(), {int(number)}); signal.pause()"
    )
    submit.write_text(f'#!/bin/sh\nexec {sys.executable} -Sc "{program}"\n')
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(running, "STOP_GRACE_S", 0.0 if wishes == 1 else 3600.0)
    monkeypatch.setattr(running, "URGENT_GRACE_S", 3600.0 if wishes == 1 else 0.0)
    stop = Stop()
    if wishes == 2:
        stop.want()
    pipeline = Pipeline("x", sources=(Source(topics=("a",)),), sink=Sink(topic="b"), checkpoint=str(tmp_path / "c"))
    with pytest.raises(PipelineFailedError, match="Java gateway process exited"):
        run(pipeline, stop=stop)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "started").read_text()), 0)
    assert SparkContext._gateway is None


def test_a_reporter_prints_lines_or_json(capsys) -> None:
    totals = Totals()
    figures = figures_of(PROGRESS)
    totals.add(figures)
    plain, as_json = Reporter(), Reporter(is_json=True)
    for one in (plain, as_json):
        one.event("started", "x: running", port=1)
        one.batch(figures, totals)
        one.warn("look")
    printed = capsys.readouterr()
    assert printed.out.splitlines()[:2] == ["x: running", line_of(figures, totals)]
    found = [json.loads(line) for line in printed.out.splitlines()[2:]]
    assert [one["event"] for one in found] == ["started", "batch", "warning"]
    assert printed.err == "geminga: look\n"


def test_the_offset_log_is_read_and_damage_is_told() -> None:
    logged = parse_offsets(OFFSETS)
    assert (logged.watermark_ms, logged.sources) == (123, ({"t": {}, "v": 1}, None))
    for damaged in (
        *("", "v2\n{}", "v1\nno json", "v1\n{}", 'v1\n{"batchWatermarkMs":"x","batchTimestampMs":1}'),
        *('v1\n{"batchWatermarkMs":Infinity,"batchTimestampMs":1}', "v1\n" + "[" * 100_000),
    ):
        with pytest.raises(CheckpointDamagedError):
            parse_offsets(damaged)
    assert latest_number(["3", "12", ".12.crc", "x"]) == 12
    assert latest_number([]) == -1


@pytest.mark.parametrize(
    "damaged", [b"v1\n\xff", b'v1\n{"batchWatermarkMs":1,"batchTimestampMs":1%d}' % 10**30, b"", None]
)
def test_state_of_a_checkpoint_whose_offsets_are_damaged_says_so(tmp_path, damaged) -> None:
    """``damaged``: None: a batch was committed whose offsets are not there."""
    with checkpoints.PipelineCheckpoint(pipeline_at(tmp_path)):
        pass
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    (tmp_path / "commits" / "3").write_text("v1\n{}", encoding="utf-8")
    if damaged is not None:
        (tmp_path / "offsets" / "3").write_bytes(damaged)
    with pytest.raises(CheckpointDamagedError, match="offsets/3"):
        checkpoints.read_state(str(tmp_path))


def test_the_watermark_of_a_batch_is_the_logged_one(tmp_path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text(OFFSETS, encoding="utf-8")
    assert read_watermark_ms(f"file://{tmp_path}", "4") == 123
    with pytest.raises(WatermarkUnknownError, match="all workers see"):
        read_watermark_ms(str(tmp_path), "5")


def test_positions_are_those_of_the_ids() -> None:
    ids = [MessageId(-1, 5, 7, -1), MessageId(2, 5, 7, 3)]
    found = positions_of(pa.array([one.serialize() for one in ids])).to_pylist()
    assert found == [{"ledger": 5, "entry": 7, "index": -1}, {"ledger": 5, "entry": 7, "index": 3}]


def pipeline_at(path) -> Pipeline:
    return Pipeline(name="x", sources=(Source(topics=("a",)),), sink=Sink(topic="b"), checkpoint=str(path))


def test_a_checkpoint_says_where_it_stands_and_who_has_it(tmp_path) -> None:
    path = tmp_path / "c"
    with pytest.raises(CheckpointInUseError, match="no pipeline has run"):
        checkpoints.read_state(str(path))
    with checkpoints.PipelineCheckpoint(pipeline_at(path)):
        state = checkpoints.read_state(str(path))
        assert state.is_running
        assert (state.begun, state.done) == (-1, -1)
        with pytest.raises(CheckpointInUseError, match=f"process {state.pid}.* runs this pipeline already"):
            checkpoints.PipelineCheckpoint(pipeline_at(path)).__enter__()
    for log, numbers in (("offsets", "01"), ("commits", "0")):
        (path / log).mkdir()
        for number in numbers:
            (path / log / number).write_text(OFFSETS, encoding="utf-8")
    state = checkpoints.read_state(str(path))
    assert (state.is_running, state.begun, state.done, state.watermark_ms) == (False, 1, 0, 123)
    assert state.planned == "2026-01-01T00:00:00.000+00:00"
    with pytest.raises(CheckpointInUseError, match="a directory of this machine"):
        checkpoints.local_path("s3a://bucket/x")


def test_a_small_file_is_replaced_in_one_step(tmp_path) -> None:
    for text in ("one", "two"):
        write_synced(str(tmp_path / "f"), text)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("f", "two")]


def test_settings_of_the_command_line_are_pairs() -> None:
    assert pipeline_commands._pairs(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    for wrong in (["a"], ["=b"], ["a=1", "a=2"]):
        with pytest.raises(ConfigurationError):
            pipeline_commands._pairs(wrong)


@pytest.fixture
def geminga(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The command in this process: what it exits with and prints."""

    def run(*arguments: str) -> tuple[int | str | None, str, str]:
        monkeypatch.setattr(sys, "argv", ["geminga", "pipeline", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        return left.value.code, *capsys.readouterr()

    return run


def test_the_command_line_validates_shows_and_fails_in_one_paragraph(tmp_path, geminga) -> None:
    path = tmp_path / "p.yaml"
    asked = ("show", "windows", "--set", "topics=a", "--set", "output=b", "--set", "columns=x long")
    code, shown, _ = geminga(*asked)
    assert code == 0
    of_a_process = subprocess.run(
        [sys.executable, "-m", "geminga", "pipeline", *asked], capture_output=True, text=True, timeout=60, check=True
    )
    assert of_a_process.stdout == shown
    path.write_text(shown, encoding="utf-8")
    assert "is valid" in geminga("validate", str(path))[1]
    path.write_text(shown.replace("watermark", "watermerk"), encoding="utf-8")
    code, found, _ = geminga("validate", str(path))
    assert code == 1
    assert f"{path}:" in found
    assert "did you mean watermark" in found
    told = json.loads(geminga("validate", "--json", str(path))[1])
    assert told["problems"][0]["key"] == "watermerk"
    for command in ("run", "status"):
        code, _, failure = geminga(command, str(path))
        assert code == 1
        assert failure.startswith("geminga: ")
        assert failure.count("\n") == 1
    assert "--set topics=" in geminga("list")[1]
    assert len(geminga("list", "--json")[1].splitlines()) == 5
    assert "expected NAME=VALUE" in geminga("show", "windows", "--set", "x")[2]
    assert "did you mean windows" in geminga("show", "window")[2]


def test_validating_loads_neither_spark_nor_arrow() -> None:
    code = (
        "import sys\n"
        "from geminga.spark.pipelines import load_ready\n"
        "from geminga.spark.pipelines.checkpoint import stored_definition\n"
        "load_ready('redrive', {'topic': 't'})\n"
        "print([name for name in ('pyspark', 'pyarrow', 'numpy', 'google.protobuf') if name in sys.modules])\n"
    )
    result = run_python(code)
    assert result.stdout == "[]\n"
