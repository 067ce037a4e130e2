"""``geminga loadbalance simulate``: what would move, and what is wrong with a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geminga.app.commands.load_commands import commands
from geminga.app.commands.load_replay import replayed
from geminga.broker.load_rules.config import LoadConfig
from geminga.model.errors import ConfigurationError, CorruptionError
from support.house.source_tree import ROOT
from support.stories.load_patterns import BALANCED, BALANCED_CONFIG, bundle_names

SETTINGS = [f"{key}={value}" for key, value in BALANCED.items()]


def trace(path: Path, *lines: object) -> str:
    file = path / "trace"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return str(file)


def test_brokers_that_join_get_their_share(tmp_path: Path) -> None:
    bundles = {name: {"msgRateIn": 10, "msgThroughputIn": 1000} for name in bundle_names()}
    joins = {"brokers": {"b1:1": {}, "b2:1": {}}}
    file = trace(tmp_path, {"brokers": {"b1:1": {}}, "bundles": bundles}, joins)
    words = ["simulate", file, "--rounds", "5", "--json"]
    told = CliRunner().invoke(commands, words + [word for text in SETTINGS for word in ("--set", text)])
    assert told.exit_code == 0, told.output
    answer = json.loads(told.stdout)
    assert [one["round"] for one in answer["rounds"]] == [1, 2, 3, 4, 5]
    assert answer["rounds"][-1]["mostMessagesOfMean"] <= 1.2
    assert {key: answer["settings"][key] for key in BALANCED} == {
        **BALANCED,
        "loadBalancerMsgRateDifferenceShedderThreshold": 10.0,
        "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": 1.1,
        "maxUnloadPercentage": 0.5,
        "minUnloadMessage": 1,
        "minUnloadMessageThroughput": 1,
    }
    text = CliRunner().invoke(commands, words[:-1])
    assert "loadBalancerSheddingGracePeriodMinutes=30" in text.stdout


def test_the_page_has_the_settings_that_the_tests_have() -> None:
    page = (ROOT / "docs/load-balancing.md").read_text(encoding="utf-8")
    assert all(text in page for text in SETTINGS)
    assert (
        LoadConfig(
            shedding=BALANCED_CONFIG.shedding,
            uniform_messages_percent=10,
            uniform_bytes_factor=1.1,
            unload_part_max=0.5,
            unload_messages_least=1,
            unload_bytes_least=1,
            distributes_evenly=False,
        )
        == BALANCED_CONFIG
    )


def test_the_example_of_the_page_is_replayed(tmp_path: Path) -> None:
    page = (ROOT / "docs/load-balancing.md").read_text(encoding="utf-8")
    lines = page.partition("```json\n")[2].partition("```")[0]
    file = tmp_path / "trace"
    file.write_text(lines, encoding="utf-8")
    answer = replayed(str(file), (), (), rounds=0, seed=1, is_json=True)
    assert isinstance(answer["rounds"], list)
    assert len(answer["rounds"]) == 3


def test_a_broker_that_goes_and_bundles_that_grow(tmp_path: Path) -> None:
    busy = {"msgRateIn": 200_000, "topics": 9}
    lines = [
        {
            "brokers": {"b1:1": {}, "b2:1": {}},
            "bundles": {bundle_names(2)[0]: busy},
            "owners": {bundle_names(2)[0]: "b1:1"},
        },
        {},
        {"brokers": {"b2:1": {}}},
        {"bundles": {bundle_names(2)[0]: None}},
    ]
    answer = replayed(trace(tmp_path, *lines), (), (), rounds=0, seed=1, is_json=True)
    rounds = answer["rounds"]
    assert isinstance(rounds, list)
    assert rounds[0]["splits"] == [
        {"bundle": bundle_names(2)[0], "broker": "b1:1", "why": "200000 messages/s are more than 30000"}
    ]
    assert sum(one["bundles"] for one in rounds[1]["brokers"]) >= 2
    assert [one["broker"] for one in rounds[2]["brokers"]] == ["b2:1"]
    assert rounds[3]["brokers"][0]["bundles"] == 0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 1 is no JSON"),
        ("[]", "line 1 is a JSON object with brokers, bundles or owners"),
        ('{"broker": {}}', "a line has brokers, bundles and owners, not broker"),
        ('{"brokers": []}', "brokers is a JSON object"),
        ('{"bundles": {"a/b": {}}}', "a bundle is tenant/namespace/0x00000000_0x40000000, not 'a/b'"),
        ('{"brokers": {"b": {}}, "bundles": {"a/b/0x0_0x1": {"msgRateIn": "x"}}}', "msgRateIn is a number"),
        ('{"brokers": {"b": {}}, "owners": {"a/b/0x0_0x1": "c"}}', "knows no such broker or bundle"),
        ("{}", "the first line of a trace names at least one broker"),
        ("", "is empty"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said(tmp_path: Path, line: str, told: str) -> None:
    file = tmp_path / "trace"
    file.write_text(line, encoding="utf-8")
    with pytest.raises(CorruptionError) as caught:
        replayed(str(file), (), (), rounds=0, seed=1, is_json=True)
    assert told in str(caught.value)
    assert "metadata node" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("loadBalancerLoadSheddingStrategy=TransferShedder", "expected ThresholdShedder, OverloadShedder"),
        ("loadManagerClassName=Extensible", "expected the modular load manager"),
        ("maxMessageSize=1", "no setting of load management"),
        (
            "loadBalancerLoadPlacementStrategy=org.apache.pulsar.broker.loadbalance.impl.AvgShedder",
            "needs the same loadBalancerLoadSheddingStrategy",
        ),
    ],
)
def test_settings_that_are_none_are_refused(tmp_path: Path, setting: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        replayed(trace(tmp_path, {"brokers": {"b": {}}}), (), (setting,), rounds=0, seed=1, is_json=True)
    assert told in str(caught.value)
