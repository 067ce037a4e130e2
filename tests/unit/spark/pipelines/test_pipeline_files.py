"""Pipeline files: each error with its line and key, all at once; the ready ones; what a checkpoint allows."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import replace

import pytest

from geminga.spark.pipelines import (
    CheckpointInUseError,
    Emit,
    Guarantee,
    Join,
    Pipeline,
    PipelineError,
    Sink,
    Source,
    Table,
    Watermark,
    Window,
    WindowKind,
    load,
    load_ready,
)
from geminga.spark.pipelines.core.checking import check, require_valid
from geminga.spark.pipelines.core.columns import missing_columns
from geminga.spark.pipelines.core.connector_options import metadata_columns, sink_option_values, source_options
from geminga.spark.pipelines.core.definition import GUARANTEE_DEFAULT
from geminga.spark.pipelines.core.identity import check_change, definition_json
from geminga.spark.pipelines.core.parsing import parse_pipeline, read_document
from geminga.spark.pipelines.core.problems import LISTED_MAX, located, nearest
from geminga.spark.pipelines.core.reading import DURATION_MS_MAX, duration_ms
from geminga.spark.pipelines.core.ready import READY
from geminga.spark.pipelines.core.yaml_text import YamlError, parse_yaml
from support.connector.pipeline_files import plain
from support.house.source_tree import ROOT

COMPRESION = "pulsar.producer.compresionType"
POLL, CLIENT = "sources[0].options.pollTimeoutMs", "cluster.options.operationtimeoutm"
EXAMPLES = sorted((ROOT / "examples" / "pipelines").glob("*.yaml"))
GOOD = """\
pipeline: weekly
sources:
  - name: in
    topics: a1, a2
    columns: repo string, files long
watermark: {delay: 2h, of: each}
window:
  sliding: 1 hour
  every: 10 minutes
keys:
  owner: split(repo, '/')[0]
aggregates: {n: count(*), files: sum(files)}
late: {topic: late}
sink:
  topic: b
  key: owner
trigger: 10 seconds
spark:
  master: local[1]
  settings:
    spark.sql.shuffle.partitions: 2
