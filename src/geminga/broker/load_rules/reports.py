"""``/loadbalance/brokers/HOST:PORT``: what a broker says of its load, as Pulsar's ``LocalBrokerData``. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from geminga.broker.core.coercion import Document, Json, decode_document, encode_document
from geminga.broker.load_rules.members import (
    amount,
    is_bundle_name,
    part,
    sorted_texts,
    text,
    truth,
    whole,
)

BROKERS_PATH: Final = "/loadbalance/brokers"
#: The only one whose documents these are.
MODULAR_MANAGER: Final = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
#: Of a report, bytes. A store refuses nodes of more than 1 MiB, and this one makes a broker a member of its cluster.
REPORT_BYTES_MAX: Final = 768 * 1024
#: Of what a larger one says of single bundles: some 2,000 of them.
BUNDLES_BYTES_MAX: Final = 640 * 1024


def report_path(broker: str) -> str:
    """Its ephemeral node; ``broker`` is its id, ``host:port`` of its web service."""
    return f"{BROKERS_PATH}/{broker}"


class LoadRates(NamedTuple):
    """Per second: messages, and bytes, that come in and go out."""

    messages_in: float = 0.0
    messages_out: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0

    @property
    def messages(self) -> float:
        """In and out."""
        return self.messages_in + self.messages_out

    @property
    def bytes(self) -> float:
        """In and out."""
        return self.bytes_in + self.bytes_out

    def plus(self, other: LoadRates) -> LoadRates:
        """Both together."""
        return LoadRates(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


#: Of a bundle that was never seen.
UNSEEN_RATES: Final = LoadRates(50.0, 50.0, 50_000.0, 50_000.0)


def sum_of(rates: Iterable[LoadRates]) -> LoadRates:
    """All together."""
    total = LoadRates()
    for one in rates:
        total = total.plus(one)
    return total


class BundleStats(NamedTuple):
    """What a bundle carried lately: Pulsar's ``NamespaceBundleStats``."""

    rates: LoadRates = LoadRates()
    consumers: int = 0
    producers: int = 0
    topics: int = 0
    #: Bytes kept for readers.
    cache_bytes: int = 0


class Usage(NamedTuple):
    """How much of something is in use, and how much there is; 0: nobody knows."""

    usage: float = 0.0
    limit: float = 0.0

    @property
    def share(self) -> float:
        """0 to 1 and above; 0 where the limit is not known."""
        return self.usage / self.limit if self.limit > 0 else 0.0


class Weights(NamedTuple):
    """How much each share counts; memory does not."""

    cpu: float = 1.0
    direct_memory: float = 0.0
    bandwidth_in: float = 1.0
    bandwidth_out: float = 1.0


#: Every share as it is.
EVEN_WEIGHTS: Final = Weights(1.0, 1.0, 1.0, 1.0)


class HostUsage(NamedTuple):
    """Of the machine that a broker runs on."""

    #: Percent, 100 for each CPU.
    cpu: Usage = Usage()
    #: MiB.
    memory: Usage = Usage()
    direct_memory: Usage = Usage()
    #: kbit/s.
    bandwidth_in: Usage = Usage()
    bandwidth_out: Usage = Usage()

    def largest_share(self, weights: Weights = EVEN_WEIGHTS) -> float:
        """Of what counts, 0 to 1 and above."""
        shares = (self.cpu, self.direct_memory, self.bandwidth_in, self.bandwidth_out)
        return max(usage.share * weight for usage, weight in zip(shares, weights, strict=True))


class BrokerReport(NamedTuple):
    """What a broker said of itself, as far as decisions need it."""

    usage: HostUsage = HostUsage()
    #: By bundle.
    stats: Mapping[str, BundleStats] = MappingProxyType({})
    takes_persistent: bool = True
    takes_non_persistent: bool = True
    web_url: str = ""
    version: str = ""
    #: Class name; empty: not said.
    manager: str = ""
    #: ms since the epoch.
    updated_at_ms: int = 0

    @property
    def rates(self) -> LoadRates:
        """Of all its bundles."""
        return sum_of(one.rates for one in self.stats.values())

    @property
    def topics(self) -> int:
        """Loaded there."""
        return sum(one.topics for one in self.stats.values())


_USAGES: Final = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")
_RATES: Final = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")


