"""Namespaces, beside their policies of three commands each."""

from __future__ import annotations

from typing import Final

from geminga.app.administration.rows_policies import NAMESPACE_OFFLOAD, quota_row, rate_row

_AT: Final = "namespaces/{namespace}"
NAMESPACES: Final = f"""\
list GET namespaces/{{tenant}}
list-cluster GET /admin/namespaces/{{namespace}}
topics GET {_AT}/topics; ?mode:PERSISTENT/NON_PERSISTENT/ALL -m --mode;
 ?includeSystemTopic:flag -ist --include-system-topic
bundles GET {_AT}/bundles
destinations GET {_AT}/topics
policies GET {_AT}
create =create-namespace namespace; =clusters:list --clusters -c; =bundles:int=0 --bundles -b
delete DELETE {_AT} !; ?force:flag -f --force
permissions GET {_AT}/permissions
grant-permission POST {_AT}/permissions/{{role}}; /role:text! --role; @:list! --actions
revoke-permission DELETE {_AT}/permissions/{{role}}; /role:text! --role
subscription-permission GET {_AT}/permissions/subscription
grant-subscription-permission POST {_AT}/permissions/subscription/{{subscription_name}};
 /subscription_name:text! -s --subscription; @:list! -rs --roles
revoke-subscription-permission DELETE {_AT}/permissions/{{subscription_name}}/{{role}};
 /subscription_name:text! -s --subscription; /role:text! -r --role
set-clusters =set-namespace-clusters namespace; =clusters:list! --clusters -c;
 =alike:flag --compareTopicPartitions
get-clusters GET {_AT}/replication
set-allowed-clusters POST {_AT}/allowedClusters; @:list! --clusters -c
get-allowed-clusters GET {_AT}/allowedClusters
get-backlog-quotas GET {_AT}/backlogQuotaMap
set-backlog-quota POST {_AT}/backlogQuota; {quota_row()}
remove-backlog-quota DELETE {_AT}/backlogQuota;
 ?backlogQuotaType:destination_storage/message_age=destination_storage -t --type
get-message-ttl GET {_AT}/messageTTL
set-message-ttl POST {_AT}/messageTTL; @:seconds! --messageTTL -ttl
remove-message-ttl DELETE {_AT}/messageTTL
get-anti-affinity-group GET {_AT}/antiAffinity
set-anti-affinity-group POST {_AT}/antiAffinity; @:plain! --group -g
get-anti-affinity-namespaces GET namespaces/{{cluster}}/antiAffinity/{{group}}; ?tenant:text --tenant -p;
 /cluster:text! --cluster -c; /group:text! --group -g
delete-anti-affinity-group DELETE {_AT}/antiAffinity
set-bookie-affinity-group POST {_AT}/persistence/bookieAffinity;
 .bookkeeperAffinityGroupPrimary:text! --primary-group -pg;
 .bookkeeperAffinityGroupSecondary:text --secondary-group -sg
get-bookie-affinity-group GET {_AT}/persistence/bookieAffinity
delete-bookie-affinity-group DELETE {_AT}/persistence/bookieAffinity
unload =unload-namespace namespace; =bundle:text --bundle -b; =destination:text --destinationBroker -d
split-bundle =split-bundle namespace; =bundle:text+ --bundle -b; =type:LARGEST/HOT+ --bundle-type -bt;
 =unload:flag --unload -u; =algorithm:text --split-algorithm-name -san; =boundaries:ints --split-boundaries -sb
get-topic-positions GET {_AT}/{{bundle}}/topicHashPositions; /bundle:text! --bundle -b; ?topics:commas -tl --topic-list
set-replicator-dispatch-rate POST {_AT}/replicatorDispatchRate; {rate_row(is_relative=False)}
get-replicator-dispatch-rate GET {_AT}/replicatorDispatchRate
remove-replicator-dispatch-rate DELETE {_AT}/replicatorDispatchRate
clear-backlog =clear-backlog namespace !; =subscription:text --sub -s; =bundle:text --bundle -b;
 =force:flag --force -force
unsubscribe =unsubscribe namespace !; =subscription:text! --sub -s; =bundle:text --bundle -b
set-encryption-required POST {_AT}/encryptionRequired; @:flag^ --enable -e; @:off^ --disable -d
remove-deduplication-snapshot-interval POST {_AT}/deduplicationSnapshotInterval
get-encryption-required GET {_AT}/encryptionRequired
set-subscription-auth-mode POST {_AT}/subscriptionAuthMode; @:text! -m --subscription-auth-mode
get-subscription-auth-mode GET {_AT}/subscriptionAuthMode
get-compaction-threshold GET {_AT}/compactionThreshold
set-compaction-threshold PUT {_AT}/compactionThreshold; @:bytes! --threshold -t
remove-compaction-threshold DELETE {_AT}/compactionThreshold
get-offload-threshold =get-offload-threshold namespace
set-offload-threshold =offload-threshold namespace; =size:bytes+ --size -s; =time:seconds+ --time -t
get-offload-deletion-lag GET {_AT}/offloadDeletionLagMs
set-offload-deletion-lag PUT {_AT}/offloadDeletionLagMs; @:millis! --lag -l
clear-offload-deletion-lag DELETE {_AT}/offloadDeletionLagMs
get-schema-autoupdate-strategy GET {_AT}/schemaAutoUpdateCompatibilityStrategy
set-schema-autoupdate-strategy PUT {_AT}/schemaAutoUpdateCompatibilityStrategy;
 @:Full/Backward/Forward/BackwardTransitive/ForwardTransitive/FullTransitive/AlwaysCompatible/AutoUpdateDisabled
 --compatibility -c; @:disabled --disabled -d
get-schema-compatibility-strategy GET {_AT}/schemaCompatibilityStrategy
set-schema-compatibility-strategy PUT {_AT}/schemaCompatibilityStrategy; @:text! --compatibility -c
get-is-allow-auto-update-schema GET {_AT}/isAllowAutoUpdateSchema
set-is-allow-auto-update-schema POST {_AT}/isAllowAutoUpdateSchema; @:flag^ --enable -e; @:off^ --disable -d;
 ?allowAutoUpdateSchemaWithReplicator:flag --enable-for-replicator
get-schema-validation-enforce GET {_AT}/schemaValidationEnforced; ?applied:flag -ap --applied
set-schema-validation-enforce POST {_AT}/schemaValidationEnforced; @:flag^ --enable -e; @:off^ --disable -d
set-offload-policies POST {_AT}/offloadPolicies; {NAMESPACE_OFFLOAD}
remove-offload-policies DELETE {_AT}/removeOffloadPolicies
get-offload-policies GET {_AT}/offloadPolicies
set-property PUT {_AT}/property/{{key}}/{{value}}; /key:text! --key -k; /value:text! --value -v
get-property GET {_AT}/property/{{key}}; /key:text! --key -k
remove-property DELETE {_AT}/property/{{key}}; /key:text! --key -k
set-properties PUT {_AT}/properties; @:pairs! --properties -p
get-properties GET {_AT}/properties
clear-properties DELETE {_AT}/properties
get-resource-group GET {_AT}/resourcegroup
set-resource-group POST {_AT}/resourcegroup/{{group}}; /group:text! --resource-group-name -rgn
remove-resource-group DELETE {_AT}/resourcegroup
update-migration-state POST {_AT}/migration; @:flag=false --migrated
"""
