"""The groups of commands: which there are, and the commands of one, made when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from geminga.app.administration.command import Command, parsed

#: With what they are about.
GROUPS: Final = {
    "bookies": "Bookies and their racks",
    "broker-stats": "What one broker measures",
    "brokers": "Brokers: health, settings, load",
    "clusters": "Clusters and failure domains",
    "metadata-migration": "Moving metadata to another store (of Pulsar 5)",
    "namespaces": "Namespaces and their policies",
    "non-persistent": "Topics without storage",
    "ns-isolation-policy": "Which brokers serve which namespaces",
    "persistent": "Topics, as before Pulsar 2",
    "proxy-stats": "What a proxy measures",
    "resource-quotas": "What is assumed of a bundle's load",
    "resourcegroups": "Limits that namespaces share",
    "schemas": "Schemas of topics",
    "tenants": "Tenants",
    "topicPolicies": "Policies of topics",
    "topics": "Topics, subscriptions, messages",
    "transactions": "Transactions, coordinators, buffers",
}
#: Of Pulsar: for what is not built.
UNBUILT: Final = {
    "functions": "Pulsar Functions",
    "functions-worker": "Pulsar Functions",
    "sources": "Pulsar IO",
    "source": "Pulsar IO",
    "sinks": "Pulsar IO",
    "sink": "Pulsar IO",
    "packages": "the package service",
    "scalable-topics": "scalable topics of Pulsar 5",
}


@cache
def commands_of(group: str) -> Mapping[str, Command]:
    """By name; empty for a group that there is not."""
    return {command.name: command for command in _commands(group)}


def _commands(group: str) -> Iterator[Command]:
    if group in ("topics", "persistent", "non-persistent", "topicPolicies", "schemas"):
        yield from _topic_commands(group)
        return
    if group == "namespaces":
        from geminga.app.administration import rows_namespaces, rows_policies

        found = {command.name: command for command in rows_policies.namespaces()}
        yield from (found | {one.name: one for one in parsed(group, rows_namespaces.NAMESPACES)}).values()
        return
    from geminga.app.administration import rows_cluster

    rows = {
        "bookies": rows_cluster.BOOKIES,
        "broker-stats": rows_cluster.BROKER_STATS,
        "brokers": rows_cluster.BROKERS,
        "clusters": rows_cluster.CLUSTERS,
        "metadata-migration": rows_cluster.METADATA_MIGRATION,
        "ns-isolation-policy": rows_cluster.ISOLATION,
        "proxy-stats": rows_cluster.PROXY_STATS,
        "resource-quotas": rows_cluster.RESOURCE_QUOTAS,
        "resourcegroups": rows_cluster.RESOURCE_GROUPS,
        "tenants": rows_cluster.TENANTS,
        "transactions": rows_cluster.TRANSACTIONS,
    }
    yield from parsed(group, rows.get(group, ""))


def _topic_commands(group: str) -> Iterator[Command]:
    from geminga.app.administration import rows_policies, rows_topics

    rows = {
        "topics": rows_topics.TOPICS,
        "persistent": rows_topics.PERSISTENT,
        "non-persistent": rows_topics.NON_PERSISTENT,
        "topicPolicies": rows_topics.TOPIC_POLICIES,
        "schemas": rows_topics.SCHEMAS,
    }
    yield from parsed(group, rows[group])
    if group == "topics":
        yield from rows_policies.topics()
    elif group == "topicPolicies":
        yield from rows_policies.topic_policies()
