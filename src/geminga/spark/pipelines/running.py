"""Run a pipeline in this process to its end, or until it is told to stop.

Ctrl-C and SIGTERM let the batch that is under way end, up to ``STOP_GRACE_S``; a second one does not wait, and a JVM
that has not ended ``URGENT_GRACE_S`` later is killed. A JVM that hangs while it starts is killed that long after the
second one, or ``STOP_GRACE_S`` after the first. Either way nothing is lost or doubled: what was not committed is read
again by the next run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from geminga.model.errors import GemingaError, UnavailableError
from geminga.runtime.local_file import FILE_MODE
from geminga.spark.pipelines.checkpoint import PipelineCheckpoint
from geminga.spark.pipelines.core.checking import require_valid
from geminga.spark.pipelines.core.definition import Pipeline
from geminga.spark.pipelines.core.explanation import explain
from geminga.spark.pipelines.core.progress import Totals, figures_of
from geminga.spark.pipelines.outputs import ASIDE, Uncommitted
from geminga.spark.pipelines.reporter import MetricsServer, Reporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: How long a batch may take to end when somebody wants to stop.
STOP_GRACE_S: Final = 30.0
#: How long the JVM may take to end once it was asked for twice: one that hangs answers no call, and each is waited for.
URGENT_GRACE_S: Final = 10.0
#: How often the query is asked what it did.
_LOOK_S: Final = 0.2
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}
_LOCAL_SETTINGS: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class PipelineFailedError(UnavailableError):
    """The query ended by an error; the text is a paragraph, Spark's own output is in the log that it names."""


class Stop:
    """Whether somebody wants the end: once, or at once."""

    def __init__(self) -> None:
        self._wanted = 0
        #: Called when the end is asked for a second time.
        self.on_urgent: Callable[[], None] = lambda: None

    def want(self) -> None:
        """Ask for the end; the second time: without waiting for the batch."""
        self._wanted += 1
        if self._wanted == 2:
            self.on_urgent()

    @property
    def is_wanted(self) -> bool:
        """Whether it was asked for."""
        return self._wanted > 0

    @property
    def is_urgent(self) -> bool:
        """Whether it was asked for twice."""
        return self._wanted > 1

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask for the end; only in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in kept:
            signal.signal(number, lambda *_: self.want())
        try:
            yield
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)


def run(
    pipeline: Pipeline,
    *,
    spark: SparkSession | None = None,
    reporter: Reporter | None = None,
    metrics_port: int | None = None,
    stop: Stop | None = None,
) -> Totals:
    """Run the pipeline until it is done (``trigger: available``) or ``stop`` is wanted; what it did is returned.

    ``spark``: a session that runs already, and goes on running; without it one is started and ended. Raises
    PipelineError, CheckpointInUseError, ConfigurationError for a port of metrics that is not to be had,
    PipelineFailedError.
    """
    require_valid(pipeline)
    reporter = reporter or Reporter()
    stop = stop or Stop()
    totals = Totals()
    running: list[StreamingQuery] = []
    server = (
        nullcontext()
        if metrics_port is None
        else MetricsServer(metrics_port, pipeline.name, totals, lambda: any(query.isActive for query in running))
    )
    with server as metrics, PipelineCheckpoint(pipeline) as checkpoint, stop.on_signals():
        reporter.event(
            "starting", f"{pipeline.name}: starting Spark; checkpoint {checkpoint.path}", pipeline=pipeline.name
        )
        session_of = nullcontext(spark) if spark is not None else _own_session(pipeline, checkpoint.log_path, stop)
        explained = partial(_explained, checkpoint.log_path, is_own=spark is None)
        # Twice: what an error of the JVM says is to be had only until its session ends.
        with explained(), session_of as session, explained():
            assert session is not None
            if not stop.is_wanted:
                _run_query(session, pipeline, reporter, totals, stop, running, metrics)
    last = totals.last.batch if totals.last else -1
    reporter.event(
        "ended",
        f"{pipeline.name}: {'stopped' if stop.is_wanted else 'done'} after {totals.batches:,} batches and "
        f"{totals.rows:,} rows" + (f", the last batch is {last}" if last >= 0 else ""),
        batches=totals.batches,
        rows=totals.rows,
        lastBatch=last,
        isStopped=stop.is_wanted,
    )
    return totals


