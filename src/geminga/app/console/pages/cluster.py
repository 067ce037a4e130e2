"""Brokers and bookies; how a topic is replicated, and compacted."""

from __future__ import annotations

from typing import Final

from geminga.app.console.reading.choosing import chosen_topic, topic_named
from geminga.app.console.reading.standing import cluster_of, compaction_of, replication_of
from geminga.app.console.tables import Page, Rendered, View


async def cluster(view: View) -> Rendered:
    """Of the cluster that this broker is in."""
    return Rendered("cluster.html", {"found": await cluster_of(view.admin)})


async def replication(view: View) -> Rendered:
    """``topic``: by partition and cluster."""
    name = view.query.get("topic", "").strip()
    if not name:
        return Rendered("replication.html", {"topic": "", "partitions": []})
    topic = str(topic_named(name).partitioned_topic)
    return Rendered("replication.html", {"topic": topic, "partitions": await replication_of(view.admin, topic)})


async def compaction(view: View) -> Rendered:
    """``topic``: of it, or of one of its partitions."""
    name = view.query.get("topic", "").strip()
    if not name:
        return Rendered("compaction.html", {"topic": "", "whole": "", "partitions": [], "compaction": None})
    chosen = await chosen_topic(view.admin, name)
    return Rendered(
        "compaction.html",
        {
            "topic": chosen.shown,
            "whole": chosen.whole,
            "partitions": chosen.partitions,
            "compaction": await compaction_of(view.admin, chosen.shown),
        },
    )


PAGES: Final = (
    Page("/cluster", cluster, section="Brokers and bookies"),
    Page("/replication", replication, section="Geo-replication"),
    Page("/compaction", compaction, section="Compaction"),
)
