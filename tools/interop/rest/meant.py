"""Where Geminga's answers differ on purpose: rows of "Answers of the admin REST" in ``docs/compatibility.md``."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.comparing import Meant

MEANT: Final = (
    # ---- what the HTTP software says
    Meant("an error's body", r"answer: (\d{3})( <html>)? \| \1 .+"),
    Meant("a body that is no JSON, or of another shape", r"answer: 400 <jackson> \| 400 .+"),
    Meant("a `Content-Type` that is none", r"answer: 400 <html> \| 415 .+"),
    Meant(
        "a name that can not be decoded",
        r"answer: (0 <closed>|400( <html>)?|404 Tenant .+) \| 412 (tenant|topic|subscription) (is not|can not) .+",
    ),
    Meant(
        "names with letters beyond ASCII", r"answer: 412 (Namespace|Tenant) name is not valid \| 404 .+", ".+ .*%C3%A9"
    ),
    Meant("other spellings of a path", r"answer: 301 \| .+"),
    Meant(
        "other spellings of a path", r"answer: 200 \| 404 Tenant does not exist", "encodings: GET tenants/public;b=c"
    ),
    Meant("`OPTIONS`, and the header `Accept`", r"answer: (200 \| 405 OPTIONS .+|406( <html>)? \| 200)"),
    # ---- topics, subscriptions, messages, schemas
    Meant(
        "a number of partitions that is an object, or no JSON",
        r"answer: (400 <jackson> \| (204|406 .+)|204 \| 415 .+)",
        r"partitions made: PUT ",
    ),
    Meant(
        "skipping fewer than no messages", r"answer: 204 \| 412 the number of messages to skip .+", "messages skipped: "
    ),
    Meant(
        "deleting a schema where there is no namespace",
        r"answer: 200 \| 404 Namespace .+",
        "schemas where .+: DELETE schemas/public/nowhere",
    ),
    Meant(
        "asking whether a schema fits that does not",
        r"answer: 500 <\w+> \| (409|422) .+",
        r"schema.+: POST schemas/.+/compatibility",
    ),
    Meant(
        "publishing by REST what can not be read, or is not there",
        r"answer: 500 .+ \| 4\d\d .+",
        r"published by rest.*: POST /topics/",
    ),
    Meant(
        "publishing by REST what does not fit its schema",
        r"answer: 200 \| 400 the payload of message .+",
        r"published by rest with a schema: POST /topics/",
    ),
    Meant(
        "publishing by REST to a topic that is not there",
        r"answer: 500 .+ Topic .+ not found \| 200",
        r"published by rest: POST /topics/",
    ),
    Meant(
        "publishing by REST to a partition that is not there",
        r"answer: 200 \| 404 partition .+",
        r"published by rest to partitions: POST /topics/",
    ),
    Meant(
        "publishing by REST with schema BYTES",
        r"answer: 500 .+type=BYTES.+ \| 200",
        r"published by rest with a schema: POST /topics/",
    ),
    Meant(
        "counters of what was published by REST",
        r"value msgInCounter: 0 \| \d+",
        r"published by rest: GET .+/stats",
    ),
    Meant(
        "analyzing a backlog from a message before it",
        r"value (entries|messages): 5 \| 0|only Apache: (first|last)MessageId string",
        "backlogs analyzed: POST ",
    ),
    Meant(
        "subscription types of a topic that are not set",
        r"answer: (200 \| 204|204 \| 200)",
        "topic policy subscriptionTypesEnabled: GET",
    ),
    Meant(
        "policies of a topic that hold, with `applied=true`",
        r"body: none \| some|only Apache: (destination_storage|message_age).*|answer: 204 \| 200"
        r"|value managedLedgerMaxMarkDeleteRate: 1.0 \| 2.0",
        r"topic policy \w+: GET .+applied=true",
    ),
    # ---- what is offloaded
    Meant(
        "offload policies of a broker that has no place for files",
        r"answer: 204 \| 412 the driver filesystem needs .+|body: some \| none",
        r"(topic policy|topics with) offloadPolicies: ",
    ),
    Meant(
        "removing offload policies where there is no namespace",
        r"answer: 409 Concurrent modification \| 404 Namespace .+",
        "offload policies: DELETE namespaces/public/nowhere/",
    ),
    Meant("the path `lake` of a topic", r"answer: 404( <html>)? \| (20[04]|405 .+)", ".+/lake(/restore)?$"),
    Meant(
        "the path `sourcePositions` of a topic",
        r"answer: (404|405)( <html>)? \| (20[04]|40[0-9]|412 .+)|body: .*",
        "source positions: .+/sourcePositions(/east)?$",
    ),
    Meant(
        "the path `holes` of a topic",
        r"answer: (404|405)( <html>)? \| (20[04]|40[0-9] .+)|body: .*",
        "ledgers that can not be read: .+/holes(/skip)?( .+)?$",
    ),
    Meant("a topic that was never offloaded", r"only Apache: firstUnoffloadedMessage.*", "a topic is offloaded: GET "),
    Meant(
        "setting `offloadThresholdInSeconds`",
        r"answer: 200 \| (204|400 .+)",
        "namespace offloadThresholdInSeconds: PUT ",
    ),
    # ---- bookies
    Meant(
        "bookie affinity of a namespace that was never used",
        r"answer: 404 Namespace local-policies does not exist \| 200",
        "bookie affinity: GET ",
    ),
    Meant(
        "bookie affinity without a first group",
        r"answer: 204 \| 412 bookkeeperAffinityGroupPrimary must .+|body: some \| none",
        "bookie affinity without a first group: ",
    ),
    # ---- values
    Meant("input that makes no sense", r"answer: (500( <html>| <exception>)?|0 <silent>) \| (4\d\d|503) .+"),
    Meant(
        "nothing, an empty text or a fraction where a number, a boolean or a name belongs",
        r"answer: 20[04] \| (400 (.+, not (nothing|''|\d+\.\d+)|The request entity cannot be empty\.)"
        r"|412 AdminRoles contains a role without a name)",
    ),
    Meant(
        "a choice that there is not, or its number instead of its name",
        r"answer: 204 \| 400 (the body must be (one|a list) of .+|Set namespace.+|inactiveTopicDeleteMode must .+)",
    ),
    Meant(
        "a choice that there is not, or its number instead of its name",
        r"(only Geminga: inactiveTopicDeleteMode .+|value maxInactiveDurationSeconds: 5 \| -1)",
        "namespace inactiveTopicPolicies: GET",
    ),
    Meant(
        "a choice that there is not, or its number instead of its name",
        r"body: some \| none",
        "topic policy schemaCompatibilityStrategy: GET",
    ),
    Meant(
        "a choice that there is not, or its number instead of its name",
        r"answer: (204 \| 400 Invalid format of input policy data.+ (must be .+|\d+)|200 \| 404 Cannot find .+)",
        r"isolation odd (16|28): ",
    ),
    Meant(
        "a choice that there is not, or its number instead of its name",
        r"value \.: None \| Prefix",
        "namespace subscriptionAuthMode: GET",
    ),
    Meant(
        "an isolation policy that can not be",
        r"answer: 400 Invalid format of input policy data.+ \| 400 Invalid format of input policy data.+",
        r"isolation odd \d+: POST ",
    ),
    Meant(
        "an isolation policy that can not be",
        r"answer: (204 \| 400 Invalid format of input policy data.+ must be 0 or more|200 \| 404 Cannot find .+)",
        r"isolation odd 22: ",
    ),
    Meant(
        "a bundle that there is not",
        r"answer: (412 Invalid (upper boundary|bundle range).+|404 Namespace not found) \| (412|404) .+",
        "(topics of bundles: GET|bundles unloaded and split: PUT|a bundle that is split: PUT"
        "|namespace subscriptions: |quotas of bundles: "
        "|permissions: DELETE)",
    ),
    Meant(
        "permissions of a topic that are none",
        r"answer: 204 \| 400 Actions should not be null",
        "permissions of topics: POST .+/permissions/joe$",
    ),
    Meant(
        "clearing the backlog of a subscription that some topics have not",
        r"answer: 500 <exception> \| 204",
        "namespace subscriptions: POST .+/clearBacklog/",
    ),
    Meant(
        "quotas of bundles that are no amounts",
        r"answer: 204 \| (400 msgRateIn must be a number.+|412 msgRateIn must be 0 or more.+)",
        "quotas of bundles: POST ",
    ),
    Meant(
        "a way to split bundles that there is not",
        r"answer: 412 Unsupported namespace bundle split algorithm.+ \| 412 bundles are split by one of .+",
        "bundles unloaded and split: PUT ",
    ),
    Meant(
        "topics of a bundle",
        r"only Apache: topicHashPositions\.persistent://.+/__change_events .+",
        "topics of bundles: GET ",
    ),
    Meant(
        "the path `bufferSnapshot` of a topic in `/admin/v3/transactions`",
        r"answer: 404( <html>)? \| (204|400 .+)",
        "snapshots of others: ",
    ),
    Meant("a failure domain without a body", r"only Geminga: i object", "failure domains: GET "),
    Meant(
        "removing a policy for which Pulsar has no path",
        r"value \.: (False \| True|True \| False)",
        "topic policy schemaValidationEnforced: GET",
    ),
    Meant(
        "numbers out of their range",
        r"answer: 204 \| (412 tickTime must be 1 .+|400 limitSize must be -1 .+|412 a namespace has 1 to 128 .+)",
    ),
    Meant(
        "policies in the body that creates a namespace",
        r"answer: 412 Invalid value for message TTL \| 412 Invalid value for message TTL, .+",
    ),
    # ---- what is there
    Meant("what is not built", r"answer: .+ \| 501 .+: not built in Geminga .+"),
    Meant("what is not built", r"answer: (200 \| 404 Cluster .+|400 Entry filter 'f' not found \| 404 .+)"),
    Meant("a cluster that is not migrated", r"answer: 404 Cluster does not exist \| 200", ".+: GET .+/migrate"),
    Meant(
        "removing a policy for which Pulsar has no path",
        r"answer: (412 Invalid bundle range: \w+ \| 204|404 Namespace does not .+ \| 404 Namespace policies .+"
        r"|405 \| (204|4\d\d .+))",
    ),
    Meant(
        "removing a policy for which Pulsar has no path",
        r"value \.: True \| False",
        "namespace encryptionRequired: GET ",
    ),
    Meant(
        "nothing, an empty text or a fraction where a number, a boolean or a name belongs",
        r"value \.: 0 \| 2147483647|value peerClusterNames: \[''\] \| \[\]",
        "topic policy compactionThreshold: GET|peers of clusters: GET",
    ),
    Meant(
        "reading `replicatorDispatchRate`, or the pause of dispatch, of a namespace that is not there",
        r"answer: 404 Namespace policies does not exist \| 404 Namespace does not exist",
        "namespace (replicatorDispatchRate|dispatcherPauseOnAckStatePersistent): GET ",
    ),
    Meant("the own cluster is deleted", r"answer: 20[04] \| (412 Cluster not empty|409 .+)", "own cluster: "),
    Meant(
        "a policy is set in a namespace whose tenant is not there",
        r"answer: 404 Namespace .+ \| 404 Tenant does not exist",
        "namespace .+nobody/nowhere/",
    ),
    Meant(
        "a policy is set in a namespace whose tenant is not there",
        r"answer: 404 Tenant does not exist \| 404 Namespace .+",
        "(topics with|namespace) .+nobody/nowhere/",
    ),
    Meant("the bundle of a topic whose namespace is not there", r"answer: 200 \| 404 Namespace .+", "lookup: "),
    Meant("a topic's name with a slash", r"answer: (412 Topic name is not valid|500 <html>) \| 20[04]"),
    Meant(
        "a topic's name with a slash", r"answer: 500 domain\(\) invoked from wrong resource \| .+", "topics without "
    ),
    Meant(
        "a percent sign in a subscription's name that was encoded once",
        r"(answer: 500( <exception>)? \| 204|value \.: \[\] \| \['100%'\])",
        "names of subscriptions encoded once: ",
    ),
    Meant("TLS in the data of the own cluster", r"only Apache: brokerClient\w+ string", "clusters: GET clusters/stand"),
    Meant(
        "allocators of memory (`broker-stats/allocator-stats/default`, `ml-cache`)",
        r"answer: 200 \| 406 Invalid allocator name : default: .+",
        "statistics of a broker: ",
    ),
    Meant(
        "a bad value of a setting that changes at run time",
        r"answer: (200|412 Invalid dynamic-config value) \| 412 Invalid dynamic-config value: .+",
        "broker configuration: ",
    ),
    Meant("partitions of a non-persistent topic in lists", r"only Geminga: \[\] string", ".+mode=NON_PERSISTENT"),
    # ---- transactions
    Meant(
        "a transaction coordinator that nobody used yet",
        r"answer: 404 Transaction coordinator not found! .+ \| 200",
        "coordinators: GET .+coordinatorStats",
    ),
    Meant("aborting a transaction that is aborted", r"answer: 500 <exception> \| 204", ".+: POST .+/abortTransaction/"),
    Meant(
        "transactions of a topic that is not loaded",
        r"answer: 404 Topic not found .+ \| (200|404 .+)",
        "topics without transactions: .+-partition-0",
    ),
    Meant(
        "snapshots of a topic without transactions",
        r"answer: 200 \| 404 Transaction buffer Snapshot .+",
        "topics without transactions: .+transactionBufferInternalStats",
    ),
    Meant(
        "cursors of the topic of snapshots, and what Pulsar has no names for",
        r"only (Apache|Geminga): \w+\.managedLedgerInternalStats\.(.+\.)?"
        r"(__compaction|__system_reader|pulsar\.transaction-snapshots|geminga)[^ ]* .+",
    ),
    Meant("`metadata=true` of internal statistics", r"only Apache: .+\.ledgers\[\]\.metadata string"),
    Meant("positions before the first message of a subscription", r"value state: NotInPendingAck \| MarkDelete"),
    Meant(
        "transactions of partitions as one",
        r"value (ongoing|committed)TxnCount: \d+ \| \d+",
        "partitions in transactions: .+partitioned-stats",
    ),
    Meant(
        "transactions that acknowledge cumulatively",
        r"value ongoingTxnSize: 0 \| 1|only Geminga: lowWaterMarks\.\d+ number",
        "a cumulative acknowledgment: ",
    ),
    # ---- what pulsar-admin asks for after what was not taken
    Meant(
        "what is not built",
        r"body: some \| none|only Apache: (dispatcherPauseOnAck|offload_policies).*",
        r"admin .+: GET .+/(compactionThreshold|replicatorDispatchRate|\{ns\}$)",
    ),
    Meant(
        "offload policies of a broker that has no place for files",
        r"answer: 204 \| 412 the driver .+|body: some \| none",
        r"admin .+/offloadPolicies",
    ),
    Meant("a topic that was never offloaded", r"only Apache: firstUnoffloadedMessage.*", "admin .+/t/offload$"),
    Meant("setting `offloadThresholdInSeconds`", r"answer: 200 \| 204", "admin .+: PUT .+/offloadThresholdInSeconds"),
    Meant("subscription types of a topic that are not set", r"answer: 200 \| 204", "admin .+/subscriptionTypesEnabled"),
    Meant(
        "allocators of memory (`broker-stats/allocator-stats/default`, `ml-cache`)",
        r"answer: 200 \| 406 Invalid allocator name .+",
        "admin ",
    ),
)
