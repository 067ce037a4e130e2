"""Pipeline files that somebody made to break something: a clear error each, soon, and all told."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import replace

import pytest

from geminga.spark.pipelines import CheckpointInUseError, Pipeline, PipelineError, Sink, Source, Watermark
from geminga.spark.pipelines import checkpoint as checkpoints
from geminga.spark.pipelines.checkpoint import PipelineCheckpoint, read_state, stored_definition
from geminga.spark.pipelines.core.columns import missing_columns
from geminga.spark.pipelines.core.identity import check_change, definition_json
from geminga.spark.pipelines.core.parsing import parse_pipeline, read_document
from geminga.spark.pipelines.core.reading import ITEMS_MAX
from geminga.spark.pipelines.core.yaml_text import TEXT_CHARACTERS_MAX
from support.house.weekly_sample import sampled

PLAIN = "pipeline: x\nsources:\n  - topic: a\nsink:\n  topic: b\n"
FILES = "pipeline: x\nsources:\n  - parquet: in\nsink:\n  parquet: out\n"
GROUPED = """\
pipeline: x
sources:
  - topic: a
    columns: id long, item string
watermark: 1 hour
window:
  tumbling: 1 hour
keys: [item]
aggregates: {n: count(*)}
sink:
  topic: b
"""


def parsed(text: str) -> Pipeline:
    return parse_pipeline(read_document(text, "p.yaml"), file="p.yaml")


def of_source(more: str) -> str:
    return PLAIN.replace("topic: a", f"topic: a\n    {more}")


def of_window(text: str) -> str:
    return GROUPED.replace("tumbling: 1 hour", text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PLAIN.replace("- topic: a", "- {topic: a, topic: c}"), "p.yaml:3: topic: this key is here twice"),
        ("a: &a [x, x]\nb: &b [*a, *a]\n" + PLAIN, "p.yaml:1: anchors"),
        (PLAIN + "<<: {a: b}\n", "<<: not a key here"),
        (of_source("max_messages: " + "9" * 400), "expected a whole number above 0, and not above 2147483647"),
        (of_source("max_messages: 2147483648"), "not above 2147483647"),
        (of_source("max_messages: 1e9"), "'1e9': expected a whole number"),
        (of_source("max_messages: -5"), "'-5': expected a whole number"),
        (of_source("max_messages: \N{ARABIC-INDIC DIGIT THREE}"), "expected a whole number"),
        (of_source("max_bytes: 99999999999999999999g"), "at most 9223372036854775807"),
        (of_source("max_bytes: -1"), "expected a number of bytes"),
        (FILES.replace("parquet: in", "parquet: in\n    max_files: 99999999999"), "not above 2147483647"),
        (PLAIN + "trigger: -5 seconds\n", "expected always, available or a duration"),
        (PLAIN + "trigger: 99999999 weeks\n", "expected always, available or a duration"),
        (PLAIN + "trigger: [5 seconds]\n", "a sequence where text was expected"),
        (PLAIN.replace("sources:\n  - topic: a", "sources: []"), "sources: 0: expected 1 to 16"),
        (PLAIN.replace("sources:\n  - topic: a", "sources:"), "sources: missing"),
        (PLAIN.replace("sources:\n  - topic: a", "sources: {topic: a}"), "where a sequence"),
        (PLAIN.replace("- topic: a", "-"), "sources[0]: nothing where keys and values"),
        (PLAIN.replace("topic: a", "topics: []"), "an empty name"),
        (PLAIN.replace("topic: a", "topics: ',,'"), "an empty name"),
        (of_window("sliding: 1 hour\n  every: 2 hours"), "not above the window's length"),
        (of_window("sliding: 100 days\n  every: 1ms"), "a row would be in 8,640,000,000 windows"),
        (of_window("tumbling: -1 hour"), "'-1 hour': expected a duration above 0"),
        (of_window("tumbling: 0s"), "'0s': expected a duration above 0"),
        (of_window("session: 1h\n  offset: 1s"), "only of tumbling and sliding windows"),
        (of_window("tumbling: 1h\n  offset: 1h"), "smaller than from one to the next"),
        (of_window("sliding: 2h\n  every: 1h\n  offset: 1h"), "smaller than from one to the next"),
        (GROUPED.replace("watermark: 1 hour", "watermark: -1 hour"), "'-1 hour': expected a duration above 0"),
        (GROUPED.replace("n: count(*)", "n: count(*), N: count(*)"), "aggregates.N: N: a column of the result has"),
        (GROUPED.replace("id long", "ID long, id long"), "sources[0].columns: ID: twice"),
        (PLAIN + "select: {a: '1', A: '2'}\n", "select.A: A: twice"),
        (GROUPED.replace("[item]", '["it\\0em"]'), "expected a name of letters"),
        (PLAIN.replace("topic: b", "topic: a-partition-0"), "for ever"),
        (PLAIN.replace("topic: a", "pattern: public/default/.*"), "for ever"),
        (PLAIN.replace("topic: a", "pattern: '[ab]'"), "for ever"),
        (PLAIN.replace("topic: a", "pattern: '(?!x)a'"), "expected one that RE2 can evaluate"),
        (PLAIN.replace("topic: a", "pattern: '(a'"), "topicsPattern: topic pattern '(a'"),
        (FILES + "checkpoint: out\n", "lies in checkpoint (out), or around it"),
        (FILES + "checkpoint: out/c\n", "lies in checkpoint (out/c)"),
        (FILES.replace("parquet: out", "parquet: ./in/"), "lies in sources[0].parquet (in)"),
        (FILES.replace("parquet: in", "parquet: in\n    options: {maxFilesPerTrigger: 5}"), "the key max_files says"),
        (FILES.replace("parquet: out", "parquet: out\n  options: {Path: p}"), "the key parquet says"),
        (PLAIN + "deduplicate: [value]\n", "deduplicate: needs a watermark"),
        (GROUPED + "deduplicate: [lower(id)]\n", "expected the name of a column"),
        (GROUPED + "deduplicate: []\n", "deduplicate: an empty name"),
        (PLAIN + "watermark: 1 hour\n", "without window or deduplicate it does nothing"),
        (PLAIN.replace("pipeline: x", "pipeline: ../x"), "letters, digits"),
        (PLAIN.replace("pipeline: x", "pipeline: x\0"), "letters, digits"),
        (PLAIN + "spark:\n  settings: {a: {b: c}}\n", "keys and values where text was expected"),
        ("", "expected keys and values"),
        ("- a\n", "expected keys and values"),
    ],
)
def test_what_can_not_be_is_refused_with_its_reason(text, words) -> None:
    with pytest.raises(PipelineError) as caught:
        parsed(text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 2000


@pytest.mark.timeout(60)
def test_pattern_that_a_matcher_could_go_back_in_for_ever_is_checked_at_once() -> None:
    text = PLAIN.replace("topic: a", "pattern: '(a+)+b'").replace("topic: b", f"topic: {'a' * 200}")
    assert parsed(text).sources[0].pattern == "(a+)+b"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    sampled(
        "large pipeline files",
        [
            "a: " + "{b: " * 50_000,
            "pipeline: x" + " " * 250_000 + "y\n",
            "pipeline" + " " * 250_000 + "y\n",
            "pipeline: " + " #" * 100_000 + "\n",
            "pipeline: " + "a:b" * 80_000 + "\n",
            'pipeline: "' + "\\\\" * 100_000 + "\n",
            "".join(f"k{number}: 1\n" for number in range(20_000)),
            PLAIN.replace("topic: a", "topics: [" + ",".join(f"t{number}" for number in range(40_000)) + "]"),
            PLAIN.replace("- topic: a", "\n  ".join(f"- topic: a{number}" for number in range(12_000))),
            GROUPED.replace("{n: count(*)}", "{" + ",".join(f"n{n}: count(*)" for n in range(12_000)) + "}"),
            GROUPED.replace("id long", ", ".join(f"id{n} long" for n in range(12_000)) + ", ID1 long"),
            GROUPED.replace("count(*)", "(" * 90_000 + ")" * 90_000),
        ],
        4,
    ),
    ids=range(12),
)
def test_a_large_file_is_read_or_refused_in_a_time_that_grows_with_its_size(text) -> None:
    """With what looked at the rest of a line for each of its parts, some of these took hours."""
    assert len(text) < TEXT_CHARACTERS_MAX
    with pytest.raises(PipelineError) as caught:
        parsed(text)
    assert len(caught.value.problems) < 1200


def test_duplicates_are_told_by_columns_that_are_there() -> None:
    made = parsed(GROUPED + "deduplicate: id, __key\n")
    assert made.deduplicate == ("id", "__key")
    assert missing_columns(made) == []
    assert [one.path for one in missing_columns(replace(made, deduplicate=("ide",)))] == ["deduplicate"]
    chosen = parsed(GROUPED + "select: {item: item, id: '__messageProperties[''id'']'}\ndeduplicate: [id]\n")
    assert missing_columns(chosen) == []


def test_a_checkpoint_knows_what_duplicates_were_told_by() -> None:
    plain = parsed(PLAIN)
    unique = replace(plain, watermark=Watermark(1000), deduplicate=("value",))
    # Definitions of before there was the key.
    old = json.loads(definition_json(plain))
    del old["definition"]["deduplicate"]
    check_change(json.dumps(old), plain, "dir")
    with pytest.raises(CheckpointInUseError, match=r"watermark\.delay_ms|deduplicate"):
        check_change(json.dumps(old), unique, "dir")
    check_change(definition_json(unique), replace(unique, watermark=Watermark(2000)), "dir")
    for change in ({"deduplicate": ("__key",)}, {"select": {"value": "value"}}, {"time": "__publishTime"}):
        with pytest.raises(CheckpointInUseError, match=str(next(iter(change)))):
            check_change(definition_json(unique), replace(unique, **change), "dir")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b'{"format":1,"pipeline":"x","definition":[]}', b"[]"])
def test_a_checkpoint_whose_definition_is_damaged_is_refused(tmp_path, content) -> None:
    path = tmp_path / "geminga" / "pipeline.json"
    path.parent.mkdir()
    path.write_bytes(content)
    stored = stored_definition(str(tmp_path))
    assert stored is not None
    with pytest.raises(CheckpointInUseError, match="can not be read"):
        check_change(stored, Pipeline("x", (Source(topics=("a",)),), Sink(topic="b")), str(tmp_path))


def test_checkpoint_that_could_not_be_written_is_free_again(tmp_path) -> None:
    """Also while somebody keeps the error, as notebooks do."""
    pipeline = Pipeline("p", (Source(topics=("a",)),), Sink(topic="b"), checkpoint=str(tmp_path))
    in_the_way = tmp_path / "geminga" / "pipeline.json.new"
    in_the_way.mkdir(parents=True)
    first = PipelineCheckpoint(pipeline)
    with pytest.raises(OSError, match=r"pipeline\.json"):
        first.__enter__()
    in_the_way.rmdir()
    with PipelineCheckpoint(pipeline):
        assert read_state(str(tmp_path)).is_running


def test_somebody_who_asks_whether_a_pipeline_runs_does_not_keep_it_from_running(tmp_path, monkeypatch) -> None:
    pipeline = Pipeline("p", (Source(topics=("a",)),), Sink(topic="b"), checkpoint=str(tmp_path))
    with PipelineCheckpoint(pipeline):
        pass
    asking = [(tmp_path / "geminga" / checkpoints.LOCK).open(encoding="utf-8") for _ in range(3)]
    fcntl.flock(asking[-1], fcntl.LOCK_SH)
    refused = []

    class Flock:
        """One has done asking, and the next one begins, each time that the lock is not to be had."""

        LOCK_EX, LOCK_SH, LOCK_NB, LOCK_UN = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_NB, fcntl.LOCK_UN

        @staticmethod
        def flock(file, how) -> None:
            try:
                fcntl.flock(file, how)
            except BlockingIOError:
                refused.append(how)
                asking.pop().close()
                if asking:
                    fcntl.flock(asking[-1], fcntl.LOCK_SH)
                raise

    monkeypatch.setattr(checkpoints, "fcntl", Flock)
    with PipelineCheckpoint(pipeline):
        monkeypatch.undo()
        assert len(refused) == 3
        with pytest.raises(CheckpointInUseError, match="runs this pipeline already"):
            PipelineCheckpoint(pipeline).__enter__()


def test_lock_file_names_the_last_run_alone(tmp_path) -> None:
    pipeline = Pipeline("p", (Source(topics=("a",)),), Sink(topic="b"), checkpoint=str(tmp_path))
    with PipelineCheckpoint(pipeline):
        first = (tmp_path / "geminga" / checkpoints.LOCK).read_text()
    (tmp_path / "geminga" / checkpoints.LOCK).write_text(f"{first} and more than the next one has")
    with PipelineCheckpoint(pipeline):
        assert json.loads((tmp_path / "geminga" / checkpoints.LOCK).read_text())["pid"] == os.getpid()


@pytest.mark.parametrize(("count", "is_told"), [(ITEMS_MAX, False), (ITEMS_MAX + 1, True)])
def test_sequence_may_have_so_many_items_and_no_more(count: int, is_told: bool) -> None:
    text = PLAIN.replace("  - topic: a\n", "".join(f"  - topic: a{number}\n" for number in range(count)))
    with pytest.raises(PipelineError) as refused:
        parse_pipeline(read_document(text))
    assert (f"{count} items: expected at most {ITEMS_MAX}" in str(refused.value.problems)) == is_told


def test_checkpoint_that_became_anothers_before_it_was_locked_is_refused(tmp_path, monkeypatch) -> None:
    """Both looked at it when it was new; the other one had the lock first, ran and ended."""
    pipeline = Pipeline("p", (Source(topics=("a",)),), Sink(topic="b"), checkpoint=str(tmp_path))
    other = replace(pipeline, name="other")

    class Flock:
        """The other one's whole run comes before the first try."""

        LOCK_EX, LOCK_SH, LOCK_NB, LOCK_UN = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_NB, fcntl.LOCK_UN

        @staticmethod
        def flock(file, how) -> None:
            monkeypatch.undo()
            with PipelineCheckpoint(other):
                pass
            fcntl.flock(file, how)

    monkeypatch.setattr(checkpoints, "fcntl", Flock)
    with pytest.raises(CheckpointInUseError, match="is the checkpoint of the pipeline other, not of p"):
        PipelineCheckpoint(pipeline).__enter__()
    assert '"other"' in (stored_definition(str(tmp_path)) or "")
    with PipelineCheckpoint(other):
        pass