def decode_rates(path: str, document: Mapping[str, Json]) -> LoadRates:
    """The four rates of a document. Raises CorruptionError."""
    return LoadRates(*(amount(path, document, name) for name in _RATES))


def rates_members(rates: LoadRates) -> Document:
    """The inverse of :func:`decode_rates`."""
    return dict(zip(_RATES, rates, strict=True))


def decode_report(path: str, value: bytes) -> BrokerReport:
    """Raises CorruptionError naming the path. Bundles whose names are none are passed over."""
    return report_of(path, decode_document(path, value))


def report_of(path: str, document: Mapping[str, Json]) -> BrokerReport:
    """The same of a document that was read already."""
    usages: list[Usage] = []
    for name in _USAGES:
        usage = part(path, document, name)
        usages.append(Usage(amount(path, usage, "usage"), amount(path, usage, "limit")))
    all_stats = part(path, document, "lastStats")
    stats = {name: _stats(path, part(path, all_stats, name)) for name in all_stats if is_bundle_name(name)}
    return BrokerReport(
        HostUsage(*usages),
        stats,
        truth(path, document, "persistentTopicsEnabled", default=True),
        truth(path, document, "nonPersistentTopicsEnabled", default=True),
        text(path, document, "webServiceUrl"),
        text(path, document, "brokerVersionString"),
        text(path, document, "loadManagerClassName"),
        whole(path, document, "lastUpdate"),
    )


def _stats(path: str, document: Mapping[str, Json]) -> BundleStats:
    counts = [whole(path, document, name) for name in ("consumerCount", "producerCount", "topics", "cacheSize")]
    return BundleStats(decode_rates(path, document), *counts)


def _stats_members(stats: BundleStats) -> Document:
    counts: Document = {"consumerCount": stats.consumers, "producerCount": stats.producers}
    return {**rates_members(stats.rates), **counts, "topics": stats.topics, "cacheSize": stats.cache_bytes}


def encode_report(
    registration: Mapping[str, Json],
    usage: HostUsage,
    stats: Mapping[str, BundleStats],
    *,
    now_ms: int,
    bundles_before: Iterable[str] = (),
) -> bytes:
    """A broker's document with its load: ``registration`` has the members that say how it is reached, and stays.

    ``bundles_before``: those of the document that this one takes the place of. Where a node has no room for all
    bundles, the busiest are in it, and none of those that came or went: sums and counts are of all of them.
    """
    before = set(bundles_before)
    load: Document = {name: {"usage": one.usage, "limit": one.limit} for name, one in zip(_USAGES, usage, strict=True)}
    load.update(rates_members(sum_of(one.rates for one in stats.values())))
    load["lastUpdate"] = now_ms
    load["numTopics"] = sum(one.topics for one in stats.values())
    load["numBundles"] = len(stats)
    load["numConsumers"] = sum(one.consumers for one in stats.values())
    load["numProducers"] = sum(one.producers for one in stats.values())
    load["maxResourceUsage"] = usage.largest_share()
    load["loadReportType"] = "LocalBrokerData"
    load["lastStats"] = {bundle: _stats_members(one) for bundle, one in sorted(stats.items())}
    load["bundles"] = sorted_texts(stats)
    load["lastBundleGains"] = sorted_texts(stats.keys() - before)
    load["lastBundleLosses"] = sorted_texts(before - stats.keys())
    value = encode_document({**registration, **load})
    if len(value) <= REPORT_BYTES_MAX:
        return value
    told = _busiest(stats, BUNDLES_BYTES_MAX)
    load["lastStats"] = {bundle: _stats_members(stats[bundle]) for bundle in sorted(told)}
    load["bundles"] = sorted_texts(told)
    load["lastBundleGains"] = load["lastBundleLosses"] = []
    return encode_document({**registration, **load})


def _busiest(stats: Mapping[str, BundleStats], bytes_max: int) -> Sequence[str]:
    """As many bundles as have their places in no more bytes."""
    told: list[str] = []
    left = bytes_max
    for bundle in sorted(stats, key=lambda name: (-stats[name].rates.bytes, -stats[name].rates.messages, name)):
        left -= 2 * _text_bytes(bundle) + len(encode_document(_stats_members(stats[bundle])))
        if left < 0:
            break
        told.append(bundle)
    return told


def _text_bytes(text: str) -> int:
    """Of a text in a document, at most, with what stands between it and the next."""
    return len(json.dumps(text).encode()) + 2
