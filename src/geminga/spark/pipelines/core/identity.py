"""What a checkpoint remembers of the pipeline it belongs to, and which changes it allows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

from geminga.model.errors import ConfigurationError
from geminga.spark.pipelines.core.definition import Pipeline
from geminga.spark.pipelines.core.expressions import names_in

#: Of ``geminga/pipeline.json``.
FORMAT: Final = 1

#: Keys that say how and where, not what.
_ALWAYS: Final = frozenset(["description", "cluster", "every_ms", "master", "settings"])
_OF_SOURCES: Final = frozenset(
    ["start", "subscription", "messages_max", "bytes_max", "files_max", "options", "name", "bad_records_topic"]
)
_OF_TABLES: Final = frozenset(["options", "parquet", "topic"])
#: What may change while Spark keeps no state.
_STATELESS: Final = frozenset(["select", "where", "joins", "tables", "having", "time"])
_STATELESS_SINK: Final = frozenset(["options", "key", "value", "fields", "event_time", "properties", "topic_of"])
#: ... and while it does: what is before and behind the state.
_STATEFUL: Final = frozenset(["where", "having"])
_STATEFUL_SINK: Final = frozenset(["options", "key", "value", "fields", "event_time", "properties"])


class CheckpointInUseError(ConfigurationError):
    """The checkpoint can not be used with this pipeline, or by two processes."""


def definition_json(pipeline: Pipeline) -> str:
    """The text of ``pipeline.json``."""
    found = {"format": FORMAT, "pipeline": pipeline.name, "definition": document_of(pipeline)}
    return json.dumps(found, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def document_of(pipeline: Pipeline) -> dict[str, Any]:
    """Everything of a definition, as JSON has it; secrets are left out."""
    found = _plain(pipeline)
    del found["base"], found["checkpoint"], found["lines"]
    found["cluster"]["options"] = {
        name: value for name, value in found["cluster"]["options"].items() if "authparams" not in name.lower()
    }
    assert isinstance(found, dict)
    return found


def _plain(value: Any) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value


def check_change(stored: str, pipeline: Pipeline, checkpoint: str) -> None:
    """Raise CheckpointInUseError unless the checkpoint of ``stored`` may go on with this definition."""
    try:
        before = json.loads(stored)
        form, name, definition = before["format"], before["pipeline"], before["definition"]
        if not isinstance(definition, dict):
            raise TypeError("the definition is no object")
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointInUseError(f"{checkpoint}/geminga/pipeline.json can not be read ({error})") from None
    if form != FORMAT:
        raise CheckpointInUseError(f"{checkpoint}: its pipeline.json has format {form}, this version reads {FORMAT}")
    if name != pipeline.name:
        raise CheckpointInUseError(
            f"{checkpoint} is the checkpoint of the pipeline {name}, not of {pipeline.name}: "
            "give each pipeline a checkpoint of its own"
        )
    changed = refused_changes(definition, json.loads(json.dumps(document_of(pipeline))), pipeline.is_stateful)
    if changed:
        raise CheckpointInUseError(
            f"{checkpoint} was made by another definition of {name}: {', '.join(changed)} may not change "
            "(docs/formats/pipeline.md says what may). Undo the change, or give the pipeline a new checkpoint, which "
            "begins anew: with another topic, file or table as sink, or what is there is written a second time"
        )


def refused_changes(before: Mapping[str, Any], after: Mapping[str, Any], is_stateful: bool) -> list[str]:
    """The keys that changed and may not, in order."""
    allowed = _ALWAYS | (_STATEFUL if is_stateful else _STATELESS)
    found = []
    for key in after:
        # A key that there was not when the checkpoint was made has nothing in it.
        is_same = before.get(key) == after[key] or not (before.get(key) or after[key])
        if key == "select" and key in allowed:
            found += _columns_of_key_changed(before.get(key) or {}, after[key], after["sink"])
        if key in allowed or is_same:
            continue
        if key == "sources":
            found += _sources_changed(before.get(key) or [], after[key], is_stateful)
        elif key == "sink":
            keys = _STATEFUL_SINK if is_stateful else _STATELESS_SINK
            if after[key]["table"]:
                # Rows of a table that have their former key would never be replaced nor deleted.
                keys -= {"key"}
            found += _members("sink", before.get(key) or {}, after[key], keys)
        elif key == "tables":
            if [_without(t, _OF_TABLES) for t in before.get(key) or []] != [
                _without(t, _OF_TABLES) for t in after[key]
            ]:
                found.append(key)
        elif key == "watermark":
            found += _members("watermark", before.get(key) or {}, after[key] or {}, frozenset(["delay_ms"]))
        else:
            found.append({"late_topic": "late.topic"}.get(key, key))
    return found


def _columns_of_key_changed(before: Mapping[str, str], after: Mapping[str, str], sink: Mapping[str, Any]) -> list[str]:
    """Columns that a table's key is made from."""
    names = {name.lower() for name in names_in(sink["key"])} if sink["table"] else ()
    return [
        f"select.{name}"
        for name in sorted({*before, *after})
        if name.lower() in names and before.get(name) != after.get(name)
    ]


def _without(value: Mapping[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    return {key: one for key, one in value.items() if key not in keys}


def _members(path: str, before: Mapping[str, Any], after: Mapping[str, Any], allowed: frozenset[str]) -> list[str]:
    return [
        f"{path}.{key}" for key in sorted({*before, *after}) if key not in allowed and before.get(key) != after.get(key)
    ]


def _sources_changed(before: list[Any], after: list[Any], is_stateful: bool) -> list[str]:
    if len(before) != len(after):
        return [f"sources (there were {len(before)})"]
    found = []
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        allowed = _OF_SOURCES | (frozenset() if is_stateful else frozenset(["columns", "keeps_invalid"]))
        changed = _members(f"sources[{number}]", old, new, allowed)
        if f"sources[{number}].topics" in changed and old.get("topics") and set(old["topics"]) <= set(new["topics"]):
            changed.remove(f"sources[{number}].topics")
        found += changed
    return found