def _run_query(
    spark: SparkSession,
    pipeline: Pipeline,
    reporter: Reporter,
    totals: Totals,
    stop: Stop,
    running: list[StreamingQuery],
    metrics: MetricsServer | None,
) -> None:
    """``running``: gets the query, which metrics look at."""
    from geminga.spark.pipelines.query import start

    uncommitted = Uncommitted.of(pipeline)
    query = start(spark, pipeline)
    running.append(query)
    try:
        where = f", metrics at http://127.0.0.1:{metrics.port}/metrics" if metrics is not None else ""
        reporter.event(
            "started", f"{pipeline.name}: running{where}", metricsPort=metrics.port if metrics is not None else None
        )
        _watch(query, reporter, totals, stop, uncommitted)
    finally:
        # It is not asked any more: its session may be over before the metrics are.
        running.clear()
        if query.isActive:
            query.stop()


def _watch(
    query: StreamingQuery, reporter: Reporter, totals: Totals, stop: Stop, uncommitted: Uncommitted | None
) -> None:
    """Until the query has ended; raises its error."""
    last_batch = -1
    stop_at: float | None = None
    while True:
        is_over = bool(query.awaitTermination(_LOOK_S))  # type: ignore[arg-type]
        fresh = 0
        for progress in query.recentProgress:
            figures = figures_of(progress if isinstance(progress, dict) else _as_dict(progress))
            # Spark repeats the number of the batch to come while it is idle.
            if figures.batch <= last_batch or not _was_run(progress):
                continue
            last_batch, fresh = figures.batch, fresh + 1
            warning = totals.add(figures)
            reporter.batch(figures, totals)
            if warning:
                reporter.warn(warning)
            if uncommitted is not None and (count := uncommitted.set_aside(figures.batch)):
                reporter.warn(f"{count} files that a killed run had not committed were set aside in {ASIDE}")
        if is_over:
            return
        if not stop.is_wanted:
            continue
        if stop_at is None:
            stop_at = time.monotonic() + STOP_GRACE_S
            reporter.event("stopping", "stopping when the batch under way is done (again: at once)")
        is_idle = not query.status["isTriggerActive"]
        if fresh or is_idle or stop.is_urgent or time.monotonic() > stop_at:
            query.stop()
            return


def _was_run(progress: Any) -> bool:  # noqa: ANN401 (a dict or a StreamingQueryProgress)
    durations = progress["durationMs"] if isinstance(progress, dict) else progress.durationMs
    return "addBatch" in durations


def _as_dict(progress: Any) -> dict[str, Any]:  # noqa: ANN401
    import json

    found: dict[str, Any] = json.loads(progress.json)
    return found


@contextmanager
def _own_session(pipeline: Pipeline, log_path: str, stop: Stop) -> Iterator[SparkSession]:
    """A session of its own, whose processes write to a log and get no Ctrl-C: this process decides what that means."""
    from pyspark import SparkContext

    from geminga.spark import session

    settings = dict(_SETTINGS)
    if pipeline.master.startswith("local"):
        settings |= _LOCAL_SETTINGS
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _standard_error_to(log_path), killed_while_starting(stop):
            spark = session(pipeline.name, master=pipeline.master, settings={**settings, **pipeline.settings})
            spark.sparkContext.setLogLevel("WARN")
    finally:
        # PySpark has put its own handler there, which would end this thread in the middle of a call to the JVM.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stop.want())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    gateway = SparkContext._gateway
    process = None if gateway is None else gateway.proc
    try:
        with killed_if_urgent(process, stop):
            try:
                yield spark
            finally:
                spark.stop()
    finally:
        if process is not None:
            # Else the JVM of this process stays, and the next session gets it with this one's settings.
            SparkContext._gateway = SparkContext._jvm = None
            end_jvm(gateway, process)


