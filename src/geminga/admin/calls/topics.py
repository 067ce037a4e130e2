"""Topics, their partitions, messages and subscriptions."""

from __future__ import annotations

from typing import Final

from geminga.admin.calls.row import APPLIED, FORCE, QUOTA_KIND, Argument, Body, Call, Noun, WireType, do, get

_INT, _BOOL, _TEXT, _TEXTS, _MAP, _DOC = (
    WireType.INT,
    WireType.BOOL,
    WireType.TEXT,
    WireType.TEXTS,
    WireType.TEXT_MAP,
    WireType.DOCUMENT,
)

_POSITION: Final = "``latest``, ``earliest``, or an object with ``ledgerId`` and ``entryId``"
_SYSTEM: Final = Argument("with_system", _BOOL, "includeSystemTopic", "the broker's own as well", default=False)
_DELETES_SCHEMA: Final = Argument("delete_schema", _BOOL, "deleteSchema", "with its schemas", default=True)
_STATS: Final = (
    Argument("precise_backlog", _BOOL, "getPreciseBacklog", "count entries, not estimates", default=False),
    Argument("backlog_size", _BOOL, "subscriptionBacklogSize", "with bytes of each backlog", default=False),
    Argument("earliest_time", _BOOL, "getEarliestTimeInBacklog", "with the time of the oldest message", default=False),
    Argument("without_publishers", _BOOL, "excludePublishers", "leave producers out", default=False),
    Argument("without_consumers", _BOOL, "excludeConsumers", "leave consumers out", default=False),
)
_PER_PARTITION: Final = Argument("per_partition", _BOOL, "perPartition", "with those of each partition", default=False)

TOPICS: Final = Noun(
    "topics",
    "Topics: make, delete, look at, move.",
    (
        get(
            "list",
            "persistent/{namespace}",
            "Persistent topics of a namespace, partitions one by one.",
            _TEXTS,
            _SYSTEM,
        ),
        get(
            "list_non_persistent",
            "non-persistent/{namespace}",
            "Non-persistent topics that are in use.",
            _TEXTS,
            _SYSTEM,
        ),
        get(
            "list_of_bundle",
            "non-persistent/{namespace}/{bundle}",
            "Non-persistent topics of a bundle (``0x00000000_0x40000000``) that are in use.",
            _TEXTS,
        ),
        get(
            "list_partitioned",
            "persistent/{namespace}/partitioned",
            "Partitioned topics of a namespace.",
            _TEXTS,
            _SYSTEM,
        ),
        Call(
            "create",
            "PUT",
            "{topic}",
            "Make a topic without partitions.",
            body=Body("properties", _MAP, "what is said of it, text by text", is_optional=True),
        ),
        Call(
            "create_partitioned",
            "PUT",
            "{topic}/partitions",
            "Make a topic with partitions.",
            body=Body("partitions", _INT, "how many"),
        ),
        Call(
            "update_partitioned",
            "POST",
            "{topic}/partitions",
            "Give a topic more partitions.",
            body=Body("partitions", _INT, "how many it has then"),
            query=(FORCE,),
        ),
        do("POST", "create_missed_partitions", "{topic}/createMissedPartitions", "Make those that are missing."),
        get(
            "partitioned_metadata",
            "{topic}/partitions",
            "``partitions`` of a topic, 0 without, and its properties.",
            _DOC,
            Argument("create", _BOOL, "checkAllowAutoCreation", "make it if that is allowed", default=False),
        ),
        do("DELETE", "delete", "{topic}", "Delete a topic.", FORCE, _DELETES_SCHEMA, destroys=True),
        do(
            "DELETE",
            "delete_partitioned",
            "{topic}/partitions",
            "Delete a topic and its partitions.",
            FORCE,
            _DELETES_SCHEMA,
            destroys=True,
        ),
        do("PUT", "unload", "{topic}/unload", "Close it here; the next who asks loads it."),
        Call("terminate", "POST", "{topic}/terminate", "End it: the id of its last message.", _DOC, destroys=True),
        Call(
            "terminate_partitioned",
            "POST",
            "{topic}/terminate/partitions",
            "End all partitions: the ids of the last messages, by partition.",
            _DOC,
            destroys=True,
        ),
        do("DELETE", "truncate", "{topic}/truncate", "Delete all that is stored.", destroys=True),
        do("POST", "trim", "{topic}/trim", "Delete now what every subscription has acknowledged and no policy keeps."),
        get("stats", "{topic}/stats", "Rates, sizes, producers, subscriptions with their backlogs.", _DOC, *_STATS),
        get(
            "internal_stats",
            "{topic}/internalStats",
            "Ledgers and cursors.",
            _DOC,
            Argument("metadata", _BOOL, "metadata", "with metadata of ledgers", default=False),
        ),
        get("web_sockets", "proxy-stats/{topic}/stats", "WebSockets at the broker that is asked.", _DOC),
        get("internal_info", "{topic}/internal-info", "What metadata say of ledgers and cursors.", _DOC),
        get("partitioned_stats", "{topic}/partitioned-stats", "Of all partitions.", _DOC, _PER_PARTITION, *_STATS),
        get("partitioned_internal_stats", "{topic}/partitioned-internalStats", "Of each partition.", _DOC),
        get("properties", "{topic}/properties", "What is said of it.", _MAP),
        Call(
            "update_properties",
            "PUT",
            "{topic}/properties",
            "Say more of it.",
            body=Body("properties", _MAP, "text by text"),
        ),
        do(
            "DELETE",
            "remove_property",
            "{topic}/properties",
            "Say one thing less of it.",
            Argument("key", _TEXT, "key", "which", is_required=True),
        ),
        get("permissions", "{topic}/permissions", "Actions by role.", _DOC),
        Call(
            "grant_permission",
            "POST",
            "{topic}/permissions/{role}",
            "Let a role do something.",
            body=Body("actions", _TEXTS, "produce, consume, ..."),
        ),
        do("DELETE", "revoke_permission", "{topic}/permissions/{role}", "Let it do nothing more."),
        get("lookup", "/lookup/v2/topic/{topic}", "The URLs of the broker that serves it.", _DOC),
        get("bundle_range", "/lookup/v2/topic/{topic}/bundle", "The bundle that it is in.", _TEXT),
        get("backlog_quotas", "{topic}/backlogQuotaMap", "Limits of its backlogs, by kind.", _DOC, APPLIED),
        Call(
            "set_backlog_quota",
            "POST",
            "{topic}/backlogQuota",
            "Limit backlogs, by bytes or by age.",
            body=Body("quota", _DOC, "``limitSize``, ``limitTime``, ``policy``"),
            query=(QUOTA_KIND,),
        ),
        do("DELETE", "remove_backlog_quota", "{topic}/backlogQuota", "Limit them no more.", QUOTA_KIND),
        do("DELETE", "remove_policies", "{topic}/policies", "Set no policy of the topic any more.", destroys=True),
        Call(
            "set_shadow_topics",
            "PUT",
            "{topic}/shadowTopics",
            "Have other topics show what is in it.",
            body=Body("topics", _TEXTS, "their names"),
        ),
        do("DELETE", "remove_shadow_topics", "{topic}/shadowTopics", "Have none show it."),
        get("shadow_topics", "{topic}/shadowTopics", "Topics that show what is in it.", _TEXTS, may_be_none=True),
    ),
)

