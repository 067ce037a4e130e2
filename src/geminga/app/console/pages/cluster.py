"""Brokers and bookies; how a topic is replicated, and compacted."""

from __future__ import annotations

from typing import Any, Final

from geminga.app.console.reading.choosing import chosen_topic, topic_named
from geminga.app.console.reading.standing import cluster_of, compaction_of, replication_of, replications_of
from geminga.app.console.tables import Page, Rendered, View


async def cluster(view: View) -> Rendered:
    """Of the cluster that this broker is in."""
    return Rendered("cluster.html", {"found": await cluster_of(view.admin)})


async def replication(view: View) -> Rendered:
    """``topic``: by partition and cluster; ``namespace``: its topics that are copied, page by page."""
    values: dict[str, Any] = {"topic": "", "namespace": "", "partitions": [], "clusters": None, "page": None}
    name = view.query.get("topic", "").lstrip()
    namespace = view.query.get("namespace", "").strip()
    if name:
        values["topic"] = str(topic_named(name).partitioned_topic)
        values["partitions"] = await replication_of(view.admin, values["topic"])
    elif namespace:
        # Asked first: it says in a sentence what is wrong about a name.
        names = await view.admin.topics.list(namespace)
        page = view.page_of(sorted(map(str, names)))
        values |= {
            "namespace": namespace,
            "clusters": await view.admin.namespace_policies.replication_clusters.get(namespace),
            "page": page,
            "partitions": await replications_of(view.admin, page.rows),
        }
    return Rendered("replication.html", values)


async def compaction(view: View) -> Rendered:
    """``topic``: of it, or of one of its partitions."""
    name = view.query.get("topic", "").lstrip()
    if not name:
        return Rendered("compaction.html", {"topic": "", "whole": "", "chosen": None, "compaction": None})
    chosen = await chosen_topic(view.admin, name)
    return Rendered(
        "compaction.html",
        {
            "topic": chosen.shown,
            "whole": chosen.whole,
            "chosen": chosen,
            "compaction": await compaction_of(view.admin, chosen.shown),
        },
    )


PAGES: Final = (
    Page("/cluster", cluster, section="Brokers and bookies"),
    Page("/replication", replication, section="Geo-replication"),
    Page("/compaction", compaction, section="Compaction"),
)
