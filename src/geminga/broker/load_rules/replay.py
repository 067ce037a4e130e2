"""A trace of load, replayed through the leader's decisions: what would move, and who would carry what. Pure.

Brokers are as busy as what they carry: messages for their CPU, bytes for their network, each in parts of what a broker
is said to be able to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from geminga.broker.core.coercion import Document
from geminga.broker.load_rules.balancing import Balancing
from geminga.broker.load_rules.cluster_load import Move, Rules
from geminga.broker.load_rules.config import LoadConfig
from geminga.broker.load_rules.members import amount, is_bundle_name, namespace_of, part, text, whole
from geminga.broker.load_rules.reports import (
    BrokerReport,
    BundleStats,
    HostUsage,
    LoadRates,
    Usage,
    decode_rates,
    sum_of,
)
from geminga.broker.load_rules.splitting import Split
from geminga.model.errors import CorruptionError

#: What a trace may hold at once.
TRACE_BROKERS_MAX: Final = 1_000
TRACE_BUNDLES_MAX: Final = 100_000
_LINE_MEMBERS: Final = frozenset({"brokers", "bundles", "owners"})


class Capacity(NamedTuple):
    """What a broker can carry, in and out together."""

    messages: float = 100_000.0
    bytes: float = 100e6


class TraceRound(NamedTuple):
    """One line of a trace: what is otherwise than in the line before."""

    #: All brokers that are there from now on; None: as before.
    brokers: Mapping[str, Capacity] | None = None
    #: What bundles carry from now on; None: the bundle is gone.
    bundles: Mapping[str, BundleStats | None] = MappingProxyType({})
    #: Bundle to the broker that has it from now on.
    owners: Mapping[str, str] = MappingProxyType({})


def decode_round(where: str, line: bytes) -> TraceRound:
    """One line of a trace; ``where`` begins the text of the CorruptionError that it raises."""
    try:
        return _decoded(where, line)
    except CorruptionError as error:
        raise CorruptionError(error.args[0].removeprefix("metadata node ")) from error


def _decoded(where: str, line: bytes) -> TraceRound:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"{where} is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise CorruptionError(f"{where} is a JSON object with brokers, bundles or owners, not {document!r:.40}")
    unknown = sorted(document.keys() - _LINE_MEMBERS)
    if unknown:
        raise CorruptionError(f"{where}: a line has brokers, bundles and owners, not {unknown[0]}")
    brokers = {
        name: _capacity(where, part(where, part(where, document, "brokers"), name))
        for name in part(where, document, "brokers")
    }
    said = part(where, document, "bundles")
    bundles: dict[str, BundleStats | None] = {}
    for name, value in said.items():
        if not is_bundle_name(name):
            raise CorruptionError(f"{where}: a bundle is tenant/namespace/0x00000000_0x40000000, not {name!r:.80}")
        bundles[name] = None if value is None else _stats(where, part(where, said, name))
    owners_said = part(where, document, "owners")
    owners = {name: text(where, owners_said, name) for name in owners_said}
    if len(brokers) > TRACE_BROKERS_MAX or len(bundles) > TRACE_BUNDLES_MAX:
        raise CorruptionError(f"{where}: more than {TRACE_BROKERS_MAX} brokers or {TRACE_BUNDLES_MAX} bundles")
    return TraceRound(brokers if document.get("brokers") is not None else None, bundles, owners)


def _capacity(where: str, document: Document) -> Capacity:
    messages, bytes_ = amount(where, document, "messages"), amount(where, document, "bytes")
    return Capacity(messages or Capacity().messages, bytes_ or Capacity().bytes)


def _stats(where: str, document: Document) -> BundleStats:
    consumers, producers = whole(where, document, "consumerCount"), whole(where, document, "producerCount")
    topics = whole(where, document, "topics") or 1
    return BundleStats(decode_rates(where, document), consumers, producers, topics)


class RoundOutcome(NamedTuple):
    """What one round did."""

    number: int
    moves: list[Move]
    splits: list[Split]
    #: By broker, after the moves.
    loads: dict[str, LoadRates]
    #: How many bundles each broker has then.
    bundles: dict[str, int]

    def worst(self) -> tuple[float, float]:
        """The most that a broker carries, in parts of the mean: of messages, and of bytes. 0 without load."""
        worst: list[float] = []
        for values in ([one.messages for one in self.loads.values()], [one.bytes for one in self.loads.values()]):
            total = sum(values)
            worst.append(max(values) * len(values) / total if total > 0 else 0.0)
        return worst[0], worst[1]


class Replay:
    """See the module; :meth:`step` is one round of shedding."""

    def __init__(self, config: LoadConfig, draws: Iterator[int], rules: Rules | None = None) -> None:
        self._config = config
        self._draws = draws
        self._rules = rules if rules is not None else Rules()
        self._balancing = Balancing(config)
        self._capacities: Mapping[str, Capacity] = {}
        #: By name in the trace: what it carries, and the bundles that it was split into.
        self._stats: dict[str, BundleStats] = {}
        self._pieces: dict[str, list[str]] = {}
        self._owners: dict[str, str] = {}
        self._rounds = 0

    def step(self, said: TraceRound) -> RoundOutcome:
        """Raises CorruptionError where the trace contradicts itself."""
        self._rounds += 1
        now_s = self._rounds * self._config.shedding_interval_minutes * 60.0
        self._apply(said)
        self._balancing.update(self._reports(), {}, now_s)
        self._place(now_s)
        self._balancing.update(self._reports(), {}, now_s)
        splits = self._split()
        moves: list[Move] = []
        if self._config.is_enabled and self._config.is_shedding:
            moves = self._balancing.shed(self._rules, self._draws)
        for move in moves:
            self._owners[move.bundle] = move.destination
            self._balancing.moved(move, now_s)
        reports = self._reports()
        loads = {broker: report.rates for broker, report in reports.items()}
        counts = {broker: len(report.stats) for broker, report in reports.items()}
        return RoundOutcome(self._rounds, moves, splits, loads, counts)

    def _apply(self, said: TraceRound) -> None:
        if said.brokers is not None:
            self._capacities = said.brokers
        if not self._capacities:
            raise CorruptionError("the first line of a trace names at least one broker")
        for bundle, stats in said.bundles.items():
            if stats is None:
                self._stats.pop(bundle, None)
                for piece in self._pieces.pop(bundle, ()):
                    self._owners.pop(piece, None)
            else:
                self._stats[bundle] = stats
                self._pieces.setdefault(bundle, [bundle])
        if len(self._stats) > TRACE_BUNDLES_MAX:
            raise CorruptionError(f"the trace has more than {TRACE_BUNDLES_MAX} bundles")
        for bundle, broker in said.owners.items():
            if broker not in self._capacities or bundle not in self._pieces:
                raise CorruptionError(f"the trace says that {broker} has {bundle}, and knows no such broker or bundle")
            for piece in self._pieces[bundle]:
                self._owners[piece] = broker

    def _place(self, now_s: float) -> None:
        for pieces in self._pieces.values():
            for piece in pieces:
                if self._owners.get(piece) not in self._capacities:
                    broker = self._balancing.assign(piece, self._rules, now_s, next(self._draws))
                    if broker is not None:
                        self._owners[piece] = broker

    def _split(self) -> list[Split]:
        if not self._config.is_splitting:
            return []
        counts: dict[str, int] = {}
        for bundle, pieces in self._pieces.items():
            counts[namespace_of(bundle)] = counts.get(namespace_of(bundle), 0) + len(pieces)
        splits = self._balancing.splits(counts)
        for split in splits:
            bundle = next(name for name, pieces in self._pieces.items() if split.bundle in pieces)
            lower, upper = _range(split.bundle)
            middle = lower + (upper - lower) // 2
            name = namespace_of(bundle)
            halves = [f"{name}/0x{lower:08x}_0x{middle:08x}", f"{name}/0x{middle:08x}_0x{upper:08x}"]
            index = self._pieces[bundle].index(split.bundle)
            self._pieces[bundle][index : index + 1] = halves
            owner = self._owners.pop(split.bundle)
            self._owners.update(dict.fromkeys(halves, owner))
            self._balancing.forget(split.bundle)
        return splits

    def _reports(self) -> dict[str, BrokerReport]:
        stats: dict[str, dict[str, BundleStats]] = {broker: {} for broker in self._capacities}
        for bundle, whole_stats in self._stats.items():
            for piece in self._pieces[bundle]:
                broker = self._owners.get(piece)
                if broker in stats:
                    stats[broker][piece] = _part_of(whole_stats, piece, bundle)
        return {broker: _report(held, self._capacities[broker]) for broker, held in stats.items()}


def _range(bundle: str) -> tuple[int, int]:
    lower, _, upper = bundle.rpartition("/")[2].partition("_")
    return int(lower, 16), int(upper, 16)


def _part_of(stats: BundleStats, piece: str, bundle: str) -> BundleStats:
    """What a piece carries of a bundle: as much as it has of its hashes."""
    if piece == bundle:
        return stats
    lower, upper = _range(piece)
    first, last = _range(bundle)
    share = (upper - lower) / max(last - first, 1)
    counts = [round(count * share) for count in stats[1:]]
    return BundleStats(LoadRates(*(rate * share for rate in stats.rates)), *counts)


def _report(stats: Mapping[str, BundleStats], capacity: Capacity) -> BrokerReport:
    rates = sum_of(one.rates for one in stats.values())
    usage = HostUsage(
        cpu=Usage(100 * rates.messages / capacity.messages, 100.0),
        bandwidth_in=Usage(rates.bytes_in, capacity.bytes / 2),
        bandwidth_out=Usage(rates.bytes_out, capacity.bytes / 2),
    )
    return BrokerReport(usage, stats)
