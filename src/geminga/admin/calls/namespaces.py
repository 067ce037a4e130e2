"""Namespaces: make, delete, cut, move, empty; permissions in them."""

from __future__ import annotations

from typing import Final

from geminga.admin.calls.row import FORCE, QUOTA_KIND, Argument, Body, Call, Noun, WireType, do, get

_INT, _BOOL, _TEXT, _TEXTS, _MAP, _DOC = (
    WireType.INT,
    WireType.BOOL,
    WireType.TEXT,
    WireType.TEXTS,
    WireType.TEXT_MAP,
    WireType.DOCUMENT,
)
_AT: Final = "namespaces/{namespace}"

NAMESPACES: Final = Noun(
    "namespaces",
    "Namespaces: make, delete, cut into bundles, move, empty.",
    (
        get("list", "namespaces/{tenant}", "Namespaces of a tenant.", _TEXTS),
        get("policies", _AT, "All its policies.", _DOC),
        Call("create", "PUT", _AT, "Make one.", body=Body("policies", _DOC, "its first policies", is_optional=True)),
        do("DELETE", "delete", _AT, "Delete one; with force, what is in it too.", FORCE, destroys=True),
        get(
            "topics",
            _AT + "/topics",
            "Its topics, partitions one by one.",
            _TEXTS,
            Argument("mode", _TEXT, "mode", "PERSISTENT, NON_PERSISTENT or ALL", default="PERSISTENT"),
            Argument("with_system", _BOOL, "includeSystemTopic", "the broker's own as well", default=False),
        ),
        Call(
            "migrate",
            "POST",
            _AT + "/migration",
            "Whether its topics go where the cluster's do.",
            body=Body("migrated", WireType.BOOL, "true: they go, false: they stay"),
        ),
        get("left_topics", _AT + "/leftTopics", "Counts of what is stored here of one that left the cluster.", _DOC),
        do(
            "DELETE",
            "delete_left_topics",
            _AT + "/leftTopics",
            "Delete what is stored here of one that left the cluster, if it is as many topics.",
            Argument("topics", WireType.INT, "topics", "how many were counted", is_required=True),
            destroys=True,
        ),
        get("bundles", _AT + "/bundles", "How it is cut.", _DOC),
        do("PUT", "unload", _AT + "/unload", "Have all its bundles served anew."),
        do(
            "PUT",
            "unload_bundle",
            _AT + "/{bundle}/unload",
            "Have a bundle served anew.",
            Argument("destination", _TEXT, "destinationBroker", "by this broker"),
        ),
        do(
            "PUT",
            "split_bundle",
            _AT + "/{bundle}/split",
            "Cut a bundle in two.",
            Argument("unload", _BOOL, "unload", "have the parts served anew", default=False),
            Argument("algorithm", _TEXT, "splitAlgorithmName", "where it is cut"),
        ),
        do("DELETE", "delete_bundle", _AT + "/{bundle}", "Delete the topics of a bundle.", FORCE, destroys=True),
        get(
            "topic_hash_positions",
            _AT + "/{bundle}/topicHashPositions",
            "Where topics are in a bundle.",
            _DOC,
            Argument("topics", _TEXT, "topics", "only these, with commas between"),
        ),
        do("POST", "clear_backlog", _AT + "/clearBacklog", "Acknowledge all for all subscriptions.", destroys=True),
        do(
            "POST",
            "clear_backlog_of",
            _AT + "/clearBacklog/{subscription_name}",
            "Acknowledge all for the subscriptions of that name.",
            destroys=True,
        ),
        do(
            "POST",
            "clear_backlog_of_bundle",
            _AT + "/{bundle}/clearBacklog",
            "The same for all subscriptions in a bundle.",
            destroys=True,
        ),
        do(
            "POST",
            "clear_backlog_of_bundle_for",
            _AT + "/{bundle}/clearBacklog/{subscription_name}",
            "The same for the subscriptions of that name in a bundle.",
            destroys=True,
        ),
        do(
            "POST",
            "unsubscribe",
            _AT + "/unsubscribe/{subscription_name}",
            "Delete the subscriptions of that name.",
            destroys=True,
        ),
        do(
            "POST",
            "unsubscribe_bundle",
            _AT + "/{bundle}/unsubscribe/{subscription_name}",
            "Delete the subscriptions of that name in a bundle.",
            destroys=True,
        ),
        get("properties", _AT + "/properties", "What is said of it.", _MAP),
        Call(
            "update_properties",
            "PUT",
            _AT + "/properties",
            "Say this of it.",
            body=Body("properties", _MAP, "text by text"),
        ),
        do("DELETE", "clear_properties", _AT + "/properties", "Say nothing of it any more."),
        get("property", _AT + "/property/{key}", "One thing that is said of it.", _TEXT, may_be_none=True),
        do("PUT", "set_property", _AT + "/property/{key}/{value}", "Say one thing of it."),
        do("DELETE", "remove_property", _AT + "/property/{key}", "Say one thing less of it."),
        get(
            "by_anti_affinity_group",
            "namespaces/{cluster}/antiAffinity/{group}",
            "Namespaces of a group that no broker is to have two of.",
            _TEXTS,
            Argument("tenant", _TEXT, "tenant", "as which is asked", is_required=True),
        ),
        get("backlog_quotas", _AT + "/backlogQuotaMap", "Limits of backlogs, by kind.", _DOC),
        Call(
            "set_backlog_quota",
            "POST",
            _AT + "/backlogQuota",
            "Limit backlogs, by bytes or by age.",
            body=Body("quota", _DOC, "``limitSize``, ``limitTime``, ``policy``"),
            query=(QUOTA_KIND,),
        ),
        do("DELETE", "remove_backlog_quota", _AT + "/backlogQuota", "Limit them no more.", QUOTA_KIND),
        do("DELETE", "remove_offload_policies", _AT + "/removeOffloadPolicies", "Have no rules of the lake."),
        get(
            "scan_offloaded_ledgers",
            _AT + "/scanOffloadedLedgers",
            "Each file of its ledgers in the lake, and whether a topic has it.",
            _DOC,
        ),
        get("resource_group", _AT + "/resourcegroup", "The group whose limits it shares.", _TEXT, may_be_none=True),
        do("POST", "set_resource_group", _AT + "/resourcegroup/{group}", "Share the limits of this group."),
        do("DELETE", "remove_resource_group", _AT + "/resourcegroup", "Share no limits."),
    ),
)