"""


def parsed(text: str) -> Pipeline:
    return parse_pipeline(read_document(text, "p.yaml"), file="p.yaml", base="dir")


def problems(text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(PipelineError) as caught:
        parsed(text)
    return [(one.line, one.path, one.text) for one in caught.value.problems]


def test_errors_of_a_definition_travel_between_processes() -> None:
    with pytest.raises(PipelineError) as raised:
        parse_pipeline(read_document(GOOD.replace("2h", "2 moons")), file="weekly.yaml")
    found = pickle.loads(pickle.dumps(raised.value))
    assert (str(found), found.problems, found.file) == (str(raised.value), raised.value.problems, raised.value.file)


def test_a_file_is_what_it_says() -> None:
    made = parsed(GOOD)
    assert made == Pipeline(
        name="weekly",
        sources=(Source(name="in", topics=("a1", "a2"), columns="repo string, files long"),),
        watermark=Watermark(7_200_000, is_of_each=True),
        window=Window(WindowKind.SLIDING, 3_600_000, 600_000),
        keys={"owner": "split(repo, '/')[0]"},
        aggregates={"n": "count(*)", "files": "sum(files)"},
        late_topic="late",
        sink=Sink(topic="b", key="owner"),
        every_ms=10_000,
        master="local[1]",
        settings={"spark.sql.shuffle.partitions": "2"},
    )
    assert made.guarantee is GUARANTEE_DEFAULT
    for guarantee in Guarantee:
        assert parsed(f"{GOOD}guarantee: {guarantee.value}\n").guarantee is guarantee
    assert made.checkpoint_path == "dir/checkpoints/weekly"
    assert missing_columns(made) == []


@pytest.mark.parametrize(
    ("change", "line", "key", "words"),
    [
        (("watermark:", "watermerk:"), 6, "watermerk", "did you mean watermark"),
        (("    columns: repo", "    colums: repo"), 5, "sources[0].colums", "did you mean columns"),
        (("keys:\n  owner", "pipeline: again\nkeys:\n  owner"), 10, "", "this key is here twice, first in line 1"),
        (("trigger: 10 seconds", "trigger: sometimes"), 17, "trigger", "expected always, available or a duration"),
        (("every: 10 minutes", "every: ten"), 9, "window.every", "expected a duration"),
        (("every: 10 minutes", "every: 2 hours"), 9, "window.every", "not above the window's length"),
        (("topic: b\n", "topic: a1\n"), 15, "sink.topic", "reads this topic"),
        (("{topic: late}", "{topic: b}"), 13, "late.topic", "the sink's own topic"),
        (("topics: a1, a2", "topics: {a: b}"), 4, "sources[0].topics", "where names were expected"),
        (("topics: a1, a2", "topics: a1, a1"), 4, "sources[0].topics", "a1: twice"),
        (("topics: a1, a2", "topics: bad://a//b"), 4, "sources[0].topics", "the domain must be"),
        (("repo string, files long", "repo string, repo long"), 5, "sources[0].columns", "repo: twice"),
        (("repo string, files long", "repo strin"), 5, "sources[0].columns", "did you mean string?"),
        (("repo string, files long", "repo"), 5, "sources[0].columns", "expected a name and a type"),
        (("key: owner", "key: concat(owner"), 16, "sink.key", "a ( is not closed"),
        (("key: owner", "kind: owner"), 16, "sink.kind", "not a key here"),
        (("{delay: 2h, of: each}", "0 hours"), 6, "watermark", "duration above 0"),
        (("sources:\n  - name: in", "sources:\n  - nam: in"), 3, "sources[0].nam", "did you mean name"),
        (("  topic: b", "\ttopic: b"), 15, "", "a tab is no indentation"),
        (("key: owner", "key: &a owner"), 16, "", "anchors"),
        (("key: owner", "key: 'owner"), 16, "", "does not end"),
        (("key: owner", "options: {guarantee: x}"), 16, "sink.options.guarantee", "says this"),
        (("key: owner", "options: {sinkName: x}"), 16, "sink.options.sinkName", "checkpoint"),
        (("key: owner", f"options: {{{COMPRESION}: LZ4}}"), 16, f"sink.options.{COMPRESION}", "did you mean"),
        (("topics: a1, a2", "topics: a1, a2\n    start: noon"), 5, "sources[0].start", "ISO 8601"),
        (("topics: a1, a2", "topics: a1, a2\n    options:\n      pollTimeoutMs: x"), 6, POLL, "pollTimeoutMs"),
        (("watermark", "cluster: {options: {operationTimeoutM: 5}}\nwatermark"), 6, CLIENT, "not known"),
        (("watermark", "cluster: {service_url: 'host:6650'}\nwatermark"), 6, "cluster.service_url", "pulsar://"),
        (("weekly", "we ekly"), 1, "pipeline", "letters, digits"),
        (("weekly", "''"), 1, "pipeline", "empty: expected text"),
        (("late: {topic: late}", "late: {}"), 13, "late.topic", "missing: the topic of late rows"),
        (("key: owner", "qqqqqqqq: owner"), 16, "sink.qqqqqqqq", "expected one of event_time, fields"),
    ],
)
def test_an_error_says_where_what_and_what_was_expected(change, line, key, words) -> None:
    assert change[0] in GOOD
    found = problems(GOOD.replace(change[0], change[1], 1))
    assert any((at, path) == (line, key) and words in text for at, path, text in found), found


def test_all_problems_are_told_and_the_sentence_names_the_first() -> None:
    text = "pipeline: x\nsorces: 1\nsink: {topc: b, parquet: c, topic: d}\nemit: often\nwindow: 5\n"
    found = problems(text)
    assert [line for line, _, _ in found] == sorted(line for line, _, _ in found)
    assert len(found) >= 5
    with pytest.raises(PipelineError, match=r"p\.yaml:.*and .* more, which `geminga pipeline validate` lists"):
        parsed(text)


def test_sources_and_tables_are_told_apart() -> None:
    source, sink = Source(topics=("a",)), Sink(topic="b")

    def told(**parts) -> str:
        fields = {"name": "x", "sources": (source,), "sink": sink, **parts}
        return "\n".join(f"{one.path}: {one.text}" for one in check(Pipeline(**fields)))

    assert told() == ""
    assert "has this name already" in told(sources=(Source(topics=("p",), name="n"), Source(topics=("q",), name="n")))
    assert "reads this topic already" in told(sources=(source, Source(topics=("persistent://public/default/a",))))
    assert "of one kind" in told(sources=(source, Source(parquet="d", name="d")))
    assert "1 to 16" in told(sources=())
    assert "none is given" in told(sources=(Source(name="n"),))
    assert "no table has this name" in told(joins=(Join("t", ("a",)),))
    assert "did you mean items" in told(joins=(Join("itms", ("a",)),), tables=(Table("items", parquet="p"),))
    assert "the columns of a topic's messages" in told(tables=(Table("t", topic="t"),))
    assert "never over" in told(keys={"a": "a"}, aggregates={"n": "count(*)"})
    assert "no window is ever over" in told(window=Window(WindowKind.TUMBLING, 1000), aggregates={"n": "count(*)"})
    assert "what a group's rows become" in told(window=Window(WindowKind.SESSION, 1000), emit=Emit.CHANGES)
    assert "changes of what" in told(emit=Emit.CHANGES)
    assert "only be added to" in told(
        emit=Emit.CHANGES, keys={"a": "a"}, aggregates={"n": "count(*)"}, sink=Sink(parquet="p")
    )
    assert "no order" in told(sources=(Source(parquet="d", name="d"),), sink=Sink(table="t"))
    assert "a column of the result" in told(
        keys={"n": "a"}, aggregates={"n": "count(*)"}, emit=Emit.CHANGES, sink=Sink(topic="b")
    )
    assert "in one transaction" in told(late_topic="l", sink=Sink(parquet="p"))


def test_columns_that_are_nowhere_are_found_without_spark() -> None:
    text = GOOD.replace("{n: count(*), files: sum(files)}", "\n  n: count(*)\n  files: sum(fils)")
    made = parsed(text.replace("key: owner", "key: owners"))
    assert [(one.line, one.path, one.text) for one in located(missing_columns(made), made.lines)] == [
        (14, "aggregates.files", "fils: no such column; did you mean files?"),
        (18, "sink.key", "owners: no such column; did you mean owner?"),
    ]
    source = Source(topics=("a",), columns="id long, at struct<x: int>, tags array<string>")
    fine = Pipeline(
        name="x",
        sources=(source,),
        sink=Sink(topic="b"),
        select={"a": "transform(tags, (t, i) -> concat(t, i))", "b": "cast(at.x as decimal(10, 2))", "`": "1"},
        where="id between 1 and 2 and __eventTime > timestamp '2020-01-01' - interval 1 day and `id` is not null",
    )
    assert missing_columns(fine) == []
    wrong = replace(fine, select={**fine.select, "c": "identity + 1"})
    assert [(one.path, one.text) for one in missing_columns(wrong)] == [
        (
            "select.c",
            "identity: no such column; expected one of __eventTime, __key, __messageId, "
            "__messageProperties, __publishTime, __topic, at, id, tags, value",
        )
    ]
    assert missing_columns(replace(fine, sources=(Source(parquet="p", name="p"),))) == []


def test_a_near_name_is_found_among_many_and_of_others_only_some_are_listed() -> None:
    names = [f"t{number:04}" for number in range(1000)]
    assert nearest("ordrs", [*names, "orders"]) == "did you mean orders?"
    assert nearest("zzz", names) == f"expected one of {', '.join(names[:LISTED_MAX])} and 970 more"


def test_options_reach_the_connector_and_only_columns_that_are_used_are_read() -> None:
    made = parsed(GOOD)
    options = source_options(made, made.sources[0])
    assert options["topics"] == "a1,a2"
    assert options["subscription"] == "weekly"
    assert options["maxMessagesPerTrigger"] == "100000"
    assert set(metadata_columns(replace(made, late_topic=""))) == {"__eventTime"}
    assert set(metadata_columns(made)) == {"__key", "__topic", "__messageId", "__eventTime", "__messageProperties"}
    assert "topic" not in sink_option_values(made)
    assert sink_option_values(replace(made, late_topic=""))["topic"] == "b"
    started = replace(made.sources[0], start="2026-01-01T00:00:00Z", subscription="")
    options = source_options(made, started)
    assert options["startingTime"] == "2026-01-01T00:00:00Z"
    assert "subscription" not in options


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_valid_and_name_columns_that_are_there(path) -> None:
    assert missing_columns(load(str(path))) == []


@pytest.mark.parametrize("name", ["pipelines", "spark-etl", "spark-windows", "spark-backfill", "spark-join"])
def test_pipelines_in_the_docs_are_valid(name) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    found = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found
    for one in found:
        assert missing_columns(parsed(one)) == []


def test_there_is_an_example_of_each_ready_pipeline() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in EXAMPLES)
    names = {"topic-to-parquet": "parquet: orders-files"}
    assert [name for name in READY if names.get(name, f"use: {name}\n") not in texts] == []


@pytest.mark.parametrize("name", sorted(READY))
def test_ready_pipelines_take_their_parameters_whatever_is_in_them(name) -> None:
    ready = READY[name]
    given = {one.name: f"x-{one.name}" for one in ready.parameters if one.default is None}
    if "columns" in given:
        given["columns"] = "item string"
    made = load_ready(name, given)
    assert missing_columns(made) == []
    with pytest.raises(PipelineError, match=r"with\.nothing: not a parameter"):
        load_ready(name, {**given, "nothing": "1"})
    with pytest.raises(PipelineError, match="missing"):
        load_ready(name, {})
    odd = load_ready(name, {**given, "name": "x", **({"directory": 'a"b: {c}\n'} if "directory" in given else {})})
    assert odd.name == "x"


def test_a_file_that_uses_a_ready_pipeline_may_say_more(tmp_path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("use: redrive\nwith: {topic: t-DLQ}\npipeline: mine\ntrigger: always\n", encoding="utf-8")
    made = load(str(path), {"refused": "elsewhere"})
    assert (made.name, made.every_ms) == ("mine", 0)
    assert "elsewhere" in made.sink.topic_of
    path.write_text("use: redriv\n", encoding="utf-8")
    with pytest.raises(PipelineError, match=r"p\.yaml:1: use: redriv: no ready pipeline; did you mean redrive"):
        load(str(path))
    path.write_text("pipeline: x\n", encoding="utf-8")
    with pytest.raises(PipelineError, match="--set a: only for a ready pipeline"):
        load(str(path), {"a": "b"})
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(PipelineError, match="not UTF-8"):
        load(str(path))
    with pytest.raises(PipelineError, match="can not be read"):
        load(str(tmp_path / "nothing.yaml"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:\n- b\n- c\n", {"a": ["b", "c"]}),
        ("a: one\n  two # said\nb: 'it''s'\n", {"a": "one two", "b": "it's"}),
        ("a: |\n  x\n\n   y\nb: >-\n  p\n  q\n\n  r\n", {"a": "x\n\n y\n", "b": "p q\nr"}),
        ('- a: "\\u00e9\\x41\\n"\n  b: [1, {c: d}, ]\n- - x\n', [{"a": "éA\n", "b": ["1", {"c": "d"}]}, ["x"]]),
        ("a: [x,\n  y]\n", {"a": ["x", "y"]}),
        ("persistent://a: b:c#d\n", {"persistent://a": "b:c#d"}),
    ],
)
def test_yaml_is_read_as_every_reader_reads_it(text, found) -> None:
    assert plain(parse_yaml(text)) == found


@pytest.mark.parametrize("word", ["no", "yes", "on", "1_000", "0o7", "1:30", "2026-01-01", ".inf", "<<", "="])
def test_scalars_keep_their_text(word) -> None:
    assert plain(parse_yaml(f"a: {word}\n{word}: [{word}]\n")) == {"a": word, word: [word]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 'one\n  two'\n", {"a": "one two"}),
        ('"\\ud83d\\ude00": "\\U0001f600"\n', {"\U0001f600": "\U0001f600"}),
        ("{a, b: [c: d]}\n", {"a": "", "b": [{"c": "d"}]}),
        ("--- # why\na: b\n...\n", {"a": "b"}),
        ("\ufeffa: b\r\nc: d\re: f", {"a": "b", "c": "d", "e": "f"}),
    ],
)
def test_yaml_of_other_writers_is_read(text, found) -> None:
    assert plain(parse_yaml(text)) == found


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: b\n{c: d}: e\n", 2, "complex keys"),
        ("? [a]\n: b\n", 1, "complex keys"),
        ('a:\n- "\\ud83d"\n', 2, "half a character"),
        ('a: "\\UFFFFFFFF"\n', 1, "no character"),
        ("a: b\r\nc: d\u2028\n", 2, "U+2028"),
        ("a: b\n\nc: d\x00\n", 3, "U+0000"),
        ("a: &b\n", 1, "anchors"),
        ("a: *\n", 1, "aliases"),
        ("a: !<x\n", 1, "tags"),
        ("# c\n\n%TAG ! x\n---\na: b\n", 3, "directives"),
        ("a: @b\n", 1, "text that begins with @"),
        ("a: ]\n", 1, "was not opened"),
        ("a: - b\n", 1, "a line of its own"),
        ("a: b\nc\n", 2, "a key with a colon"),
        ("- a\nb: c\n", 2, "expected an item"),
        ("a: 'b' c\n", 1, "expected nothing behind"),
        ("a: b\n...\nc: d\n", 3, "nothing more"),
        ('a: "\\q"\n', 1, "unknown escape"),
    ],
)
def test_what_is_no_yaml_is_told_in_words_of_who_writes(text, line, words) -> None:
    with pytest.raises(YamlError) as caught:
        parse_yaml(text)
    assert (caught.value.line, words in caught.value.problem) == (line, True), caught.value.problem


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\na: 2\n", 2, "twice"),
        ("a: b: c\n", 1, "ends a key"),
        ("a: 1\n  b: 2\n", 2, "ends a key"),
        ("a:\n  b: 1\n c: 2\n", 3, ""),
        ("a: *b\n", 1, "aliases"),
        ("a: !!python/object x\n", 1, "tags"),
        ("a: [1, 2\n", 2, ""),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("%YAML 1.2\n", 1, "directives"),
        ("a: " + "[" * 30, 1, "nested"),
    ],
)
def test_what_is_not_read_is_refused_with_its_line(text, line, words) -> None:
    with pytest.raises(YamlError) as caught:
        parse_yaml(text)
    assert caught.value.line == line
    assert words in caught.value.problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", 500),
        ("2h", 7_200_000),
        ("1 hour 30 minutes", 5_400_000),
        ("7 days", 604_800_000),
        ("0s", 0),
        ("-1s", 0),
        ("1", 0),
        ("1 parsec", 0),
        ("999999999999 days", 0),
    ],
)
def test_durations_are_read(text, expected) -> None:
    assert duration_ms(text) == expected <= DURATION_MS_MAX


def test_a_checkpoint_allows_what_changes_nothing_and_refuses_the_rest() -> None:
    plain = Pipeline(name="x", sources=(Source(topics=("a",)),), sink=Sink(topic="b"))
    grouped = parsed(GOOD)
    allowed = [
        (plain, replace(plain, where="1 = 1", select={"a": "value"}, every_ms=5, description="d")),
        (plain, replace(plain, sources=(Source(topics=("a", "c"), messages_max=7),))),
        (plain, replace(plain, sink=Sink(topic="b", key="__key"))),
        (grouped, replace(grouped, where="true", having="n > 1", settings={}, watermark=Watermark(1, is_of_each=True))),
    ]
    for before, after in allowed:
        check_change(definition_json(before), after, "dir")
    table = replace(plain, select={"id": "value.id", "n": "value.n"}, sink=Sink(table="t", key="upper(Id)"))
    allowed = [(table, replace(table, select={"id": "value.id", "n": "value.m"}, where="n > 1"))]
    for before, after in allowed:
        check_change(definition_json(before), after, "dir")
    refused = [
        (table, replace(table, sink=Sink(table="t", key="id")), "sink.key"),
        (table, replace(table, select={"id": "value.other", "n": "value.n"}), "select.id"),
        (table, replace(table, select={"ID": "value.id", "n": "value.n"}), "select.ID, select.id"),
        (plain, replace(plain, sink=Sink(topic="c")), "sink.topic"),
        (plain, replace(plain, sources=(Source(topics=("c",)),)), "sources[0].topics"),
        (plain, replace(plain, sources=(Source(topics=("a",)), Source(topics=("c",)))), "sources (there were 1)"),
        (plain, replace(plain, guarantee=Guarantee.EFFECTIVELY_ONCE), "guarantee"),
        (grouped, replace(grouped, keys={}), "keys"),
        (grouped, replace(grouped, select={"repo": "repo"}), "select"),
        (grouped, replace(grouped, late_topic=""), "late.topic"),
        (grouped, replace(grouped, window=Window(WindowKind.SESSION, 5)), "window"),
        (grouped, replace(grouped, watermark=Watermark(7_200_000)), "watermark.is_of_each"),
    ]
    for before, after, key in refused:
        with pytest.raises(CheckpointInUseError) as caught:
            check_change(definition_json(before), after, "dir")
        assert f": {key}" in str(caught.value) or f", {key}" in str(caught.value)
    with pytest.raises(CheckpointInUseError, match="pipeline x, not of y"):
        check_change(definition_json(plain), replace(plain, name="y"), "dir")
    for broken in ("{", "[]", '{"format": 9, "pipeline": "x", "definition": {}}'):
        with pytest.raises(CheckpointInUseError):
            check_change(broken, plain, "dir")
    secret = replace(plain, cluster=replace(plain.cluster, options={"authParams": "token:abc"}))
    assert "abc" not in definition_json(secret)
    assert json.loads(definition_json(plain))["format"] == 1


_COUNTED = {"keys": {"a": "a"}, "aggregates": {"n": "count(*)"}}


@pytest.mark.parametrize(
    ("parts", "path", "words"),
    [
        ({"name": "a b"}, "pipeline", "1 to 100 letters"),
        ({"sources": (Source(topics=("p",), name="a b"),)}, "sources[0].name", "1 to 100 letters"),
        (
            {"sources": (Source(topics=("p",), is_from_registry=True, columns="id long"),)},
            "sources[0].columns",
            "beside schema: registry",
        ),
        ({"tables": (Table("a b", parquet="p"),)}, "tables[0].name", "1 to 100 letters"),
        ({"tables": (Table("t", parquet="p"), Table("t", parquet="q"))}, "tables[1].name", "has this name already"),
        ({"tables": (Table("t"),)}, "tables[0]", "exactly one of topic and parquet"),
        ({"tables": (Table("t", parquet="p", key="k"),)}, "tables[0].key", "for a topic"),
        ({"tables": (Table("t", parquet="p"),), "joins": (Join("t", ()),)}, "join.on", "the columns that both sides"),
        ({"aggregates": {"n": "count(*)"}}, "aggregates", "of what?"),
        ({**_COUNTED, "emit": Emit.CHANGES, "sink": Sink(table="t")}, "sink.table", "a key that tells the groups"),
        ({"deduplicate": ("id",), "watermark": Watermark(0)}, "watermark", "0 ms: expected a duration above 0"),
        ({"window": Window(WindowKind.TUMBLING, 0)}, "window.tumbling", "0 ms: expected a duration above 0"),
        ({"window": Window(WindowKind.TUMBLING, 1000, every_ms=10)}, "window.every", "only of sliding windows"),
        ({"window": Window(WindowKind.SLIDING, 1000, every_ms=2000)}, "window.every", "not above the window's length"),
        ({"window": Window(WindowKind.SLIDING, 10**9, every_ms=10)}, "window.every", "in 100,000,000 windows"),
        ({"late_topic": "l", "sink": Sink(topic="b", is_avro=True)}, "late", "expected sink.format: json"),
        ({"sink": Sink()}, "sink", "none is given"),
        ({"sink": Sink(topic="b", parquet="p")}, "sink", "topic and parquet are given"),
        ({"sink": Sink(parquet="p", value="v")}, "sink.value", "only of topics"),
        ({"sink": Sink(parquet="p", key="k")}, "sink.key", "only of topics and tables"),
        ({"sink": Sink(topic="b", partition_by=("k",))}, "sink.partition_by", "only of parquet"),
        ({"sink": Sink(parquet="p", is_avro=True)}, "sink.format", "only of topics"),
        ({"sink": Sink(topic="b", value="v", fields={"a": "a"})}, "sink.value", "beside fields or format: avro"),
    ],
)
def test_a_pipeline_that_a_program_built_wrongly_is_told_where_and_raised(parts, path, words) -> None:
    fields = {"name": "x", "sources": (Source(topics=("a",)),), "sink": Sink(topic="b"), **parts}
    pipeline = Pipeline(**fields)
    assert [one.path for one in check(pipeline) if words in one.text] == [path]
    with pytest.raises(PipelineError) as raised:
        require_valid(pipeline)
    assert any(words in one.text for one in raised.value.problems)
