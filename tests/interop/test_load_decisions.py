"""Shedding and placement beside Apache's own strategy classes, on the same reports and histories.

What Apache's classes decide is kept in ``tests/samples``, so that nobody needs Java to compare; ``make interop`` asks
them again, and with ``INTEROP_RECORD=1`` writes down what they say.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from geminga.broker.load_rules.cluster_load import ClusterLoad
from geminga.broker.load_rules.config import (
    AVERAGE_SHEDDER,
    LEAST_MESSAGES,
    LEAST_USAGE,
    OVERLOAD_SHEDDER,
    THRESHOLD_SHEDDER,
    UNIFORM_SHEDDER,
    LoadConfig,
)
from geminga.broker.load_rules.histories import UNSEEN, encode_bundle_data
from geminga.broker.load_rules.placement import LeastMessages, LeastUsage
from geminga.broker.load_rules.reports import encode_report
from geminga.broker.load_rules.shedding import shedding_of
from support.house.source_tree import ROOT
from support.stories.load_scenarios import Scenario, scenarios

pytestmark = pytest.mark.integration

PROGRAM: Final = Path(__file__).parent / "java" / "LoadDecisions.java"
RECORDED: Final = ROOT / "tests" / "samples" / "load-decisions-4.2.4.json"
STRATEGIES: Final = (THRESHOLD_SHEDDER, OVERLOAD_SHEDDER, UNIFORM_SHEDDER, AVERAGE_SHEDDER)
PLACEMENTS: Final = (LEAST_MESSAGES, LEAST_USAGE)
SCENARIOS: Final = 400


def told(scenario: Scenario) -> dict[str, Any]:
    """A scenario as the program reads it."""
    config = scenario.config
    rounds = []
    for one in scenario.rounds:
        brokers = {
            name: json.loads(encode_report({"webServiceUrl": f"http://{name}"}, report.usage, report.stats, now_ms=1))
            for name, report in one.reports.items()
        }
        bundles = {
            name: json.loads(encode_bundle_data(UNSEEN.with_sample(stats)))
            for report in one.reports.values()
            for name, stats in report.stats.items()
        }
        rounds.append({"brokers": brokers, "bundles": bundles, "lately": sorted(one.moved_lately)})
    return {
        "strategy": config.shedding,
        "placement": config.placement,
        "history": config.history_part,
        "leastMb": config.unload_least_mb,
        "idle": config.sheds_to_idle,
        "part": config.unload_part_max,
        "leastMessages": config.unload_messages_least,
        "highHits": config.average_high_hits,
        "rounds": rounds,
    }


def ours(scenario: Scenario) -> tuple[list[dict[str, list[str]]], list[str]]:
    shedding = shedding_of(scenario.config)
    rounds: list[dict[str, list[str]]] = []
    for one in scenario.rounds:
        data = {
            name: UNSEEN.with_sample(stats) for report in one.reports.values() for name, stats in report.stats.items()
        }
        cluster = ClusterLoad(one.reports, data)
        moves: dict[str, list[str]] = {}
        for move in shedding.choose(cluster, one.moved_lately, scenario.config):
            moves.setdefault(move.source, []).append(move.bundle)
        rounds.append(moves)
    places = {_place(cluster, scenario.config, draw) for draw in range(len(cluster.brokers))}
    return rounds, sorted(places)


def _place(cluster: ClusterLoad, config: LoadConfig, draw: int) -> str:
    strategy = LeastMessages() if config.placement == LEAST_MESSAGES else LeastUsage()
    return strategy.choose(cluster.brokers, cluster, config, draw)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_apaches_strategies_decide_the_same(strategy: str) -> None:
    made = scenarios(strategy, PLACEMENTS, SCENARIOS)
    answers = json.loads(RECORDED.read_text(encoding="utf-8"))[strategy]
    assert len(answers) == len(made)
    moved = 0
    for scenario, answer in zip(made, answers, strict=True):
        rounds, places = ours(scenario)
        assert places == answer["places"], scenario
        for mine, theirs in zip(rounds, answer["rounds"], strict=True):
            moved += bool(theirs)
            # Ours goes on with the next broker where the busiest has nothing to give.
            assert mine == theirs or (strategy == UNIFORM_SHEDDER and not theirs), scenario
    assert moved > 10


def test_what_is_kept_is_what_apaches_classes_decide(judge_is_apache: bool, tmp_path: Path) -> None:
    if not judge_is_apache:
        pytest.skip("Apache's classes decide")
    from tools.interop.java_program import run_java

    file = tmp_path / "scenarios"
    made = [scenario for strategy in STRATEGIES for scenario in scenarios(strategy, PLACEMENTS, SCENARIOS)]
    file.write_text("\n".join(json.dumps(told(scenario)) for scenario in made), encoding="utf-8")
    # The classes log beside the answers.
    answers = [json.loads(line) for line in run_java(PROGRAM, str(file)) if line.startswith("{")]
    assert len(answers) == len(made)
    kept = {
        strategy: answers[number * SCENARIOS : (number + 1) * SCENARIOS] for number, strategy in enumerate(STRATEGIES)
    }
    if os.environ.get("INTEROP_RECORD"):
        lines = {strategy: ",\n".join(map(json.dumps, kept[strategy])) for strategy in kept}
        rows = ",\n".join(f'"{strategy}": [\n{text}\n]' for strategy, text in lines.items())
        RECORDED.write_text(f"{{{rows}}}\n", encoding="utf-8")
    assert json.loads(RECORDED.read_text(encoding="utf-8")) == kept
