"""``geminga pipeline run | validate | status | list | show``: declared pipelines over Spark.

Nothing of Spark is loaded by the module, and by ``run`` only after the definition was found right.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from geminga.model.errors import ConfigurationError

if TYPE_CHECKING:
    from geminga.spark.pipelines import Pipeline
    from geminga.spark.pipelines.checkpoint import CheckpointState
    from geminga.spark.pipelines.core.problems import PipelineError, Problem

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Declared pipelines: topics through Spark.")

File = Annotated[str, typer.Argument(metavar="FILE", help="A pipeline file, or the name of a ready pipeline.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the ready pipeline; may be repeated."),
]
ServiceUrl = Annotated[
    str, typer.Option("--url", metavar="URL", help="The brokers, for a pipeline that does not say: pulsar://host:port.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines.")]

#: What a service URL without brokers behind it costs at most, with ``validate --connect``.
_NOT_CHECKED: Final = "topics were not looked for: --connect does that"


@commands.command()
def run(
    file: File,
    settings: Settings = None,
    url: ServiceUrl = "",
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", min=0, max=65535, help="Serve Prometheus metrics on 127.0.0.1; 0: a free port."),
    ] = None,
    is_json: Json = False,
) -> None:
    """Run a pipeline, from where it stopped, until it is done or stopped (Ctrl-C, SIGTERM)."""
    pipeline = _load(file, settings, url)
    from geminga.spark.pipelines import run as run_pipeline
    from geminga.spark.pipelines.reporter import Reporter

    run_pipeline(pipeline, reporter=Reporter(is_json=is_json), metrics_port=metrics_port)


@commands.command()
def validate(
    file: File,
    settings: Settings = None,
    url: ServiceUrl = "",
    is_connecting: Annotated[
        bool, typer.Option("--connect", help="Ask the brokers whether the topics are there.")
    ] = False,
    sample_messages: Annotated[
        int | None,
        typer.Option(
            "--sample",
            metavar="N",
            min=1,
            help="Read up to N messages of each topic, and say which columns do not fit.",
        ),
    ] = None,
    is_json: Json = False,
) -> None:
    """Check a pipeline without starting Spark; every problem is a line on standard output, and the exit code is 1."""
    from geminga.spark.pipelines.checkpoint import stored_definition
    from geminga.spark.pipelines.core.columns import missing_columns
    from geminga.spark.pipelines.core.identity import check_change
    from geminga.spark.pipelines.core.problems import PipelineError, located

    try:
        pipeline = _load(file, settings, url)
        found = missing_columns(pipeline)
        if is_connecting:
            from geminga.spark.pipelines.connecting import missing_topics

            found += missing_topics(pipeline)
        if found:
            raise PipelineError(located(found, pipeline.lines), file)
        stored = stored_definition(pipeline.checkpoint_path)
        if stored is not None:
            check_change(stored, pipeline, pipeline.checkpoint_path)
        fitting, notes = ("", []) if sample_messages is None else _sampled(pipeline, file, sample_messages)
    except PipelineError as error:
        _tell_problems(error, is_json=is_json)
        raise typer.Exit(1) from None
    if is_json:
        valid = {"pipeline": pipeline.name, "isValid": True, "checkpoint": pipeline.checkpoint_path}
        print(json.dumps(valid | ({"notes": _as_json(notes)} if notes else {})))
    else:
        for note in notes:
            print(note.sentence(file))
        said = f" ({_NOT_CHECKED})" if not is_connecting and not fitting else ""
        print(f"{file}: {pipeline.name} is valid{said}{fitting}")


def _sampled(pipeline: Pipeline, file: str, messages: int) -> tuple[str, list[Problem]]:
    """What to say of messages that all fit, and notes; raises PipelineError with the columns that do not."""
    from geminga.spark.pipelines.core.problems import PipelineError, located
    from geminga.spark.pipelines.sampling import sample

    found = sample(pipeline, messages)
    if found.problems:
        raise PipelineError(located([*found.problems, *found.notes], pipeline.lines), file)
    return f"; {found.messages} messages of {len(found.topics)} topics fit", located(found.notes, pipeline.lines)


def _as_json(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    return [{"line": one.line, "key": one.path, "problem": one.text} for one in problems]


def _tell_problems(error: PipelineError, *, is_json: bool) -> None:
    if is_json:
        print(json.dumps({"file": error.file, "isValid": False, "problems": _as_json(error.problems)}))
        return
    for problem in error.problems:
        print(problem.sentence(error.file))
    print(f"geminga: {len(error.problems)} problem{'' if len(error.problems) == 1 else 's'}", file=sys.stderr)


@commands.command()
def status(file: File, settings: Settings = None, url: ServiceUrl = "", is_json: Json = False) -> None:
    """Say what a pipeline has read to, its last batch, how far behind it is, and whether it runs."""
    from geminga.spark.pipelines.checkpoint import read_state
    from geminga.spark.pipelines.connecting import lags

    pipeline = _load(file, settings, url)
    state = read_state(pipeline.checkpoint_path)
    has_topics = any(source.is_topic for source in pipeline.sources)
    behind = lags(pipeline, state.offsets) if has_topics and state.done >= 0 else {}
    if is_json:
        print(json.dumps(_status_document(pipeline, state, behind)))
        return
    for line in _status_lines(pipeline, state, behind):
        print(line)


def _status_document(
    pipeline: Pipeline, state: CheckpointState, behind: dict[str, dict[str, object]] | str
) -> dict[str, object]:
    return {
        "pipeline": pipeline.name,
        "checkpoint": state.path,
        "isRunning": state.is_running,
        "pid": state.pid or None,
        "since": state.since or None,
        "lastBatchBegun": state.begun,
        "lastBatchDone": state.done,
        "lastBatchPlanned": state.planned or None,
        "watermarkMs": state.watermark_ms,
        "offsets": list(state.offsets),
        "topics": behind if isinstance(behind, dict) else None,
        "problem": behind if isinstance(behind, str) else None,
    }


def _status_lines(pipeline: Pipeline, state: CheckpointState, behind: dict[str, dict[str, object]] | str) -> list[str]:
    from geminga.spark.pipelines.core.progress import time_text

    running = f"running as process {state.pid} since {state.since}" if state.is_running else "not running"
    found = [f"{pipeline.name}: {running}", f"checkpoint   {state.path}"]
    if state.done < 0:
        return [*found, "no batch is done yet"]
    under_way = f"; batch {state.begun} is under way, or was cut off" if state.begun > state.done else ""
    found.append(f"last batch   {state.done}, planned {state.planned}{under_way}")
    if pipeline.watermark is not None:
        found.append(f"watermark    {time_text(state.watermark_ms)}")
    if isinstance(behind, str):
        return [*found, *(f"offset       {json.dumps(one)}" for one in state.offsets if one), behind]
    for topic, one in behind.items():
        if "problem" in one:
            found.append(f"{topic}  read to {one['position']}: {str(one['problem']).removeprefix(f'{topic}: ')}")
            continue
        least = "" if one["isExact"] else "at least "
        found.append(
            f"{topic}  read to {one['position']}, ends at {one['end']}, {least}{one['entriesBehind']} entries behind"
        )
    return found


@commands.command("list")
def list_ready(is_json: Json = False) -> None:
    """The ready pipelines and their parameters."""
    from geminga.spark.pipelines.core.ready import READY

    for ready in READY.values():
        if is_json:
            parameters = [
                {"name": one.name, "meaning": one.meaning, "default": one.default} for one in ready.parameters
            ]
            print(json.dumps({"name": ready.name, "meaning": ready.meaning, "parameters": parameters}))
            continue
        print(f"{ready.name}: {ready.meaning}")
        for one in ready.parameters:
            default = "needed" if one.default is None else f"default {one.default!r}" if one.default else "optional"
            print(f"  --set {one.name}=  {one.meaning} ({default})")


@commands.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A ready pipeline.")], settings: Settings = None
) -> None:
    """Print a ready pipeline as a file, to change and keep."""
    from geminga.spark.pipelines.core.problems import nearest
    from geminga.spark.pipelines.core.ready import READY

    if name not in READY:
        raise ConfigurationError(f"{name}: no ready pipeline; {nearest(name, READY)}")
    print(READY[name].text(_pairs(settings)), end="")


def _load(file: str, settings: list[str] | None, url: str) -> Pipeline:
    from geminga.spark.pipelines.loading import is_ready, load, load_ready

    given = _pairs(settings)
    return load_ready(file, given, service_url=url) if is_ready(file) else load(file, given, service_url=url)


def _pairs(settings: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"--set {setting}: expected NAME=VALUE")
        if name in found:
            raise ConfigurationError(f"--set {name}: twice")
        found[name] = value
    return found
