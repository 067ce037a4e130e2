"""Which columns there are at each place of a pipeline, and which names nothing has: what `validate` tells early.

What an expression may use is known here only by its words. A run leaves the verdict to Spark, which knows them all.
"""

from __future__ import annotations

from geminga.spark.pipelines.core.definition import Pipeline
from geminga.spark.pipelines.core.expressions import columns_of, names_in
from geminga.spark.pipelines.core.problems import Problem, nearest
from geminga.spark.rules.metadata_columns import DEFAULT_COLUMNS


def missing_columns(pipeline: Pipeline) -> list[Problem]:
    """Names that are no column where they stand; empty where the columns can not be known without a broker or files."""
    known = _of_sources(pipeline)
    if known is None:
        return []
    found: list[Problem] = []

    def look(path: str, text: str, names: frozenset[str]) -> None:
        lowered = {name.lower() for name in names}
        for name in sorted(names_in(text)):
            if name.lower() not in lowered:
                found.append(Problem(path, f"{name}: no such column; {nearest(name, names)}"))

    for name, text in pipeline.select.items():
        look(f"select.{name}", text, known)
    rows = known | frozenset(pipeline.select)
    look("where", pipeline.where, rows)
    for number, join in enumerate(pipeline.joins):
        at = f"join[{number}].on" if len(pipeline.joins) > 1 else "join.on"
        table = next(table for table in pipeline.tables if table.name == join.table)
        if not table.columns:
            return found
        for name in join.on:
            look(at, f"`{name}`", rows)
            look(at, f"`{name}`", frozenset([*columns_of(table.columns), table.key]) - {""})
        rows |= frozenset(columns_of(table.columns)) | ({table.key} - {""})
    for name in pipeline.deduplicate:
        # Those of the sources are gone behind a select, but for the connector's own.
        kept = frozenset(one for one in known if one.startswith("__")) if pipeline.select else known
        look("deduplicate", f"`{name}`", kept | frozenset(pipeline.select))
    if pipeline.window is not None or pipeline.deduplicate:
        look("time", pipeline.time, rows)
    outputs = rows
    if pipeline.is_grouped:
        for key, mapping in (("keys", pipeline.keys), ("aggregates", pipeline.aggregates)):
            for name, text in mapping.items():
                look(f"{key}.{name}", text, rows)
        outputs = frozenset(pipeline.keys) | frozenset(pipeline.aggregates)
        outputs |= {"window_start", "window_end"} if pipeline.window else frozenset()
    look("having", pipeline.having, outputs)
    sink = pipeline.sink
    for key in ("topic_of", "key", "value", "event_time", "properties"):
        look(f"sink.{key}", getattr(sink, key), outputs)
    for name, text in sink.fields.items():
        look(f"sink.fields.{name}", text, outputs)
    for name in sink.partition_by:
        look("sink.partition_by", f"`{name}`", frozenset(sink.fields) or outputs)
    return found


def _of_sources(pipeline: Pipeline) -> frozenset[str] | None:
    found: set[str] = set()
    for source in pipeline.sources:
        if source.is_from_registry or (not source.is_topic and not source.columns):
            return None
        names = set(columns_of(source.columns)) if source.columns else set()
        if source.is_topic:
            names |= {"value", *DEFAULT_COLUMNS}
        found |= names
    return frozenset(found)