_SUBSCRIPTION: Final = "{topic}/subscription/{subscription}"
SUBSCRIPTIONS: Final = Noun(
    "subscriptions",
    "Subscriptions of a topic: make, delete, move.",
    (
        get("list", "{topic}/subscriptions", "Their names.", _TEXTS),
        Call(
            "create",
            "PUT",
            _SUBSCRIPTION,
            "Make one.",
            body=Body("position", WireType.POSITION, _POSITION, is_optional=True),
        ),
        do("DELETE", "delete", _SUBSCRIPTION, "Delete one: it is acknowledged no more.", FORCE, destroys=True),
        do(
            "POST",
            "skip",
            _SUBSCRIPTION + "/skip/{count}",
            "Acknowledge so many messages.",
            destroys=True,
        ),
        do("POST", "skip_all", _SUBSCRIPTION + "/skip_all", "Acknowledge all there is.", destroys=True),
        do(
            "POST",
            "expire_messages",
            _SUBSCRIPTION + "/expireMessages/{seconds}",
            "Acknowledge what is older than so many seconds.",
            destroys=True,
        ),
        Call(
            "expire_to",
            "POST",
            _SUBSCRIPTION + "/expireMessages",
            "Acknowledge all up to a message.",
            body=Body("message_id", WireType.POSITION, _POSITION),
            destroys=True,
        ),
        do(
            "POST",
            "expire_all",
            "{topic}/all_subscription/expireMessages/{seconds}",
            "Acknowledge for all subscriptions what is older than so many seconds.",
            destroys=True,
        ),
        do(
            "POST",
            "reset_to_time",
            _SUBSCRIPTION + "/resetcursor/{timestamp}",
            "Go to what was published at that time, milliseconds, or later.",
            destroys=True,
        ),
        Call(
            "reset",
            "POST",
            _SUBSCRIPTION + "/resetcursor",
            "Go to a message.",
            body=Body("message_id", WireType.POSITION, _POSITION),
            destroys=True,
        ),
        get("properties", _SUBSCRIPTION + "/properties", "What is said of it.", _MAP),
        Call(
            "update_properties",
            "PUT",
            _SUBSCRIPTION + "/properties",
            "Say this of it, and nothing else.",
            body=Body("properties", _MAP, "text by text"),
        ),
        Call(
            "analyze_backlog",
            "POST",
            _SUBSCRIPTION + "/analyzeBacklog",
            "Count what it has to read.",
            _DOC,
            query=(
                Argument("positions", _BOOL, "positions", "also where it is, as far as it was looked", default=False),
                Argument("start", _TEXT, "start", "``ledger:entry`` to begin with"),
            ),
        ),
        get("replicated_status", _SUBSCRIPTION + "/replicatedSubscriptionStatus", "Whether it is replicated.", _DOC),
        Call(
            "set_replicated",
            "POST",
            _SUBSCRIPTION + "/replicatedSubscriptionStatus",
            "Have it replicated, or not.",
            body=Body("enabled", _BOOL, "whether"),
        ),
        get(
            "dispatch_rate",
            "{topic}/{subscription_name}/dispatchRate",
            "How fast messages go to its consumers; None: not set here.",
            _DOC,
            APPLIED,
            may_be_none=True,
        ),
        Call(
            "set_dispatch_rate",
            "POST",
            "{topic}/{subscription_name}/dispatchRate",
            "Set how fast they go.",
            body=Body("rate", _DOC, "as ``values.DispatchRate``"),
        ),
        do("DELETE", "remove_dispatch_rate", "{topic}/{subscription_name}/dispatchRate", "Set it no more."),
    ),
)