@contextmanager
def killed_while_starting(stop: Stop) -> Iterator[None]:
    """A JVM that PySpark starts meanwhile is killed where it has not come so long after a wish to end, the first one or
    the second: until it has, nothing can ask it to. One whose session could not be made is not left behind.

    A blocked SIGINT counts as a wish.
    """
    from pyspark import SparkContext

    started: list[subprocess.Popen[bytes]] = []
    # Where PySpark has its means of starting a process; the process it keeps for itself until the JVM has come.
    launcher: Any = import_module("pyspark.java_gateway")
    original = launcher.Popen

    def popen(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
        started.append(original(*arguments, **options))
        return started[-1]

    is_over = threading.Event()

    def watch() -> None:
        first = second = float("inf")
        while not is_over.is_set():
            if _is_interrupted(is_over):
                stop.want()
            now = time.monotonic()
            first = min(first, now) if stop.is_wanted else first
            second = min(second, now) if stop.is_urgent else second
            if now - first >= STOP_GRACE_S or now - second >= URGENT_GRACE_S:
                for process in started:
                    process.kill()

    watcher = threading.Thread(target=watch, name="start of the JVM", daemon=True)
    launcher.Popen = popen
    watcher.start()
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
            process.communicate()
        gateway = SparkContext._gateway
        if gateway is not None and gateway.proc in started:
            SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        raise
    finally:
        launcher.Popen = original
        is_over.set()
        watcher.join()


def _is_interrupted(is_over: threading.Event) -> bool:
    """Whether a SIGINT came within :data:`_LOOK_S` that every thread blocks; not where the system can not say."""
    if not hasattr(signal, "sigtimedwait"):  # macOS
        is_over.wait(_LOOK_S)
        return False
    return signal.sigtimedwait({signal.SIGINT}, _LOOK_S) is not None


@contextmanager
def killed_if_urgent(
    process: subprocess.Popen[bytes] | None, stop: Stop, grace_s: float = URGENT_GRACE_S
) -> Iterator[None]:
    """A JVM that has not let go of this process ``grace_s`` after the second wish to end is killed.

    ``process``: None where another one started it.
    """
    if process is None:
        yield
        return
    timer = threading.Timer(grace_s, process.kill)
    timer.daemon = True
    stop.on_urgent = timer.start
    if stop.is_urgent and not timer.is_alive():  # which a signal may have begun by now
        timer.start()
    try:
        yield
    finally:
        stop.on_urgent = lambda: None
        timer.cancel()


def end_jvm(gateway: Any, process: subprocess.Popen[bytes], grace_s: float = STOP_GRACE_S) -> None:  # noqa: ANN401
    """No such child is left behind: one that does not end by itself is killed. ``gateway``: PySpark's."""
    try:
        gateway.shutdown()
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _standard_error_to(path: str) -> Iterator[None]:
    """For processes that are started meanwhile."""
    sys.stderr.flush()
    kept = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(log)


@contextmanager
def _explained(log_path: str, *, is_own: bool) -> Iterator[None]:
    """Errors of Spark, of Py4J and of the JVM as one paragraph."""
    from pyspark.errors import PySparkException

    # What carries PySpark's calls to the JVM, and comes with it.
    call_failed: type[Exception] = import_module("py4j.protocol").Py4JError

    try:
        yield
    except GemingaError:
        raise
    except (PySparkException, call_failed, ConnectionError) as error:
        where = f" (Spark's own words: {log_path})" if is_own else ""
        raise PipelineFailedError(f"{explain(str(error))}{where}") from error
