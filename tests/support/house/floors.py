"""The floors of the product: which folder stands on which, and which folders are pure.

A folder is its direct modules, together with those of its folder ``core``. It may import, by type or at run time, what
stands below it in :data:`FLOORS` and nothing above: so no folders form a circle. ``tests/tidy/test_tidy_layers.py``
holds it, as it holds that the packages import as :data:`support.house.tidy_rules.LAYERS` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from support.house.source_tree import SourceModule, imports_of

#: Lowest first; ``""`` is the package itself.
FLOORS: Final = (
    "version",
    "model",
    "runtime.sockets",
    "runtime",
    "runtime.tls",
    "sim",
    "wire",
    "wire.pulsar.batches",
    "wire.pulsar",
    "wire.bookkeeper",
    "wire.managed_ledger",
    "security",
    "entry_filters",
    "metadata",
    "metadata.socket",
    "metadata.zookeeper",
    "lake",
    "admin.calls",
    "admin",
    "admin.blocking",
    "client.rules",
    "client.consumer_rules",
    "client.producer_rules",
    "client._api",
    "client._transport",
    "client.failover",
    "client.schema",
    "client._messages",
    "client._consuming",
    "client._producing",
    "client",
    "client.blocking",
    "spark.rules",
    "spark.process",
    "spark.source_rules",
    "spark.decoding",
    "spark.source",
    "spark.sink_rules",
    "spark.sink",
    "spark",
    "spark.pipelines",
    "bookie",
    "bookie.serving",
    "bookkeeper",
    "bookkeeper.remote",
    "replication",
    "managed_ledger.rules",
    "managed_ledger.shared",
    "managed_ledger.log",
    "managed_ledger.cursor",
    "managed_ledger.offload",
    "managed_ledger",
    "transaction",
    "broker",
    "broker.access",
    "broker.core.compaction",
    "broker.core.delayed",
    "broker.core.dispatch",
    "broker.filters",
    "broker.ownership",
    "broker.load_rules",
    "broker.load",
    "broker.schema",
    "broker.compacted",
    "broker.subscription",
    "broker.policies",
    "broker.configuration",
    "broker.authentication",
    "broker.resources",
    "broker.publishing",
    "broker.groups",
    "broker.topic",
    "broker.admission",
    "broker.connection",
    "broker.system_topics",
    "broker.peers",
    "broker.compaction",
    "broker.geo",
    "broker.synchronization",
    "broker.shadow",
    "broker.transactions",
    "broker.upkeep",
    "broker.registry",
    "broker.administration",
    "broker.handlers",
    "broker.statistics",
    "broker.composition",
    "broker.websocket",
    "broker.rest.calls",
    "broker.rest.cluster_routes",
    "broker.rest.http",
    "broker.rest.message_routes",
    "broker.rest.namespace_routes",
    "broker.rest.topic_routes",
    "broker.rest",
    "proxy",
    "app",
    "app.configuration",
    "app.lifecycle",
    "app.storage",
    "app.local",
    "app.handles",
    "app.console",
    "app.console.reading",
    "app.console.acts",
    "app.console.pages",
    "app.console.serving",
    "app.servers.web",
    "app.servers.telemetry",
    "app.servers",
    "app.commands",
    "app.administration",
    "app.proxy",
    "app.container",
    "app.testing",
    "",
)
#: Folders that reach no world: no loop, clock, randomness, file. By name, so that a renamed one is missed.
PURE: Final = frozenset(
    [
        "app.configuration.core",
        "app.console.core",
        "app.container.core",
        "app.handles.core",
        "app.lifecycle.core",
        "app.local.core",
        "app.servers.core",
        "app.storage.core",
        "bookie.core",
        "bookkeeper.core",
        "broker.access.core",
        "broker.connection.core",
        "broker.core",
        "broker.core.compaction",
        "broker.core.delayed",
        "broker.core.dispatch",
        "broker.geo.core",
        "broker.load_rules",
        "broker.ownership.core",
        "broker.policies.core",
        "broker.rest.calls.core",
        "broker.rest.message_routes.core",
        "broker.schema.core",
        "broker.synchronization.core",
        "broker.websocket.core",
        "client.consumer_rules",
        "client.producer_rules",
        "client.rules",
        "lake.core",
        "managed_ledger.rules",
        "metadata.core",
        "proxy.core",
        "replication.core",
        "runtime.core",
        "security",
        "spark.pipelines.core",
        "spark.rules",
        "spark.sink_rules",
        "spark.source_rules",
        "transaction.core",
    ]
)

#: Modules of one folder.
MODULES_MAX: Final = 25


def is_pure(folder: str) -> bool:
    """Whether a folder, ``geminga.broker.core``, must reach no world: those of :data:`PURE`, and ``wire``."""
    name = folder.removeprefix("geminga.")
    return name in PURE or name.split(".")[0] == "wire"


def folder_of(module: SourceModule) -> str:
    """``broker.topic`` for ``geminga.broker.topic.base``; a folder ``core`` counts with the one above it."""
    name = module.name if module.is_package_init else module.name.rpartition(".")[0]
    return name.removeprefix("geminga").removeprefix(".").removesuffix(".core")


def floor_violations(
    modules: Iterable[SourceModule], floors: tuple[str, ...] = FLOORS, pure: frozenset[str] = PURE
) -> list[str]:
    """Folders that are not in the table, entries of it that are no folders, and imports that point up."""
    by_name = {module.name: module for module in modules if not module.name.startswith("pyspark_")}
    known = frozenset(by_name)
    folders = {name: folder_of(module) for name, module in by_name.items()}
    rank = {folder: number for number, folder in enumerate(floors)}
    found = [f"{folder!r} is in the table and is no folder" for folder in floors if folder not in folders.values()]
    found += [f"{folder!r} is not in the table" for folder in sorted(set(folders.values()) - rank.keys())]
    found += [
        f"{folder!r} is to be pure and is no folder" for folder in sorted(pure) if f"geminga.{folder}" not in by_name
    ]
    if found:
        return found
    for name, module in by_name.items():
        for imported in imports_of(module, known):
            target = folders.get(imported.target)
            if target is not None and rank[target] > rank[folders[name]]:
                found.append(
                    f"{name}:{imported.line} imports {imported.target}: {target!r} stands above {folders[name]!r}"
                )
    return found


def crowded_folders(modules: Iterable[SourceModule], most: int = MODULES_MAX) -> Mapping[str, int]:
    """Folders with more modules than ``most``, the package's own not counted."""
    counts: dict[str, int] = {}
    for module in modules:
        if not module.is_package_init:
            folder = module.name.rpartition(".")[0]
            counts[folder] = counts.get(folder, 0) + 1
    return {folder: count for folder, count in counts.items() if count > most}
