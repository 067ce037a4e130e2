"""What a leader's decisions must never do, one by one; what they do over many rounds is for the property tests."""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat

import pytest

from geminga.broker.load_rules.average_shedding import AverageShedding
from geminga.broker.load_rules.balancing import PROMISE_S, Balancing
from geminga.broker.load_rules.candidates import candidates, may_leave
from geminga.broker.load_rules.cluster_load import ClusterLoad, Move, Rules, sheddable
from geminga.broker.load_rules.config import AVERAGE_SHEDDER, OVERLOAD_SHEDDER, UNIFORM_SHEDDER, LoadConfig
from geminga.broker.load_rules.histories import UNSEEN, BundleData, History, decode_bundle_data
from geminga.broker.load_rules.isolation import Isolation, decode_isolation
from geminga.broker.load_rules.members import amount, is_bundle_name
from geminga.broker.load_rules.news import Said, is_news
from geminga.broker.load_rules.placement import BrokerChoice
from geminga.broker.load_rules.reports import BrokerReport, BundleStats, HostUsage, LoadRates, Usage
from geminga.broker.load_rules.shedding import ThresholdShedding, shedding_of
from geminga.broker.load_rules.splitting import Split, splits
from geminga.model.errors import CorruptionError

MB = 1 << 20
WEIGHED = LoadConfig(bandwidth_in_weight=0.0, bandwidth_out_weight=0.0, history_part=0.0, unload_least_mb=1.0)


def name(number: int, namespace: str = "a/x") -> str:
    return f"{namespace}/0x{number:08x}_0x{number + 2:08x}"


def stats(mb: float = 0, messages: float = 0, topics: int = 2) -> BundleStats:
    return BundleStats(LoadRates(messages, 0, mb * MB, 0), topics=topics)


def report(cpu: float, *each: BundleStats, first: int = 0, namespace: str = "a/x", **more) -> BrokerReport:
    bundles = {name(first + 2 * at, namespace): one for at, one in enumerate(each)}
    return BrokerReport(HostUsage(Usage(cpu, 100)), bundles, **more)


def load(**reports: BrokerReport) -> ClusterLoad:
    data = {bundle: UNSEEN.with_sample(one) for each in reports.values() for bundle, one in each.stats.items()}
    return ClusterLoad(reports, data)


def isolation(**policies: tuple[list[str], list[str], list[str], int]) -> Isolation:
    document = ",".join(
        f'"{key}": {{"namespaces": {_list(spaces)}, "primary": {_list(primary)}, "secondary": {_list(secondary)},'
        f' "auto_failover_policy": {{"policy_type": "min_available", "parameters": {{"min_limit": "{least}"}}}}}}'
        for key, (spaces, primary, secondary, least) in policies.items()
    )
    return decode_isolation("/isolation", f"{{{document}}}".encode())


def _list(texts: list[str]) -> str:
    return "[" + ", ".join(f'"{text}"' for text in texts) + "]"


# ---- shedding


def test_threshold_shedder_leaves_the_only_bundle_of_a_broker() -> None:
    one = load(a=report(90, stats(mb=500)), b=report(10, first=50), c=report(10, first=90))
    assert ThresholdShedding().choose(one, (), WEIGHED) == []


def test_threshold_shedder_moves_nothing_for_a_handful_of_bytes() -> None:
    few = load(a=report(90, stats(mb=0.5), stats(mb=0.4)), b=report(10, first=50))
    assert ThresholdShedding().choose(few, (), WEIGHED) == []
    more = load(a=report(90, stats(mb=50), stats(mb=40)), b=report(10, first=50))
    assert ThresholdShedding().choose(more, (), WEIGHED)


def test_threshold_shedder_goes_by_more_than_one_moment() -> None:
    slow = replace(WEIGHED, history_part=0.9)
    shedding = ThresholdShedding()
    calm = load(a=report(20, stats(mb=50), stats(mb=40)), b=report(20, first=50))
    assert shedding.choose(calm, (), slow) == []
    busy = load(a=report(90, stats(mb=50), stats(mb=40)), b=report(20, first=50))
    assert shedding.choose(busy, (), slow) == []


