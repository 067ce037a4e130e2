"""Whatever the load: moves make a cluster more even, placement keeps the rules, splits keep the limits."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.load_rules.balancing import Balancing
from geminga.broker.load_rules.candidates import candidates, may_leave, permitted
from geminga.broker.load_rules.cluster_load import ClusterLoad, Rules, is_bound, scale_of
from geminga.broker.load_rules.config import (
    AVERAGE_SHEDDER,
    LEAST_MESSAGES,
    LEAST_USAGE,
    OVERLOAD_SHEDDER,
    ROUND_ROBIN,
    THRESHOLD_SHEDDER,
    UNIFORM_SHEDDER,
    LoadConfig,
)
from geminga.broker.load_rules.histories import UNSEEN, BundleData
from geminga.broker.load_rules.isolation import NO_ISOLATION
from geminga.broker.load_rules.members import namespace_of
from geminga.broker.load_rules.placement import BrokerChoice
from geminga.broker.load_rules.replay import decode_round
from geminga.broker.load_rules.reports import BrokerReport, BundleStats, HostUsage, LoadRates, Usage, sum_of
from geminga.broker.load_rules.shedding import shedding_of
from geminga.broker.load_rules.splitting import splits
from geminga.model.errors import CorruptionError

BROKERS = ("b1:1", "b2:1", "b3:1", "b4:1")
NAMESPACES = ("a/x", "a/y", "b/z", "pulsar/system", "pulsar/b1:1")
RATE = st.one_of(st.just(0.0), st.floats(0, 100), st.floats(0, 5e4))
STATS = st.builds(
    BundleStats,
    st.builds(lambda m, o, s: LoadRates(m, o, m * s, o * s), RATE, RATE, st.sampled_from([1.0, 100.0, 5000.0])),
    st.integers(0, 900),
    st.integers(0, 900),
    st.integers(0, 1500),
)
SHEDDERS = (THRESHOLD_SHEDDER, OVERLOAD_SHEDDER, UNIFORM_SHEDDER, AVERAGE_SHEDDER)
CONFIGS = st.builds(
    LoadConfig,
    shedding=st.sampled_from(SHEDDERS),
    placement=st.sampled_from([LEAST_MESSAGES, LEAST_USAGE, ROUND_ROBIN, AVERAGE_SHEDDER]),
    distributes_evenly=st.booleans(),
    sheds_to_idle=st.booleans(),
    history_part=st.sampled_from([0.0, 0.9]),
    unload_least_mb=st.sampled_from([0.0, 10.0]),
    unload_messages_least=st.sampled_from([1, 1000]),
    average_high_hits=st.sampled_from([1, 2]),
    unload_part_max=st.floats(0.05, 1),
    unload_bundles_max=st.sampled_from([-1, 2]),
    excluded_namespaces=st.sampled_from([(), ("a/x",)]),
    bundle_topics_max=st.sampled_from([10, 1000]),
    namespace_bundles_max=st.integers(1, 8),
    failure_domains=st.booleans(),
)
RULES = st.builds(
    Rules,
    isolation=st.just(NO_ISOLATION),
    groups=st.dictionaries(st.sampled_from(NAMESPACES[:3]), st.sampled_from(["g", "G", "h"]), max_size=3),
    domains=st.dictionaries(st.sampled_from(BROKERS), st.sampled_from(["d1", "d2"]), max_size=4),
)


@st.composite
def reports(draw: st.DrawFn) -> dict[str, BrokerReport]:
    found: dict[str, BrokerReport] = {}
    numbers = count()
    for broker in draw(st.lists(st.sampled_from(BROKERS), min_size=1, unique=True)):
        stats: dict[str, BundleStats] = {}
        for namespace, one in draw(st.lists(st.tuples(st.sampled_from(NAMESPACES), STATS), max_size=8)):
            number = next(numbers)
            stats[f"{namespace}/0x{number:08x}_0x{number + draw(st.sampled_from([1, 2])):08x}"] = one
        total = sum_of(one.rates for one in stats.values())
        usage = HostUsage(Usage(total.messages, 1e5), bandwidth_in=Usage(total.bytes_in, 1e8))
        found[broker] = BrokerReport(usage, stats, takes_non_persistent=draw(st.booleans()))
    return found


def cluster_of(said: dict[str, BrokerReport]) -> ClusterLoad:
    data = {name: UNSEEN.with_sample(one) for report in said.values() for name, one in report.stats.items()}
    return ClusterLoad(said, data)


@given(reports(), CONFIGS, RULES, st.integers(0, 3))
def test_moves_make_a_cluster_more_even(
    said: dict[str, BrokerReport], config: LoadConfig, rules: Rules, rounds: int
) -> None:
    balancing = Balancing(config)
    for number in range(rounds + 1):
        balancing.update(said, {}, number * 60.0)
        moves = balancing.shed(rules, count())
    assert len({move.bundle for move in moves}) == len(moves)
    cluster = cluster_of(said)
    scale = scale_of(data.short.rates for data in cluster.bundles.values())
    loads = {broker: scale.load(cluster.short_rates(broker)) for broker in cluster.brokers}
    for move in moves:
        assert move.bundle in said[move.source].stats
        assert move.destination in permitted(move.bundle, cluster, rules)
        assert not is_bound(namespace_of(move.bundle))
        assert namespace_of(move.bundle) not in config.excluded_namespaces
        load = scale.load(cluster.data(move.bundle).short.rates)
        before = sum(one * one for one in loads.values())
        loads[move.source] -= load
        loads[move.destination] += load
        assert sum(one * one for one in loads.values()) <= before
        balancing.moved(move, rounds * 60.0)
    assert not {move.bundle for move in balancing.shed(rules, count())} & {move.bundle for move in moves}


@given(reports(), CONFIGS, st.sets(st.integers(0, 20)))
def test_strategies_give_what_may_move_the_busiest_first(
    said: dict[str, BrokerReport], config: LoadConfig, lately: set[int]
) -> None:
    cluster = cluster_of(said)
    moved_lately = {name for index, name in enumerate(sorted(cluster.bundles)) if index in lately}
    for move in shedding_of(config).choose(cluster, moved_lately, config):
        assert move.bundle in said[move.source].stats
        assert move.bundle not in moved_lately
        assert not is_bound(namespace_of(move.bundle))
        if config.shedding == THRESHOLD_SHEDDER and not config.sheds_to_idle:
            mean = sum(report.usage.largest_share(config.weights) for report in said.values()) / len(said)
            assert said[move.source].usage.largest_share(config.weights) >= mean + config.threshold_percent / 100
        if config.shedding == OVERLOAD_SHEDDER:
            assert said[move.source].usage.largest_share() >= config.overloaded_share
        if config.shedding == UNIFORM_SHEDDER:
            mine, all_rates = said[move.source].rates, [one.rates for one in said.values()]
            assert mine.messages > min(one.messages for one in all_rates) or (
                mine.bytes > min(one.bytes for one in all_rates)
            )


@given(reports(), CONFIGS, RULES, st.integers(0, 1 << 30), st.booleans(), st.data())
def test_placement_keeps_the_rules(
    said: dict[str, BrokerReport], config: LoadConfig, rules: Rules, draw: int, persistent: bool, data: st.DataObject
) -> None:
    bundle = f"{data.draw(st.sampled_from(NAMESPACES))}/0xffffff00_0xffffffff"
    cluster = cluster_of(said)
    broker = BrokerChoice(config).choose(bundle, cluster, rules, draw, is_persistent=persistent)
    takers = [one for one, report in said.items() if persistent or report.takes_non_persistent]
    assert (broker is None) == (not takers)
    if broker is None:
        return
    assert broker in takers
    found = candidates(bundle, cluster, rules, config, is_persistent=persistent)
    is_by_messages = config.placement == LEAST_MESSAGES and namespace_of(bundle) not in config.excluded_namespaces
    if is_by_messages and all(one.usage.largest_share() <= config.overloaded_share for one in said.values()):
        assert broker in found
        assert cluster.long_messages(broker) == min(cluster.long_messages(one) for one in found)
    group = rules.groups.get(namespace_of(bundle))
    if group is not None and not (config.failure_domains and rules.domains):
        counts = cluster.group_namespaces(group, rules.groups)
        assert {counts[one] for one in found} == {min(counts[one] for one in takers)}


@given(reports(), CONFIGS, RULES, st.integers(0, 1000))
def test_a_promise_counts_and_is_kept(
    said: dict[str, BrokerReport], config: LoadConfig, rules: Rules, draw: int
) -> None:
    balancing = Balancing(config)
    balancing.update(said, {}, 0.0)
    bundle = "a/x/0xffffff00_0xffffffff"
    broker = balancing.assign(bundle, rules, 0.0, draw)
    assert broker is not None
    assert bundle in balancing.cluster().held(broker)
    balancing.see(said)
    assert bundle in balancing.cluster().held(broker)
    balancing.update(said, {}, 61.0)
    assert bundle not in balancing.cluster().held(broker)
    balancing.promise(bundle, broker, 61.0)
    balancing.update({}, {}, 62.0)
    assert balancing.assign(bundle, rules, 62.0, draw) is None


@given(reports(), CONFIGS, st.dictionaries(st.sampled_from(NAMESPACES), st.integers(1, 8)))
def test_splits_keep_the_limits(said: dict[str, BrokerReport], config: LoadConfig, counts: dict[str, int]) -> None:
    cluster = cluster_of(said)
    found = splits(cluster, counts, config)
    after = dict(counts)
    for split in found:
        after[namespace_of(split.bundle)] += 1
        assert said[split.broker].stats[split.bundle].topics >= 2
    assert all(after[name] <= max(config.namespace_bundles_max, counts[name]) for name in counts)
    due = {
        name
        for report in said.values()
        for name, one in report.stats.items()
        if one.topics >= 2
        and int(name[-8:], 16) - int(name[-19:-11], 16) > 1
        and (
            one.topics > config.bundle_topics_max
            or one.producers + one.consumers > config.bundle_sessions_max
            or one.rates.messages > config.bundle_messages_max
            or one.rates.bytes > config.bundle_mb_max << 20
        )
    }
    assert {split.bundle for split in found} <= due
    for name in due - {split.bundle for split in found}:
        namespace = namespace_of(name)
        assert namespace not in counts or after[namespace] >= config.namespace_bundles_max


@given(reports(), RULES)
def test_what_may_leave_has_somewhere_to_go(said: dict[str, BrokerReport], rules: Rules) -> None:
    cluster = cluster_of(said)
    for broker, report in said.items():
        for bundle in report.stats:
            if may_leave(bundle, broker, cluster, rules):
                assert set(permitted(bundle, cluster, rules)) - {broker}


@given(st.binary(max_size=30))
def test_a_line_that_is_none_of_a_trace_is_named(line: bytes) -> None:
    try:
        decode_round("line 7", line)
    except CorruptionError as error:
        told = str(error)
    else:
        return
    assert told.startswith("line 7")


def test_histories_begin_with_what_an_operator_or_a_leader_before_knew() -> None:
    known = BundleData().with_sample(BundleStats(LoadRates(8.0, 0.0, 0.0, 0.0), topics=3))
    bundle = "a/x/0x00000000_0xffffffff"
    said = {"b1:1": BrokerReport(stats={bundle: BundleStats(LoadRates(4.0))})}
    balancing = Balancing(LoadConfig())
    assert balancing.unseen(said) == {bundle}
    balancing.update(said, {bundle: known}, 0.0)
    assert balancing.bundles[bundle].long.rates.messages_in == 6.0
    assert balancing.unseen(said) == set()


@given(
    reports(), CONFIGS, RULES, st.lists(st.tuples(st.integers(0, 11), st.integers(0, 9), st.booleans()), max_size=12)
)
def test_many_bundles_are_placed_as_if_each_were_the_first_that_is_asked_for(
    said: dict[str, BrokerReport], config: LoadConfig, rules: Rules, steps: list[tuple[int, int, bool]]
) -> None:
    """What is counted as bundles come and go is what would be counted anew."""
    followed, anew = Balancing(config), Balancing(config)
    for one in (followed, anew):
        one.update(said, {}, 0.0)
    known = sorted({bundle for report in said.values() for bundle in report.stats})
    bundles = [*known, *(f"a/x/0x{number:08x}_0x{number + 1:08x}" for number in range(12))][:12]
    for index, draw, is_seen in steps:
        bundle = bundles[index % len(bundles)]
        # As if nothing had been asked before.
        anew._now = None
        if is_seen:
            followed.see(said)
        assert followed.assign(bundle, rules, 0.0, draw) == anew.assign(bundle, rules, 0.0, draw)
    for one in (followed.cluster(), followed._now or followed.cluster()):
        for broker in one.brokers:
            held = one.held(broker)
            long = sum(one.data(bundle).long.rates.messages for bundle in held)
            assert abs(one.long_messages(broker) - long) <= 1e-5 * (1 + len(held))
            to_come = sum(one.data(bundle).topics for bundle in held if bundle not in said[broker].stats)
            assert one.topics(broker) == said[broker].topics + to_come
            for namespace in NAMESPACES:
                assert one.namespace_bundles(namespace)[broker] == sum(namespace_of(each) == namespace for each in held)