PERMISSIONS: Final = Noun(
    "permissions",
    "What roles may do in namespaces and with subscriptions; those of one topic are among its calls.",
    (
        get("get", _AT + "/permissions", "Actions by role.", _DOC),
        Call(
            "grant",
            "POST",
            _AT + "/permissions/{role}",
            "Let a role do something in it.",
            body=Body("actions", _TEXTS, "produce, consume, functions, sources, sinks, packages"),
        ),
        do("DELETE", "revoke", _AT + "/permissions/{role}", "Let it do nothing more in it."),
        Call(
            "grant_of_subscription",
            "POST",
            _AT + "/permissions/subscription/{subscription_name}",
            "Let these roles use a subscription, and no others.",
            body=Body("roles", _TEXTS, "their names"),
        ),
        do(
            "DELETE",
            "revoke_of_subscription",
            _AT + "/permissions/{subscription_name}/{role}",
            "Let a role use it no more.",
        ),
        Call(
            "grant_on_topics",
            "POST",
            "namespaces/grantPermissionsOnTopics",
            "Let roles do something to several topics at once.",
            body=Body("grants", WireType.DOCUMENTS, "each with ``topic``, ``role``, ``actions``"),
        ),
        Call(
            "revoke_on_topics",
            "POST",
            "namespaces/revokePermissionsOnTopics",
            "Take that away from several at once.",
            body=Body("grants", WireType.DOCUMENTS, "each with ``topic`` and ``role``"),
        ),
        get("get_of_subscriptions", _AT + "/permissions/subscription", "Roles by subscription.", _DOC),
    ),
)