def test_shedder_gives_no_more_than_what_is_over() -> None:
    uneven = load(a=report(88, *(stats(mb=10) for _ in range(10))), b=report(20, first=50))
    moves = shedding_of(LoadConfig(shedding=OVERLOAD_SHEDDER)).choose(uneven, (), LoadConfig(shedding=OVERLOAD_SHEDDER))
    assert len(moves) == 1


def test_uniform_shedder_moves_bundles_that_fit_and_as_many_as_it_may() -> None:
    uneven = load(a=report(50, *(stats(messages=rate) for rate in (9000, 500, 400, 300))), b=report(5, first=50))
    config = LoadConfig(shedding=UNIFORM_SHEDDER, unload_messages_least=100)
    moves = shedding_of(config).choose(uneven, (), config)
    assert [move.bundle for move in moves] == [name(2), name(4), name(6)]
    few = LoadConfig(shedding=UNIFORM_SHEDDER, unload_messages_least=100, unload_bundles_max=1)
    assert len(shedding_of(few).choose(uneven, (), few)) == 1


def test_what_moved_lately_and_what_is_a_brokers_own_stays() -> None:
    own = {"pulsar/a:1/0x00000000_0xffffffff": stats(mb=9), "sla-monitor/a:1/0x00000000_0xffffffff": stats(mb=9)}
    held = {**own, name(0): stats(mb=5), name(2): stats(mb=4)}
    cluster = load(a=BrokerReport(HostUsage(), held))
    assert list(sheddable(cluster, "a", {name(0)})) == [name(2)]


def test_average_shedder_counts_rounds_of_what_differs_and_no_other() -> None:
    config = LoadConfig(
        shedding=AVERAGE_SHEDDER, placement=AVERAGE_SHEDDER, unload_messages_least=10, average_low_hits=3
    )
    shedding = AverageShedding()
    uneven = load(a=report(50, stats(messages=9000), stats(messages=300)), b=report(30, first=50))
    assert [bool(shedding.choose(uneven, (), config)) for _ in range(3)] == [False, False, True]
    even = load(a=report(31, stats(messages=9000), stats(messages=300)), b=report(30, first=50))
    assert not any(shedding.choose(even, (), config) for _ in range(10))


# ---- rounds of the leader


def rounds(config: LoadConfig, **reports: BrokerReport) -> Balancing:
    balancing = Balancing(config)
    balancing.update(reports, {}, 0.0)
    return balancing


def test_a_bundle_moves_only_to_who_carries_less_then() -> None:
    """Of two bundles that are alike one is enough: both would only change sides."""
    even = rounds(WEIGHED, a=report(90, stats(mb=50, messages=50), stats(mb=50, messages=50)), b=report(20, first=50))
    assert len(even.shed(Rules(), repeat(0))) == 1
    lone = rounds(WEIGHED, a=report(90, stats(mb=50), stats(mb=1)), b=report(20, stats(mb=50), first=50))
    assert lone.shed(Rules(), repeat(0)) == []


def test_moves_of_one_round_count_for_the_next_of_it() -> None:
    config = LoadConfig(shedding=OVERLOAD_SHEDDER, overloaded_percent=5, distributes_evenly=False)
    # So busy that half of what it has is to go: to each of the idle ones, and no more than makes all alike.
    balancing = rounds(config, a=report(100, *(stats(mb=10, messages=10) for _ in range(6))), b=report(1, first=50))
    assert len(balancing.shed(Rules(), repeat(0))) == 3


def test_a_bundle_that_was_moved_stays_for_a_while_and_a_promise_ends() -> None:
    balancing = rounds(WEIGHED, a=report(90, stats(mb=50), stats(mb=40), stats(mb=30)), b=report(20, first=50))
    (move,) = balancing.shed(Rules(), repeat(0))[:1]
    balancing.moved(move, 0.0)
    assert move.bundle in balancing.cluster().held("b")
    balancing.update(balancing.reports, {}, PROMISE_S + 1)
    assert move.bundle not in balancing.cluster().held("b")
    # The one that it came to is the busy one now.
    balancing.update({"a": report(20, first=50), "b": report(90, stats(mb=50), stats(mb=40))}, {}, PROMISE_S + 2)
    assert [each.bundle for each in balancing.shed(Rules(), repeat(0))] == [name(2)]


