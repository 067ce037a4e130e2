"""Declared pipelines over Spark: what is read, what is made of it, where it goes, as a value or a YAML file.

::

    from geminga.spark.pipelines import Pipeline, Sink, Source, run

    run(Pipeline("copy", (Source(topics=("orders",)),), Sink(topic="orders-2")))

docs/pipelines.md is the tour, docs/formats/pipeline.md the table of everything. Importing this loads neither PySpark
nor the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from geminga.spark.pipelines.core.checking import check
from geminga.spark.pipelines.core.definition import (
    Cluster,
    Emit,
    Guarantee,
    Join,
    Pipeline,
    Sink,
    Source,
    Table,
    Watermark,
    Window,
    WindowKind,
)
from geminga.spark.pipelines.core.identity import CheckpointInUseError
from geminga.spark.pipelines.core.problems import PipelineError, Problem
from geminga.spark.pipelines.loading import load, load_ready

if TYPE_CHECKING:
    from geminga.spark.pipelines.core.progress import BatchFigures, Totals
    from geminga.spark.pipelines.query import start
    from geminga.spark.pipelines.reporter import Reporter
    from geminga.spark.pipelines.running import PipelineFailedError, Stop, run

__all__ = [
    "BatchFigures",
    "CheckpointInUseError",
    "Cluster",
    "Emit",
    "Guarantee",
    "Join",
    "Pipeline",
    "PipelineError",
    "PipelineFailedError",
    "Problem",
    "Reporter",
    "Sink",
    "Source",
    "Stop",
    "Table",
    "Totals",
    "Watermark",
    "Window",
    "WindowKind",
    "check",
    "load",
    "load_ready",
    "run",
    "start",
]

_PLAIN = {"BatchFigures": "core.progress", "Reporter": "reporter", "Totals": "core.progress"}
_NEEDING_SPARK = {"PipelineFailedError": "running", "Stop": "running", "run": "running", "start": "query"}


def __getattr__(name: str) -> object:
    if name in _PLAIN:
        return getattr(import_module(f"geminga.spark.pipelines.{_PLAIN[name]}"), name)
    if name not in _NEEDING_SPARK:
        raise AttributeError(f"module 'geminga.spark.pipelines' has no attribute {name!r}")
    from geminga.spark.process.java import configure_java
    from geminga.spark.process.versions import require_pyspark

    require_pyspark()
    configure_java()
    return getattr(import_module(f"geminga.spark.pipelines.{_NEEDING_SPARK[name]}"), name)
