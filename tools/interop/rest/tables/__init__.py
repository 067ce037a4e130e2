"""The tables, by the module that holds each."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Story
from tools.interop.rest.tables import (
    brokers,
    clusters,
    common,
    messages,
    namespace_policies,
    namespaces,
    partitions,
    schemas,
    subscriptions,
    tenants,
    topic_policies,
    topics,
    unbuilt,
)

#: In this order.
TABLES: Final[dict[str, list[Story]]] = {
    module.__name__.rpartition(".")[2]: module.STORIES
    for module in (
        *(brokers, clusters, tenants, namespaces, namespace_policies, common),
        *(topics, partitions, subscriptions, messages, schemas, topic_policies, unbuilt),
    )
}