def test_a_bundle_that_nobody_else_may_have_stays() -> None:
    rules = Rules(isolation=isolation(p=(["a/x"], ["a"], [], 1)))
    balancing = rounds(WEIGHED, **{"a:1": report(90, stats(mb=50), stats(mb=40)), "b:1": report(20, first=50)})
    assert balancing.shed(rules, repeat(0)) == []
    cluster = load(**{"a:1": report(90, stats(mb=50), stats(mb=40)), "b:1": report(20, first=50)})
    assert not may_leave(name(0), "a:1", cluster, rules)


def test_a_bundle_stays_where_its_anti_affinity_group_is_spread_already() -> None:
    rules = Rules(groups={"a/x": "g", "b/y": "g"})
    reports = {"a": report(90, stats(mb=50), stats(mb=40)), "b": report(20, stats(), first=50, namespace="b/y")}
    assert rounds(WEIGHED, **reports).shed(Rules(), repeat(0))
    assert rounds(WEIGHED, **reports).shed(rules, repeat(0)) == []


def test_average_shedder_moves_nothing_to_where_a_policy_forbids_it() -> None:
    config = LoadConfig(
        shedding=AVERAGE_SHEDDER, placement=AVERAGE_SHEDDER, unload_messages_least=10, average_high_hits=1
    )
    rules = Rules(isolation=isolation(p=(["a/x"], ["a", "c"], [], 1)))
    balancing = rounds(
        config,
        **{
            "a:1": report(90, stats(messages=9000), stats(messages=900)),
            "b:1": report(1, first=50),
            "c:1": report(40, first=90),
        },
    )
    moves = balancing.shed(rules, repeat(0))
    assert moves == [Move(name(2), "a:1", "c:1")]


# ---- what is remembered


def test_a_history_forgets_slowly_and_takes_no_more_samples_than_it_may() -> None:
    history = (
        History(2)
        .with_sample(LoadRates(0))
        .with_sample(LoadRates(0))
        .with_sample(LoadRates(0))
        .with_sample(LoadRates(8))
    )
    assert (history.samples, history.rates.messages) == (2, 4)


def test_a_document_with_more_samples_than_it_may_have_counts_as_full() -> None:
    document = b'{"longTermData": {"maxSamples": 10, "numSamples": 1000000, "msgRateIn": 0}}'
    data = decode_bundle_data("/data", document)
    assert data.long.samples == 10
    assert data.long.with_sample(LoadRates(100)).rates.messages == 10


# ---- who may have what


def test_who_has_no_policy_goes_to_nobody_who_is_reserved() -> None:
    found = isolation(p=(["b/y"], ["a", "b"], ["c"], 2))
    assert found.brokers_for("a/x", ["a:1", "c:1", "d:1"]) == ["c:1", "d:1"]


def test_with_too_few_primary_brokers_the_secondary_ones_take_bundles_too() -> None:
    found = isolation(p=(["b/y"], ["a", "b"], ["c"], 2))
    assert found.brokers_for("b/y", ["a:1", "b:1", "c:1"]) == ["a:1", "b:1"]
    assert found.brokers_for("b/y", ["a:1", "c:1", "d:1"]) == ["a:1", "c:1"]


def test_a_policy_that_can_not_be_read_is_left_out_and_told() -> None:
    good = b'{"namespaces": ["a/x"], "primary": ["a"], "secondary": [], "auto_failover_policy": {"policy_type": '
    good += b'"min_available", "parameters": {"min_limit": 1}}}'
    found = decode_isolation("/isolation", b'{"bad": {"auto_failover_policy": 3}, "good": ' + good + b"}")
    assert found.brokers_for("a/x", ["a:1", "b:1"]) == ["a:1"]
    assert len(found.problems) == 1
    assert "bad" in found.problems[0]
    long = good.replace(b'"min_limit": 1', b'"min_limit": "' + b"9" * 5000 + b'"')
    assert len(decode_isolation("/isolation", b'{"long": ' + long + b"}").problems) == 1


