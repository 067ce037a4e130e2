"""The tables, by the module that holds each."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Story
from tools.interop.rest.tables import (
    bookies,
    brokers,
    bundles,
    clusters,
    common,
    emptying,
    http_messages,
    indexes,
    known,
    looks,
    messages,
    names,
    namespace_policies,
    namespaces,
    offload,
    operations,
    partitions,
    permissions,
    pulsar_admin,
    schemas,
    subscriptions,
    tenants,
    topic_policies,
    topics,
    transactions,
    transactions_off,
    unbuilt,
)

#: In this order.
TABLES: Final[dict[str, list[Story]]] = {
    module.__name__.rpartition(".")[2]: module.STORIES
    for module in (
        *(brokers, bookies, clusters, tenants, namespaces, bundles, namespace_policies, common),
        *(
            topics,
            partitions,
            subscriptions,
            messages,
            http_messages,
            looks,
            emptying,
            schemas,
            topic_policies,
            offload,
            operations,
            known,
            permissions,
            names,
            unbuilt,
            pulsar_admin,
        ),
        *(transactions_off, transactions, indexes),
    )
}

#: Tables whose stories are told to brokers of their own, and how these are configured.
SETTINGS: Final[dict[str, dict[str, str]]] = {
    "transactions": {"transactionCoordinatorEnabled": "true"},
    "indexes": {
        "transactionCoordinatorEnabled": "false",
        "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
    },
}
#: Of the others.
USUAL: Final = {"transactionCoordinatorEnabled": "false"}


def by_settings() -> list[tuple[dict[str, str], list[str]]]:
    """The tables that one broker is told after the other, and how it is configured."""
    groups: list[tuple[dict[str, str], list[str]]] = []
    for table in TABLES:
        settings = SETTINGS.get(table, USUAL)
        group = next((group for group in groups if group[0] == settings), None)
        if group is None:
            groups.append((settings, [table]))
        else:
            group[1].append(table)
    return groups
