"""Documents of load come back as they were, whatever else is in them; damage is named and never an answer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.load_rules.histories import (
    BrokerAverages,
    BundleData,
    History,
    averages_of,
    decode_averages,
    decode_bundle_data,
    decode_quota,
    encode_averages,
    encode_bundle_data,
)
from geminga.broker.load_rules.isolation import Isolation, decode_domain, decode_isolation
from geminga.broker.load_rules.members import is_bundle_name, namespace_of
from geminga.broker.load_rules.reports import BundleStats, HostUsage, LoadRates, Usage, decode_report, encode_report
from geminga.model.errors import CorruptionError
from geminga.model.limits import METADATA_VALUE_BYTES_MAX

AMOUNTS = st.floats(0, 1e12)
RATES = st.builds(LoadRates, *[AMOUNTS] * 4)
COUNTS = st.integers(0, 1 << 31)
STATS = st.builds(BundleStats, RATES, *[COUNTS] * 4)
USAGE = st.builds(HostUsage, *[st.builds(Usage, AMOUNTS, AMOUNTS)] * 5)
BUNDLES = st.builds(
    "{}/{}/0x{:08x}_0x{:08x}".format,
    st.sampled_from(["public", "a b", "ü"]),
    st.sampled_from(["default", "x-y"]),
    *[st.integers(0, 0xFFFFFFFF)] * 2,
)
HISTORIES = st.integers(1, 1000).flatmap(lambda most: st.builds(History, st.just(most), st.integers(0, most), RATES))
DATA = st.builds(BundleData, HISTORIES, HISTORIES, COUNTS)


@given(USAGE, st.dictionaries(BUNDLES, STATS, max_size=5), st.sets(BUNDLES, max_size=3), st.integers(0, 1 << 45))
def test_reports_come_back_and_keep_how_a_broker_is_reached(
    usage: HostUsage, stats: dict[str, BundleStats], before: set[str], now_ms: int
) -> None:
    registration = {"webServiceUrl": "http://b:1", "persistentTopicsEnabled": False, "later": {"x": 1}, "none": None}
    value = encode_report(registration, usage, stats, now_ms=now_ms, bundles_before=before)
    report = decode_report("/p", value)
    assert (report.usage, report.stats, report.updated_at_ms) == (usage, stats, now_ms)
    assert (report.web_url, report.takes_persistent, report.takes_non_persistent) == ("http://b:1", False, True)
    document = json.loads(value)
    assert document["later"] == {"x": 1}
    assert "none" not in document
    assert document["bundles"] == sorted(stats)
    assert set(document["lastBundleGains"]) == set(stats) - before
    assert set(document["lastBundleLosses"]) == before - set(stats)
    assert document["numTopics"] == sum(one.topics for one in stats.values())
    assert math.isclose(document["msgRateIn"], sum(one.rates.messages_in for one in stats.values()))


def test_report_of_more_bundles_than_a_node_holds_has_the_busiest() -> None:
    """It was refused as too large; once its session had ended, the broker could not become a member again."""
    names = [f"public/ns-{number}/0x00000000_0x40000000" for number in range(10_000)]
    stats = {
        name: BundleStats(LoadRates(1.5, 1.5, 1000.0 + number, 1e-9), 1, 1, 1, 1) for number, name in enumerate(names)
    }
    value = encode_report({"webServiceUrl": "http://b:1"}, HostUsage(), stats, now_ms=1, bundles_before=["a/b/0x0_0x1"])
    assert len(value) < METADATA_VALUE_BYTES_MAX * 3 // 4
    told = decode_report("/p", value).stats
    assert 2000 < len(told) < len(stats)
    assert set(told) == set(names[-len(told) :])
    document = json.loads(value)
    assert (document["webServiceUrl"], document["numBundles"], document["numTopics"]) == ("http://b:1", 10_000, 10_000)
    assert document["bundles"] == sorted(told)


@given(DATA)
def test_bundle_data_come_back(data: BundleData) -> None:
    assert decode_bundle_data("/p", encode_bundle_data(data)) == data


@given(st.builds(BrokerAverages, RATES, RATES))
def test_averages_come_back(averages: BrokerAverages) -> None:
    assert decode_averages("/p", encode_averages(averages)) == averages


@given(st.lists(RATES, min_size=1, max_size=30), st.integers(1, 12))
def test_a_history_is_the_mean_of_few_samples_and_forgets_slowly(samples: list[LoadRates], most: int) -> None:
    history = History(most)
    for sample in samples:
        history = history.with_sample(sample)
    assert history.samples == min(len(samples), most)
    for member, mean in zip(range(4), history.rates, strict=True):
        values = [sample[member] for sample in samples]
        assert min(values) <= mean * (1 + 1e-9) + 1e-6
        assert mean <= max(values) * (1 + 1e-9) + 1e-6
        if len(samples) <= most:
            assert math.isclose(mean, sum(values) / len(values), rel_tol=1e-9, abs_tol=1e-6)


@given(st.dictionaries(BUNDLES, DATA, max_size=4))
def test_averages_of_a_broker_are_the_sums_of_its_bundles(data: dict[str, BundleData]) -> None:
    averages = averages_of(data, data)
    assert math.isclose(averages.long.messages, sum(one.long.rates.messages for one in data.values()))
    assert math.isclose(averages.short.bytes, sum(one.short.rates.bytes for one in data.values()))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = [
    *["cpu", "lastStats", "webServiceUrl", "persistentTopicsEnabled", "lastUpdate", "shortTermData", "longTermData"],
    *["topics", "maxSamples", "numSamples", "msgRateIn", "shortTermMsgRateIn", "bandwidthIn", "brokers", "usage"],
    *["namespaces", "primary", "secondary", "auto_failover_policy", "policy_type", "parameters", "min_limit"],
]
DOCUMENTS = st.dictionaries(
    st.sampled_from(MEMBERS), JSON | st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=3), max_size=4
)


@given(st.one_of(st.binary(max_size=20), DOCUMENTS.map(lambda document: json.dumps(document).encode())))
def test_damage_is_named(value: bytes) -> None:
    for decode in (
        decode_report,
        decode_bundle_data,
        decode_averages,
        decode_quota,
        decode_isolation,
        decode_domain,
    ):
        assert _complaint(decode, value) in ("", "/where/it/is")


def _complaint(decode: Callable[[str, bytes], object], value: bytes) -> str:
    """The node that the error names; nothing without an error."""
    try:
        decode("/where/it/is", value)
    except CorruptionError as error:
        return re.findall(r"/where/it/is", str(error))[0]
    return ""


@given(st.text(max_size=12), st.text(max_size=12))
def test_no_bundle_name_leads_out_of_its_directory(first: str, second: str) -> None:
    for name in (f"{first}/{second}/0x0_0x1", f"{first}/../0x0_0x1", f"../{second}/0x0_0x1", f"{first}/{second}"):
        if is_bundle_name(name):
            parts = name.split("/")
            assert len(parts) == 3
            assert not {"", ".", ".."} & set(parts)
            assert "\x00" not in name
            assert namespace_of(name) == "/".join(parts[:2])


def test_reports_of_pulsar_4_2_4_are_read() -> None:
    value = (
        b'{"webServiceUrl":"http://b1:8080","pulsarServiceUrl":"pulsar://b1:6650","persistentTopicsEnabled":true,'
        b'"nonPersistentTopicsEnabled":true,"cpu":{"usage":35.5,"limit":200.0},"memory":{"usage":100.0,"limit":1024.0},'
        b'"directMemory":{"usage":1.0,"limit":2.0},"bandwidthIn":{"usage":3.0,"limit":4.0},"bandwidthOut":{"usage":5.0,'
        b'"limit":6.0},"msgThroughputIn":0.0,"msgThroughputOut":0.0,"msgRateIn":12.5,"msgRateOut":0.0,'
        b'"lastUpdate":1760000000000,"lastStats":{"public/default/0x00000000_0x40000000":{"msgRateIn":12.5,'
        b'"msgThroughputIn":0.0,"msgRateOut":0.0,"msgThroughputOut":0.0,"consumerCount":0,"producerCount":0,"topics":3,'
        b'"cacheSize":7}},"numTopics":3,"numBundles":1,"numConsumers":0,"numProducers":0,'
        b'"bundles":["public/default/0x00000000_0x40000000"],"lastBundleGains":["public/default/0x00000000_0x40000000"],'
        b'"lastBundleLosses":[],"protocols":{},"advertisedListeners":{},"startTimestamp":1795541163938,'
        b'"maxResourceUsage":0.8333332538604736,"loadReportType":"LocalBrokerData"}'
    )
    report = decode_report("/p", value)
    assert report.stats == {
        "public/default/0x00000000_0x40000000": BundleStats(LoadRates(12.5), topics=3, cache_bytes=7)
    }
    assert math.isclose(report.usage.largest_share(), 5 / 6)
    registration = {key: json.loads(value)[key] for key in ("webServiceUrl", "pulsarServiceUrl", "startTimestamp")}
    again = json.loads(encode_report(registration, report.usage, report.stats, now_ms=report.updated_at_ms))
    theirs = json.loads(value)
    assert {key: again[key] for key in theirs if key in again and key != "maxResourceUsage"} == {
        key: theirs[key] for key in theirs if key in again and key != "maxResourceUsage"
    }
    assert theirs.keys() - again.keys() == {
        *["persistentTopicsEnabled", "nonPersistentTopicsEnabled", "protocols", "advertisedListeners"]
    }


def isolation(**policies: dict[str, object]) -> Isolation:
    return decode_isolation("/p", json.dumps(policies).encode())


def policy(namespaces: str, primary: str, secondary: str, least: int) -> dict[str, object]:
    failover = {"policy_type": "min_available", "parameters": {"min_limit": str(least), "usage_threshold": "100"}}
    return {
        "namespaces": [namespaces],
        "primary": [primary],
        "secondary": [secondary],
        "auto_failover_policy": failover,
    }


def test_what_can_not_be_read_of_a_policy_is_left_out_and_the_others_hold() -> None:
    good, other = policy("tenant/.*", "a[0-9]", "b[0-9]", 1), policy("other/.*", "c1", "", 1)
    brokers = ["a1:8080", "a2:8080", "b1:8080", "c1:8080"]
    # A look ahead is Java's, and not RE2's.
    half = {**other, "namespaces": ["(?=x)y", "other/.*"], "primary": ["c1", "(?!c)"]}
    found = isolation(p=good, q=half)
    assert [problem.partition(":")[0] for problem in found.problems] == ["metadata node /p"] * 2
    assert all("policy 'q'" in problem and "RE2" in problem for problem in found.problems)
    assert found.brokers_for("tenant/ns", brokers) == ["a1:8080", "a2:8080"]
    assert found.brokers_for("other/ns", brokers) == ["c1:8080"]
    for broken in ({}, {**other, "primary": 3}, {**other, "auto_failover_policy": {"policy_type": "x"}}, []):
        found = isolation(p=broken, q=good)
        assert found.problems[0].startswith("policy 'p' is left out: ")
        assert len(found.problems) == 1
        assert found.brokers_for("tenant/ns", brokers) == ["a1:8080", "a2:8080"]
        assert found.brokers_for("other/ns", brokers) == ["b1:8080", "c1:8080"]


def test_isolated_namespaces_go_to_their_brokers_and_others_elsewhere() -> None:
    found = isolation(p=policy("tenant/.*", "a[0-9]", "b[0-9]", 1))
    brokers = ["a1:8080", "a2:8080", "b1:8080", "c1:8080"]
    assert found.brokers_for("tenant/ns", brokers) == ["a1:8080", "a2:8080"]
    assert found.brokers_for("tenant/ns", brokers[2:]) == ["b1:8080"]
    assert found.brokers_for("other/ns", brokers) == ["b1:8080", "c1:8080"]
    assert found.brokers_for("mytenant/ns", brokers) == ["b1:8080", "c1:8080"]
    assert isolation(p=policy("tenant/.*", "a1", "b1", 2)).brokers_for("tenant/ns", brokers) == ["a1:8080", "b1:8080"]
