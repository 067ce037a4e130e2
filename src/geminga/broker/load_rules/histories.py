"""What the leader remembers of bundles and brokers: means of what was reported, and their documents. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from geminga.broker.core.coercion import Document, Json, decode_document, encode_document
from geminga.broker.load_rules.members import AMOUNT_MAX, amount, part, whole
from geminga.broker.load_rules.reports import UNSEEN_RATES, BundleStats, LoadRates, decode_rates, rates_members, sum_of

BUNDLE_DATA_PATH: Final = "/loadbalance/bundle-data"
BROKER_AVERAGES_PATH: Final = "/loadbalance/broker-time-average"
QUOTA_PATH: Final = "/loadbalance/resource-quota"

#: Samples that a mean is over: the last minutes, and the last hours.
SHORT_SAMPLES: Final = 10
LONG_SAMPLES: Final = 1000


class History(NamedTuple):
    """The mean of some samples, which forgets slowly what is older."""

    samples_max: int
    samples: int = 0
    rates: LoadRates = UNSEEN_RATES

    def with_sample(self, rates: LoadRates) -> History:
        """With one more; the first replaces whatever was assumed before."""
        count = min(self.samples + 1, max(self.samples_max, 1))
        mean = LoadRates(*(((count - 1) * old + new) / count for old, new in zip(self.rates, rates, strict=True)))
        return self._replace(samples=count, rates=mean)


class BundleData(NamedTuple):
    """What is remembered of a bundle."""

    short: History = History(SHORT_SAMPLES)
    long: History = History(LONG_SAMPLES)
    topics: int = 0

    def with_sample(self, stats: BundleStats) -> BundleData:
        """With what was reported of it."""
        return BundleData(self.short.with_sample(stats.rates), self.long.with_sample(stats.rates), stats.topics)


#: Of which nothing is known.
UNSEEN: Final = BundleData()
#: What a quota says of rates, in the order of theirs.
_OF_QUOTA: Final = ("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut")


def bundle_data_path(bundle: str) -> str:
    """Where a bundle's are; ``bundle`` is a name that ``is_bundle_name`` lets pass."""
    return f"{BUNDLE_DATA_PATH}/{bundle}"


def broker_averages_path(broker: str) -> str:
    """Where a broker's sums are."""
    return f"{BROKER_AVERAGES_PATH}/{broker}"


def quota_path(bundle: str) -> str:
    """Where an operator says what to expect of a bundle."""
    return f"{QUOTA_PATH}/{bundle}"


def encode_bundle_data(data: BundleData) -> bytes:
    """As Pulsar writes it."""
    return encode_document(
        {"shortTermData": _history(data.short), "longTermData": _history(data.long), "topics": data.topics}
    )


def _history(history: History) -> Document:
    return {"maxSamples": history.samples_max, "numSamples": history.samples, **rates_members(history.rates)}


def decode_bundle_data(path: str, value: bytes) -> BundleData:
    """Raises CorruptionError."""
    document = decode_document(path, value)
    short = _decoded(path, part(path, document, "shortTermData"), SHORT_SAMPLES)
    long = _decoded(path, part(path, document, "longTermData"), LONG_SAMPLES)
    return BundleData(short, long, whole(path, document, "topics"))


def _decoded(path: str, document: Mapping[str, Json], samples_max: int) -> History:
    most = whole(path, document, "maxSamples") or samples_max
    return History(most, min(whole(path, document, "numSamples"), most), decode_rates(path, document))


def decode_quota(path: str, value: bytes) -> BundleData:
    """What an operator's quota lets expect, as if there had been as many samples as there can be. CorruptionError.

    More than any report may tell counts as that: it is a wish, and no fault of who measures.
    """
    document = decode_document(path, value)
    for name in _OF_QUOTA:
        given = document.get(name)
        if isinstance(given, int | float) and AMOUNT_MAX < given < math.inf:
            document = {**document, name: AMOUNT_MAX}
    rates = LoadRates(*(amount(path, document, name) for name in _OF_QUOTA))
    return BundleData(History(SHORT_SAMPLES, SHORT_SAMPLES, rates), History(LONG_SAMPLES, LONG_SAMPLES, rates))


class BrokerAverages(NamedTuple):
    """The sums of what is remembered of a broker's bundles."""

    short: LoadRates = LoadRates()
    long: LoadRates = LoadRates()


def averages_of(bundles: Iterable[str], data: Mapping[str, BundleData]) -> BrokerAverages:
    """Of a broker that has these bundles."""
    held = [data.get(bundle, UNSEEN) for bundle in bundles]
    return BrokerAverages(sum_of(one.short.rates for one in held), sum_of(one.long.rates for one in held))


def encode_averages(averages: BrokerAverages) -> bytes:
    """As Pulsar writes it."""
    document: Document = {}
    for prefix, rates in (("shortTerm", averages.short), ("longTerm", averages.long)):
        document.update({_member(prefix, name): value for name, value in rates_members(rates).items()})
    return encode_document(document)


def decode_averages(path: str, value: bytes) -> BrokerAverages:
    """Raises CorruptionError."""
    document = decode_document(path, value)
    found: list[LoadRates] = []
    for prefix in ("shortTerm", "longTerm"):
        found.append(LoadRates(*(amount(path, document, _member(prefix, name)) for name in rates_members(LoadRates()))))
    return BrokerAverages(*found)


def _member(prefix: str, name: str) -> str:
    return f"{prefix}{name[0].upper()}{name[1:]}"