def test_a_broker_that_is_full_is_given_nothing_unless_all_are() -> None:
    config = LoadConfig(topics_max=10)
    full, idle = report(10, stats(topics=11), namespace="b/y"), report(10)
    assert candidates(name(0), load(a=full, b=idle), Rules(), config) == ["b"]
    assert candidates(name(0), load(a=full), Rules(), config) == ["a"]
    other = report(10, manager="another")
    assert candidates(name(0), load(a=other), Rules(), config) == ["a"]


def test_namespaces_of_a_group_are_in_domains_apart() -> None:
    groups = {"a/x": "g", "b/y": "g", "c/z": "g"}
    domains = {"a": "one", "b": "one", "c": "two"}
    cluster = load(
        a=report(1, stats(), namespace="b/y"), b=report(1, first=50), c=report(1, stats(), first=90, namespace="d/d")
    )
    rules = Rules(groups=groups, domains=domains)
    assert candidates(name(0), cluster, rules, LoadConfig(failure_domains=True, distributes_evenly=False)) == ["c"]


def test_who_is_overloaded_is_given_nothing_where_somebody_else_may_have_it() -> None:
    busy, idle = report(99, first=10), report(10, stats(messages=100), first=50)
    choice = BrokerChoice(LoadConfig(distributes_evenly=False))
    assert choice.choose(name(0), load(a=busy, b=idle), Rules(), 0) == "b"
    # The rules leave only the busy one, who has fewer bundles of the namespace.
    assert BrokerChoice(LoadConfig()).choose(name(0), load(a=busy, b=idle), Rules(), 0) == "b"


# ---- splits


def test_one_round_splits_no_namespace_into_more_bundles_than_it_may_have() -> None:
    large = load(a=report(1, *(stats(topics=2000) for _ in range(4))), b=report(1, first=50))
    found = splits(large, {"a/x": 4}, LoadConfig(namespace_bundles_max=6))
    assert [split.bundle for split in found] == [name(0), name(2)]


def test_what_can_not_be_made_smaller_is_not_split() -> None:
    narrow = "a/x/0x00000001_0x00000002"
    hot = stats(messages=1e6, topics=1)
    wide = load(a=BrokerReport(HostUsage(), {narrow: stats(topics=5000), name(8): hot}), b=report(1))
    assert splits(wide, {"a/x": 4}, LoadConfig()) == []
    both = load(a=BrokerReport(HostUsage(), {name(8): stats(messages=1e6)}), b=report(1))
    assert splits(both, {"a/x": 4}, LoadConfig()) == [Split(name(8), "a", "1000000 messages/s are more than 30000")]


# ---- what is said and read


def test_a_bundle_that_came_and_a_long_silence_are_news() -> None:
    config = LoadConfig()
    usage, before = HostUsage(Usage(10, 100)), {name(0): stats(mb=100)}
    said = Said(usage, before, at_s=0.0)
    assert not is_news(said, usage, before, 1.0, config)
    assert is_news(said, usage, {**before, name(2): stats()}, 1.0, config)
    assert is_news(said, usage, before, config.report_interval_max_minutes * 60.0, config)
    assert is_news(None, usage, before, 1.0, config)


@pytest.mark.parametrize("text", ["../x/0x00000000_0x00000001", "a/../0x00000000_0x00000001", "a/./0x0_0x1", "a/x"])
def test_a_name_that_leads_elsewhere_is_no_bundle(text: str) -> None:
    assert not is_bundle_name(text)
    assert is_bundle_name(name(0))


def test_numbers_that_could_not_be_measured_are_nothing_and_no_numbers_are_refused() -> None:
    assert amount("/p", {"n": -1}, "n") == 0
    assert amount("/p", {"n": 1 << 63}, "n") == 1 << 63
    for wrong in (float("nan"), float("inf"), True, "1", 1e19):
        with pytest.raises(CorruptionError):
            amount("/p", {"n": wrong}, "n")


def test_what_is_promised_counts_at_one_broker_only() -> None:
    cluster = load(a=report(1, stats(messages=10)), b=report(1, first=50))
    cluster.assign(name(0), "b")
    assert (cluster.held("a"), cluster.held("b")) == (set(), {name(0)})
    assert BundleData().topics == 0
