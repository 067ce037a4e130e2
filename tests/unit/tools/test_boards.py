"""Boards, what their queries ask for, and how panels are judged; alert rules and their lines in the documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tools.boards.__main__ import OURS, RULES, missing
from tools.boards.ours import BOARDS, text
from tools.boards.panels import Panel, boards_in, families, filled, metric_names, panels_of
from tools.boards.verdict import ABSENT, EMPTY, MOVES, RESTS, STILL, Reasons, judged, own_lints, share

from geminga.broker.compaction.part import compact
from geminga.broker.composition.metrics import Metrics
from geminga.broker.statistics.topics import TopicStatistics
from geminga.broker.topic.persistent import PersistentTopic
from geminga.runtime import wait_ms
from support.house.source_tree import ROOT
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker

#: What a broker's own page has.
OURS_TOO = ("pulsar_", "geminga_compaction_")
REASONS = Reasons(
    absent=(("gone_.*", "it is gone"),),
    rests=(("quiet", "it is quiet"),),
    absent_panels=(("b: t of nothing", "nothing"),),
    resting_panels=(("b: t of none", "none"),),
)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ('sum by (topic) (rate(a_total{x="b_c", y=~"$d"}[$__rate_interval])) / 60.0', {"a_total"}),
        ('100 * count(up{job="b"} == 1) / count(up)', {"up"}),
        ("a - on (instance) group_left (x) b offset 5m", {"a", "b"}),
        ("topk(10, sum(a:b) without (c)) > bool 1e3", {"a:b"}),
    ],
)
def test_names_that_a_query_asks_for(query: str, names: set[str]) -> None:
    assert metric_names(query) == names


def test_variables_are_filled_in_as_written_down() -> None:
    query = 'rate(a{cluster="$cluster", pod=~"${pod:regex}", x!~"a|$y"}[$__rate_interval]) + b[$interval] + c[30s]'
    assert filled(query, "mine") == 'rate(a{cluster="mine", pod=~".*", x!~"a|.*"}[20s]) + b[20s] + c[30s]'


def test_panels_are_found_at_any_depth(tmp_path: Path) -> None:
    target = {"targets": [{"expr": " up "}, {"expr": ""}]}
    document = {
        "panels": [{"title": "row", "panels": [{"title": "a", **target}]}, {"title": "text"}],
        "rows": [{"panels": [{"title": "b", **target}]}],
    }
    (tmp_path / "one.json").write_text(json.dumps(document))
    (tmp_path / "other.json").write_text(json.dumps(document))
    found = boards_in(tmp_path, ["other"])
    assert found == [Panel("one", "a", ("up",)), Panel("one", "b", ("up",))]
    (tmp_path / "one.json").write_text("[]")
    with pytest.raises(ValueError, match=r"one\.json: no board: an object with panels was expected"):
        panels_of(tmp_path / "one.json")


def test_metrics_that_no_page_has_are_named_with_their_boards() -> None:
    page = '# TYPE a summary\na{quantile="0.5"} 1\na_sum 1\na_count 1\n# TYPE b_total counter\nb_total{x="y"} 2\n'
    assert families(page) == {"a": "summary", "a_sum": "summary", "a_count": "summary", "b_total": "counter"}
    panels = [Panel("one", "", ("a_count + c", "up")), Panel("two", "", ("c / d",))]
    assert missing(panels, [page, "# TYPE d gauge\nd 1\n"]) == ["c: one, two"]


@pytest.mark.parametrize(
    ("query", "series", "verdict", "why"),
    [
        ("a", [[1.0, 1.0], [1.0, 2.0]], MOVES, ""),
        ("a", [[1.0, 1.0]], STILL, ""),
        ("a + quiet", [[1.0, 1.0]], RESTS, "it is quiet"),
        ("a", [], EMPTY, ""),
        ("gone_by", [], ABSENT, "it is gone"),
        ("quiet", [], EMPTY, ""),
    ],
)
def test_a_panel_counts_if_it_moves_or_has_a_reason_to_rest(
    query: str, series: list[list[float]], verdict: str, why: str
) -> None:
    found = judged(Panel("b", "t", (query,)), series, REASONS)
    assert (found.verdict, found.why) == (verdict, why)
    assert share([found]) == (verdict in (MOVES, RESTS), verdict != ABSENT)


def test_a_panel_has_a_reason_of_its_own_where_its_metric_is_there() -> None:
    assert judged(Panel("b", "t of nothing", ("a",)), [], REASONS).verdict == ABSENT
    assert judged(Panel("b", "t of none", ("a",)), [], REASONS).verdict == RESTS
    assert judged(Panel("c", "t of none", ("a",)), [], REASONS).verdict == EMPTY


def test_what_promtool_says_of_others_names_is_let_pass() -> None:
    told = "pulsar_a no help text\ngeminga_b no help text\nerror while linting: x\ngeminga_txn_ending_count no\n"
    assert own_lints(told) == ["geminga_b no help text", "error while linting: x"]


def test_reasons_are_given(tmp_path: Path) -> None:
    assert Reasons.read().absent
    (tmp_path / "r.toml").write_text('[absent]\na = " "\n[rests]\n')
    with pytest.raises(ValueError, match="a has no reason"):
        Reasons.read(tmp_path / "r.toml")


def test_our_boards_are_what_they_are_written_from() -> None:
    assert {path.name: path.read_text() for path in OURS.glob("*.json")} == {
        f"{board.file}.json": text(board) for board in BOARDS
    }, "python -m tools.boards write"


def test_alerts_and_runbook_name_each_other() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    links = re.findall(r"runbook_url: docs/metrics\.md#(\w+)", RULES.read_text())
    page = (ROOT / "docs/metrics.md").read_text()
    assert len(alerts) == len(set(alerts)) >= 10
    assert links == [alert.lower() for alert in alerts]
    assert re.findall(r'^\| <a id="(\w+)"></a>(\w+) \| [A-Z`]', page, re.MULTILINE) == [
        (alert.lower(), alert) for alert in alerts
    ]


def test_boards_and_alerts_ask_a_broker_for_what_it_has() -> None:
    """Names of the broker's own page; what stands beside it (process, load, bookies) is for ``make boards``."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(TOPIC)
        await client.subscribe(TOPIC)
        await client.publish(0)
        topic = next(iter(world.broker.topics.values()))
        assert isinstance(topic, PersistentTopic)
        await compact(topic)
        await wait_ms(100)
        statistics = TopicStatistics(world.broker.runtime.clock, world.broker)
        sources = (world.broker.lookup.metrics, world.broker.registry.loads.metrics)
        there = set(
            families(Metrics(world.broker, statistics, cluster="c", sources=sources, health=lambda: True).text())
        )
        beside = re.compile(r"pulsar_(lb|txn|replication|producer|proxy|resource_group)_.*")
        rules = [Panel("alerts", "", tuple(re.findall(r"expr: (?!>)(.*)", RULES.read_text())))]
        asked = {name for panel in (*boards_in(OURS), *rules) for name in panel.metrics if name.startswith(OURS_TOO)}
        assert {name for name in asked if not beside.fullmatch(name)} <= there
        assert len(asked & there) > 30

    run_with_broker(scenario)