MESSAGES: Final = Noun(
    "messages",
    "Messages of a topic: where they are, and single ones.",
    (
        get("last_message_id", "{topic}/lastMessageId", "The id of the last message.", _DOC),
        get(
            "message_id_at",
            "{topic}/messageid/{timestamp}",
            "The id of the first message published at that time, milliseconds, or later.",
            _DOC,
        ),
        get(
            "message_id_by_index",
            "{topic}/getMessageIdByIndex",
            "The id of the message with that index.",
            _DOC,
            Argument("index", _INT, "index", "from 0", is_required=True),
        ),
        get("backlog_size_by_topic", "{topic}/backlog", "Bytes that each subscription has to read.", _DOC),
        Call(
            "backlog_size",
            "PUT",
            "{topic}/backlogSize",
            "Bytes behind a message.",
            _INT,
            body=Body("message_id", WireType.POSITION, _POSITION),
        ),
        get("get", "{topic}/ledger/{ledger}/entry/{entry}", "An entry as it is stored.", WireType.MESSAGE),
        get(
            "examine",
            "{topic}/examinemessage",
            "A message counted from one end.",
            WireType.MESSAGE,
            Argument("begin", _TEXT, "initialPosition", "earliest or latest", default="latest"),
            Argument("number", _INT, "messagePosition", "from 1", default=1),
        ),
        Call(
            "publish",
            "POST",
            "/topics/{topic}",
            "Publish some, written as the schema wants them: where each is stored, or why not.",
            _DOC,
            body=Body("messages", _DOC, "``messages``, each with ``payload``, and what else they share"),
        ),
        get(
            "peek",
            _SUBSCRIPTION + "/position/{position}",
            "A message that a subscription has to read, counted from 1.",
            WireType.MESSAGE,
        ),
        get(
            "source_positions",
            "{topic}/sourcePositions",
            "By cluster, up to where what it copies here counts as repeated (Geminga's own).",
            _DOC,
        ),
        Call(
            "forget_source_position",
            "DELETE",
            "{topic}/sourcePositions/{cluster}",
            "Take a cluster's next message, wherever it was stored there (Geminga's own).",
            _DOC,
            destroys=True,
        ),
    ),
)

COMPACTION: Final = Noun(
    "compaction",
    "The newest message of each key, for who reads that.",
    (
        do("PUT", "start", "{topic}/compaction", "Keep each key's newest message; goes on in the background."),
        get("status", "{topic}/compaction", "How far the last run is.", _DOC),
        do(
            "DELETE",
            "forget",
            "{topic}/compaction",
            "Give up what was compacted: its readers have what is left of the log (Geminga's own).",
            destroys=True,
        ),
    ),
)
LAKE: Final = Noun(
    "lake",
    "What was moved to the lake, and what can not be read.",
    (
        get(
            "status",
            "{topic}/offload",
            "How far moving old ledgers to the lake is.",
            _DOC,
        ),
        Call(
            "offload",
            "PUT",
            "{topic}/offload",
            "Move ledgers before a message to the lake.",
            body=Body("message_id", WireType.POSITION, _POSITION),
        ),
        get("files", "{topic}/lake", "Its files in the lake.", _DOC),
        do("PUT", "restore", "{topic}/lake/restore", "Read the lake's own notes again."),
        get("holes", "{topic}/holes", "Ledgers that can not be read, and what waits for them.", _DOC),
        Call(
            "skip_hole",
            "PUT",
            "{topic}/holes/skip",
            "Go on behind what is lost for good.",
            _DOC,
            body=Body("options", _DOC, "``ledgerId``, ``force``, ``whole``, ``end``, ``dry``"),
            destroys=True,
        ),
    ),
)
