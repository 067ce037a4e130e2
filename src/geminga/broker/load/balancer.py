"""Load management of one broker: it reports what it carries, and where it leads it has bundles moved and split.

It goes on reporting while a round is under way, whose steps wait for other brokers; there is one round at a time. What
can not be read or carried out now is told in the log and left for the next round. Nothing is done twice: a move counts
as made when its owner said so, and grace periods and promises are this broker's own, so a new leader begins with what
histories in metadata say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from math import sqrt
from typing import Final

from geminga.broker.load.ports import LoadPeers, StatsSource, UsageSource
from geminga.broker.load.stored_histories import StoredHistories
from geminga.broker.load_rules.balancing import Balancing
from geminga.broker.load_rules.cluster_load import Rules
from geminga.broker.load_rules.config import LoadConfig
from geminga.broker.load_rules.histories import BundleData
from geminga.broker.load_rules.isolation import (
    NO_ISOLATION,
    Isolation,
    decode_domain,
    decode_isolation,
    domains_path,
    isolation_path,
)
from geminga.broker.load_rules.members import namespace_of
from geminga.broker.load_rules.news import Said, is_news
from geminga.broker.load_rules.reports import (
    BROKERS_PATH,
    BrokerReport,
    BundleStats,
    decode_report,
    encode_report,
    report_path,
)
from geminga.broker.ownership.core.local_policies import decode_local_policies, local_policies_path
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import CorruptionError, GemingaError, MetadataError, UnavailableError
from geminga.runtime import Contained, Part, Runtime, get_logger, spawn

#: Brokers that are looked at; more are not.
BROKERS_MAX: Final = 10_000
#: Bundles that are moved, and split, in one round; the rest waits for the next.
MOVES_MAX: Final = 1_000
SPLITS_MAX: Final = 100

_log = get_logger(__name__)


class LoadBalancer:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        config: LoadConfig,
        peers: LoadPeers,
        stats: StatsSource,
        usage: UsageSource,
        *,
        cluster: str,
        part: Part | None = None,
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._config = config
        self._peers = peers
        self._stats = stats
        self._usage = usage
        self._cluster = cluster
        self._part = part
        self._histories = StoredHistories(metadata)
        self._balancing = Balancing(config)
        self._said: Said | None = None
        self._rules = Rules()
        self._next_round_s = 0.0
        self._next_histories_s = 0.0
        self._ending = asyncio.Event()
        #: Set where a wait is cut short: it ends, or its settings are others.
        self._woken = asyncio.Event()
        self._round_interval_s = self._config.shedding_interval_minutes * 60
        self._task: asyncio.Task[None] | None = None
        #: The round that is under way, or was the last.
        self._leading: asyncio.Task[None] | None = None
        #: What could not be read was told.
        self._logged: set[str] = set()
        #: What could not be read of isolation policies when they were read last.
        self._policy_problems: tuple[str, ...] = ()
        #: Since the start: moves made, brokers that gave something away in a round, splits.
        self.moves = 0
        self.brokers_relieved = 0
        self.splits = 0
        #: The same of what was refused; bundles that were given to somebody, and for which there was nobody.
        self.moves_failed = self.splits_failed = self.assigned = self.not_assigned = 0
        #: What its bundles carried at the last look.
        self.own_bundles: Mapping[str, BundleStats] = {}

    def start(self) -> None:
        """Report now, and go on; this broker is a member."""
        self._next_round_s = self._runtime.clock.monotonic() + self._config.shedding_interval_minutes * 60
        self._next_histories_s = self._runtime.clock.monotonic() + self._config.history_interval_minutes * 60
        self._task = spawn(self._run(), name="load of the cluster", part=self._part)

    async def close(self) -> None:
        """On return nothing is under way."""
        self._ending.set()
        self._woken.set()
        if self._task is not None:
            await self._task

    def settings_changed(self) -> None:
        """Intervals that were changed at run time hold from now on; everything else is read when it is needed."""
        before, self._round_interval_s = self._round_interval_s, self._config.shedding_interval_minutes * 60
        self._next_round_s += self._round_interval_s - before
        self._woken.set()

    async def read_rules(self) -> None:
        """What operators say of where bundles go, before anybody asks this broker. Raises MetadataError."""
        self._rules = Rules(await self._isolation(), {}, await self._domains())

    def assign(self, bundle: str, reports: Mapping[str, BrokerReport]) -> str | None:
        """Who of these brokers is to take a bundle that nobody has; by rules as they were read last."""
        self._balancing.see(reports)
        now_s = self._runtime.clock.monotonic()
        chosen = self._balancing.assign(bundle, self._rules, now_s, self._runtime.rng.below(1 << 30))
        if chosen is None:
            self.not_assigned += 1
        else:
            self.assigned += 1
        return chosen

    def metrics(self) -> Mapping[str, float]:
        """Of this broker's load, and of what it did as the leader, under Pulsar's names."""
        usage = self._usage()
        return {
            "pulsar_lb_cpu_usage": 100 * usage.cpu.share,
            "pulsar_lb_memory_usage": 100 * usage.memory.share,
            "pulsar_lb_directMemory_usage": 100 * usage.direct_memory.share,
            "pulsar_lb_bandwidth_in_usage": 100 * usage.bandwidth_in.share,
            "pulsar_lb_bandwidth_out_usage": 100 * usage.bandwidth_out.share,
            "pulsar_lb_unload_broker_total": self.brokers_relieved,
            "pulsar_lb_unload_bundle_total": self.moves,
            "pulsar_lb_bundles_split_total": self.splits,
        }

    def rows(self) -> Iterator[tuple[tuple[tuple[str, str], ...], Mapping[str, float]]]:
        """All that is told, with labels: how busy the brokers are, decisions by their outcome.

        Decisions are counted at the leader. A move is for load, and a split for size: there are no other reasons.
        """
        for name, value in self.metrics().items():
            kind = "bundlesSplit" if "split" in name else "bundleUnloading" if "unload" in name else "loadBalance"
            yield (("metric", kind),), {name: value}
        own = self._usage().largest_share()
        yield (("feature", "max_ema"),), {"pulsar_lb_resource_usage": own}
        shares = [report.usage.largest_share() for report in self._balancing.reports.values()]
        if shares:
            mean = sum(shares) / len(shares)
            deviation = sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))
            for name, value in (("avg", mean), ("std", deviation)):
                yield (("feature", "max_ema"), ("stat", name)), {"pulsar_lb_resource_usage_stats": value}
        for result, count in (("Success", self.assigned), ("Failure", self.not_assigned)):
            yield (("result", result),), {"pulsar_lb_assign_broker_breakdown_total": count}
        for result, moves, splits in (
            ("Success", self.moves, self.splits),
            ("Failure", self.moves_failed, self.splits_failed),
        ):
            yield (("result", result), ("reason", "Overloaded")), {"pulsar_lb_unload_broker_breakdown_total": moves}
            yield (("result", result), ("reason", "Unknown")), {"pulsar_lb_bundles_split_breakdown_total": splits}

    def bundle_rows(self) -> Iterator[tuple[tuple[tuple[str, str], ...], Mapping[str, float]]]:
        """What this broker's bundles carried when it looked last."""
        for bundle, stats in self.own_bundles.items():
            yield (
                (("bundle", bundle), ("metric", "bundle")),
                {
                    "pulsar_bundle_msg_rate_in": stats.rates.messages_in,
                    "pulsar_bundle_msg_rate_out": stats.rates.messages_out,
                    "pulsar_bundle_msg_throughput_in": stats.rates.bytes_in,
                    "pulsar_bundle_msg_throughput_out": stats.rates.bytes_out,
                    "pulsar_bundle_topics_count": stats.topics,
                    "pulsar_bundle_consumer_count": stats.consumers,
                    "pulsar_bundle_producer_count": stats.producers,
                },
            )

    async def _run(self) -> None:
        while not self._ending.is_set():
            # What breaks is done again the next time.
            with Contained(self._part, "the load of the cluster", is_last=True):
                await self._report()
            self._begin_round()
            try:
                async with asyncio.timeout(self._config.report_interval_ms / 1000):
                    await self._woken.wait()
                self._woken.clear()
            except TimeoutError:
                pass
        if self._leading is not None:
            # It may wait for an owner that does not answer, longer than a stop has time. What that was asked for holds.
            self._leading.cancel()
            await asyncio.wait([self._leading])

    async def _report(self) -> None:
        usage, stats = self._usage(), await self._stats()
        self.own_bundles = stats
        now_s = self._runtime.clock.monotonic()
        if not self._peers.is_member or not is_news(self._said, usage, stats, now_s, self._config):
            return
        before = () if self._said is None else self._said.stats
        now_ms = self._runtime.clock.wall_ms()
        self._peers.report(encode_report(self._peers.document, usage, stats, now_ms=now_ms, bundles_before=before))
        self._said = Said(usage, stats, now_s)

    def _begin_round(self) -> None:
        """If this broker leads, it is time, and none is under way."""
        now_s = self._runtime.clock.monotonic()
        if not self._peers.is_leader:
            # A round after it is elected: who led until now may be carrying out moves.
            self._next_round_s = now_s + self._config.shedding_interval_minutes * 60
            return
        if now_s < self._next_round_s or (self._leading is not None and not self._leading.done()):
            return
        self._next_round_s = now_s + self._config.shedding_interval_minutes * 60
        self._leading = spawn(self._lead(now_s), name="a round of the leader", part=self._part)

    async def _lead(self, now_s: float) -> None:
        with Contained(self._part, "the load of the cluster", is_last=True):
            try:
                await self._round(now_s)
            except MetadataError as error:
                _log.warning("load is not balanced in this round: %s", error)

    async def _round(self, now_s: float) -> None:
        reports = await self._reports()
        known = await self._histories.read(self._balancing.unseen(reports))
        self._balancing.update(reports, known, now_s)
        rules = self._rules = await self._read_rules(reports)
        if self._config.is_splitting:
            await self._split()
        if self._config.is_enabled and self._config.is_shedding:
            await self._shed(rules, now_s)
        await self._keep_histories(now_s)

    async def _reports(self) -> dict[str, BrokerReport]:
        found: dict[str, BrokerReport] = {}
        for broker in (await self._metadata.children(BROKERS_PATH))[:BROKERS_MAX]:
            node = await self._metadata.get(report_path(broker))
            if node is None:
                continue
            try:
                found[broker] = decode_report(report_path(broker), node.value)
                self._logged.discard(broker)
            except CorruptionError as error:
                # It is given nothing, and nothing is taken from it.
                self._tell(broker, error)
        return found

    async def _read_rules(self, reports: Mapping[str, BrokerReport]) -> Rules:
        groups: dict[str, str] = {}
        for namespace in {namespace_of(bundle) for report in reports.values() for bundle in report.stats}:
            path = local_policies_path(namespace)
            node = await self._metadata.get(path)
            try:
                group = None if node is None else decode_local_policies(namespace, node.value)
            except CorruptionError as error:
                self._tell(path, error)
                continue
            name = None if group is None else group.get("namespaceAntiAffinityGroup")
            if isinstance(name, str) and name.strip():
                groups[namespace] = name
        return Rules(await self._isolation(), groups, await self._domains())

    async def _isolation(self) -> Isolation:
        path = isolation_path(self._cluster)
        node = await self._metadata.get(path)
        if node is None:
            return NO_ISOLATION
        try:
            found = decode_isolation(path, node.value)
        except CorruptionError as error:
            raise MetadataError(
                f"isolation policies can not be read, and nothing moves without them: {error}"
            ) from error
        for problem in found.problems:
            if problem not in self._policy_problems:
                _log.warning("%s", problem)
        self._policy_problems = found.problems
        return found

    async def _domains(self) -> dict[str, str]:
        if not self._config.failure_domains:
            return {}
        domains: dict[str, str] = {}
        for name in await self._metadata.children(domains_path(self._cluster)):
            path = f"{domains_path(self._cluster)}/{name}"
            node = await self._metadata.get(path)
            try:
                domains.update(dict.fromkeys(() if node is None else decode_domain(path, node.value), name))
            except CorruptionError as error:
                self._tell(path, error)
        return domains

    async def _split(self) -> None:
        counts: dict[str, int] = {}
        namespaces = {namespace_of(bundle) for bundle in self._balancing.bundles}
        for namespace in sorted(namespaces):
            try:
                counts[namespace] = await self._peers.bundle_count(namespace)
            except GemingaError as error:
                _log.warning("nothing of namespace %s is split: %s", namespace, error)
        silent: set[str] = set()
        for split in self._balancing.splits(counts)[:SPLITS_MAX]:
            if self._is_over():
                return
            if split.broker in silent:
                continue
            _log.info("bundle %s of %s is split: %s", split.bundle, split.broker, split.why)
            splitting = self._peers.split(split.bundle, unload=self._config.unloads_splits)
            if not await _is_done(splitting, f"bundle {split.bundle} was not split", split.broker, silent):
                self.splits_failed += 1
                continue
            self.splits += 1
            self._balancing.forget(split.bundle)

    async def _shed(self, rules: Rules, now_s: float) -> None:
        relieved: set[str] = set()
        #: What these have waits for the next round: each request may be waited for as long as the first.
        silent: set[str] = set()
        for move in self._balancing.shed(rules, self._draws(), MOVES_MAX):
            if self._is_over():
                break
            if move.source in silent:
                continue
            _log.info("bundle %s moves from %s to %s", move.bundle, move.source, move.destination)
            # Whether or not it is known to have moved, it is left alone for a while.
            self._balancing.moved(move, now_s)
            unloading = self._peers.unload(move.bundle, move.destination)
            if not await _is_done(unloading, f"bundle {move.bundle} was not unloaded", move.source, silent):
                self.moves_failed += 1
                continue
            self.moves += 1
            relieved.add(move.source)
        self.brokers_relieved += len(relieved)

    async def _keep_histories(self, now_s: float) -> None:
        if now_s < self._next_histories_s or self._is_over():
            return
        self._next_histories_s = now_s + self._config.history_interval_minutes * 60
        cluster = self._balancing.cluster()
        await self._histories.write(cluster, self._bundles_to_keep())

    def _bundles_to_keep(self) -> dict[str, BundleData]:
        most = self._config.bundles_written_max * max(len(self._balancing.reports), 1)
        data = {
            bundle: one
            for bundle, one in self._balancing.bundles.items()
            if namespace_of(bundle) not in self._config.excluded_namespaces
        }
        if self._config.bundles_written_max <= 0:
            return data
        busiest = sorted(
            data, key=lambda bundle: (-data[bundle].long.rates.bytes, -data[bundle].long.rates.messages, bundle)
        )
        return {bundle: data[bundle] for bundle in busiest[:most]}

    def _is_over(self) -> bool:
        """Another leads now, or this broker ends."""
        return self._ending.is_set() or not self._peers.is_leader

    def _draws(self) -> Iterator[int]:
        while True:
            yield self._runtime.rng.below(1 << 30)

    def _tell(self, what: str, error: CorruptionError) -> None:
        if what not in self._logged:
            self._logged.add(what)
            _log.warning("%s", error)


async def _is_done(asked: Awaitable[None], failure: str, broker: str, silent: set[str]) -> bool:
    """Whether ``broker`` did what was asked of it; one that does not answer joins ``silent``."""
    try:
        await asked
    except GemingaError as error:
        _log.warning("%s: %s", failure, error)
        if isinstance(error, UnavailableError):
            silent.add(broker)
        return False
    return True
