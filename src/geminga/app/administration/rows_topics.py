"""Topics, their subscriptions, messages and schemas: ``topics``, ``persistent``, ``non-persistent``, ``schemas``."""

from __future__ import annotations

from typing import Final

from geminga.app.administration.rows_policies import quota_row

_SUBSCRIPTION: Final = "/subscription:text! -s --subscription"
_AT: Final = "{topic}/subscription/{subscription}"
_STATS: Final = (
    "?getPreciseBacklog:flag -gpb --get-precise-backlog; ?subscriptionBacklogSize:off=true -sbs "
    "--get-subscription-backlog-size; ?getEarliestTimeInBacklog:flag -etb --get-earliest-time-in-backlog"
)
#: Those of ``topics`` and of ``persistent``, which take them alike.
_SHARED: Final = f"""\
permissions GET {{topic}}/permissions
bundle-range GET /lookup/v2/topic/{{topic}}/bundle
lookup GET /lookup/v2/topic/{{topic}}
truncate DELETE {{topic}}/truncate !%
unload PUT {{topic}}/unload %
subscriptions GET {{topic}}/subscriptions
unsubscribe DELETE {_AT} !%; {_SUBSCRIPTION}; ?force:flag -f --force
info-internal GET {{topic}}/internal-info
stats-internal GET {{topic}}/internalStats; ?metadata:flag -m --metadata
partitioned-stats-internal GET {{topic}}/partitioned-internalStats
skip POST {_AT}/skip/{{count}} !; {_SUBSCRIPTION}; /count:int! -n --count
expire-messages-all-subscriptions POST {{topic}}/all_subscription/expireMessages/{{seconds}} !%;
 /seconds:seconds! -t --expireTime
get-partitioned-topic-metadata GET {{topic}}/partitions
get-message-by-id GET {{topic}}/ledger/{{ledger}}/entry/{{entry}}; /ledger:int! -l --ledgerId; /entry:int! -e --entryId
last-message-id GET {{topic}}/lastMessageId
terminate POST {{topic}}/terminate !
compact PUT {{topic}}/compaction %
compaction-status =wait-compaction topic; =wait:flag -w --wait-complete
"""
TOPICS: Final = f"""\
{_SHARED}\
list =list-topics namespace; =domain:persistent/non_persistent/non-persistent -td --topic-domain;
 =bundle:text -b --bundle; =system:flag -ist --include-system-topic
list-partitioned-topics =list-partitioned namespace; =system:flag -ist --include-system-topic
grant-permission POST {{topic}}/permissions/{{role}}; /role:text! -r --role; @:list! -a --actions
revoke-permission DELETE {{topic}}/permissions/{{role}}; /role:text! -r --role
partitioned-lookup =partitioned-lookup topic; =sort:flag -s --sort-by-broker
delete =delete-topics topic !; =force:flag -f --force; =schema:flag -d --deleteSchema; =regex:flag -r regex --regex;
 =file:flag --from-file
create-subscription =create-subscription topic; =subscription:text! -s --subscription;
 =position:text=latest -m --messageId; =replicated:flag -r --replicated; =properties:map --property -p
update-subscription-properties =subscription-properties topic; =subscription:text! -s --subscription;
 =properties:map --property -p; =clear:flag --clear -c
get-subscription-properties GET {_AT}/properties; {_SUBSCRIPTION}
stats GET {{topic}}/stats; {_STATS}
partitioned-stats GET {{topic}}/partitioned-stats; ?perPartition:flag=false --per-partition; {_STATS}
clear-backlog POST {_AT}/skip_all !%; {_SUBSCRIPTION}
expire-messages =expire-messages topic !%; =subscription:text! -s --subscription; =time:seconds -t --expireTime;
 =position:position --position -p; =excluded:flag -e --exclude-reset-position
create-partitioned-topic =create-partitioned topic; =partitions:int! -p --partitions; =properties:pairs --metadata -m
create-missed-partitions POST {{topic}}/createMissedPartitions
create PUT {{topic}}; @:pairs={{}} --metadata -m
update-partitioned-topic POST {{topic}}/partitions; @:int! -p --partitions;
 ?updateLocalTopicOnly:flag -ulo --update-local-only; ?force:flag -f --force
get-properties GET {{topic}}/properties
update-properties PUT {{topic}}/properties; @:map={{}} --property -p
remove-properties DELETE {{topic}}/properties; ?key:text --key -k
delete-partitioned-topic DELETE {{topic}}/partitions !; ?force:flag -f --force;
 ?deleteSchema:flag=true -d --deleteSchema
peek-messages =peek-messages topic; =subscription:text! -s --subscription; =count:int=1 -n --count;
 =markers:flag -ssm --show-server-marker;
 =isolation:READ_COMMITTED/READ_UNCOMMITTED=READ_UNCOMMITTED -til --transaction-isolation-level
examine-messages GET {{topic}}/examinemessage; ?initialPosition:text -i --initialPosition;
 ?messagePosition:int=1 -m --messagePosition
get-message-id-by-index GET {{topic}}/getMessageIdByIndex; ?index:int! --index -i
get-message-id GET {{topic}}/messageid/{{timestamp}}; /timestamp:datetime! -d --datetime
reset-cursor =reset-cursor topic !%; =subscription:text! -s --subscription; =time:ago --time -t;
 =position:text --messageId -m; =excluded:flag -e --exclude-reset-position
partitioned-terminate POST {{topic}}/terminate/partitions !
offload =offload topic; =size:bytes! -s --size-threshold
offload-status =wait-offload topic; =wait:flag -w --wait-complete
get-backlog-quotas GET {{topic}}/backlogQuotaMap; ?applied:flag -ap --applied
set-backlog-quota POST {{topic}}/backlogQuota; {quota_row()}
remove-backlog-quota DELETE {{topic}}/backlogQuota;
 ?backlogQuotaType:destination_storage/message_age=destination_storage -t --type
enable-deduplication POST {{topic}}/deduplicationEnabled; @:flag=true --enable
disable-deduplication POST {{topic}}/deduplicationEnabled; @:off=false --disable
get-deduplication-enabled GET {{topic}}/deduplicationEnabled
set-replicated-subscription-status POST {_AT}/replicatedSubscriptionStatus; {_SUBSCRIPTION}; @:flag^ --enable -e;
 @:off^ --disable -d
get-replicated-subscription-status GET {_AT}/replicatedSubscriptionStatus; {_SUBSCRIPTION}
get-backlog-size PUT {{topic}}/backlogSize; @:position=-1:-1 --messageId -m
analyze-backlog POST {_AT}/analyzeBacklog; {_SUBSCRIPTION}; @:position -p --position
get-shadow-topics GET {{topic}}/shadowTopics
set-shadow-topics PUT {{topic}}/shadowTopics; @:list! --topics -t
remove-shadow-topics DELETE {{topic}}/shadowTopics
create-shadow-topic =create-shadow topic; =source:text! --source -s; =properties:commaMap --properties -p
get-shadow-source =shadow-source topic
get-schema-validation-enforce GET {{topic}}/schemaValidationEnforced; ?applied:flag -ap --applied
set-schema-validation-enforce POST {{topic}}/schemaValidationEnforced; @:flag=false --enable -e
trim-topic POST {{topic}}/trim %
source-positions GET {{topic}}/sourcePositions
forget-source-position DELETE {{topic}}/sourcePositions/{{cluster}} !; /cluster:text! -c --cluster
"""
PERSISTENT: Final = f"""\
{_SHARED}\
list =list-topics namespace
list-partitioned-topics =list-partitioned namespace
grant-permission POST {{topic}}/permissions/{{role}}; /role:text! --role; @:list! --actions
revoke-permission DELETE {{topic}}/permissions/{{role}}; /role:text! --role
delete DELETE {{topic}} !; ?force:flag --force; ?deleteSchema:flag=true --deleteSchema
create-subscription =create-subscription topic; =subscription:text! -s --subscription;
 =position:text=latest --messageId -m; =properties:map --property -p
stats GET {{topic}}/stats; ?getPreciseBacklog:flag -gpb --get-precise-backlog;
 ?subscriptionBacklogSize:flag=false --get-subscription-backlog-size
partitioned-stats GET {{topic}}/partitioned-stats; ?perPartition:flag=false --per-partition;
 ?subscriptionBacklogSize:flag=false --get-subscription-backlog-size
skip-all POST {_AT}/skip_all !%; {_SUBSCRIPTION}
expire-messages POST {_AT}/expireMessages/{{seconds}} !%; {_SUBSCRIPTION}; /seconds:seconds! -t --expireTime
create-partitioned-topic =create-partitioned topic; =partitions:int! -p --partitions
update-partitioned-topic POST {{topic}}/partitions; @:int! -p --partitions
delete-partitioned-topic DELETE {{topic}}/partitions !; ?force:flag --force; ?deleteSchema:flag=true --deleteSchema
peek-messages =peek-messages topic; =subscription:text! -s --subscription; =count:int=1 -n --count
reset-cursor =reset-cursor topic !%; =subscription:text! -s --subscription; =time:ago --time -t;
 =position:text --messageId -m
"""
NON_PERSISTENT: Final = """\
create-partitioned-topic =create-partitioned topic; =partitions:int! -p --partitions
lookup GET /lookup/v2/topic/{topic}
stats GET {topic}/stats
stats-internal GET {topic}/internalStats
get-partitioned-topic-metadata GET {topic}/partitions
list GET non-persistent/{namespace}
list-in-bundle GET non-persistent/{namespace}/{bundle}; /bundle:text! -b --bundle
"""
#: What ``topicPolicies`` has beside the three of each policy.
TOPIC_POLICIES: Final = f"""\
delete DELETE {{topic}}/policies !
get-backlog-quota GET {{topic}}/backlogQuotaMap; ?applied:flag -ap --applied; ?isGlobal:flag --global -g
set-backlog-quota POST {{topic}}/backlogQuota; {quota_row()}; ?isGlobal:flag --global -g
remove-backlog-quota DELETE {{topic}}/backlogQuota; ?isGlobal:flag --global -g;
 ?backlogQuotaType:destination_storage/message_age=destination_storage -t --type
get-subscription-dispatch-rate =get-rate topic; =applied:flag -ap --applied; =global:flag --global -g;
 =subscription:text --subscription -s
remove-subscription-dispatch-rate =remove-rate topic; =global:flag --global -g; =subscription:text --subscription -s
get-schema-compatibility-strategy GET {{topic}}/schemaCompatibilityStrategy; ?applied:flag -ap --applied
set-schema-compatibility-strategy PUT {{topic}}/schemaCompatibilityStrategy; @:text! --strategy -s
remove-schema-compatibility-strategy DELETE {{topic}}/schemaCompatibilityStrategy
set-subscription-dispatch-rate =set-rate topic; =global:flag --global -g; =subscription:text --subscription -s;
 .dispatchThrottlingRateInMsg:int=-1 --msg-dispatch-rate -md;
 .dispatchThrottlingRateInByte:int=-1 --byte-dispatch-rate -bd; .ratePeriodInSecond:int=1 --dispatch-rate-period -dt;
 .relativeToPublishRate:flag=false --relative-to-publish-rate -rp
"""
SCHEMAS: Final = """\
get =get-schema topic; =version:int -v --version; =all:flag -a --all-version
delete DELETE schemas/{place}/schema !; ?force:flag -f --force
upload POST schemas/{place}/schema; @:file! -f --filename
extract =extract-schema topic; =jar:text -j --jar; =type:text -t --type; =class:text -c --classname;
 =null:text -a --always-allow-null; =dry:flag -n --dry-run
metadata GET schemas/{place}/metadata
compatibility POST schemas/{place}/compatibility; @:file! -f --filename
"""
