"""Tenants, clusters, brokers, bookies, quotas, transactions."""

from __future__ import annotations

from typing import Final

TENANTS: Final = """\
list GET tenants
get GET tenants/{tenant}
create =create-tenant tenant; =roles:list --admin-roles -r; =clusters:list --allowed-clusters -c
update =update-tenant tenant; =roles:list --admin-roles -r; =clusters:list --allowed-clusters -c
delete DELETE tenants/{tenant} !; ?force:flag -f --force
"""
_CLUSTER: Final = """\
.serviceUrl:text --url; .serviceUrlTls:text --url-secure; .brokerServiceUrl:text --broker-url;
 .brokerServiceUrlTls:text --broker-url-secure; .proxyServiceUrl:text --proxy-url;
 .authenticationPlugin:text --auth-plugin; .authenticationParameters:text --auth-parameters;
 .proxyProtocol:SNI --proxy-protocol; .brokerClientTlsEnabled:flag=false --tls-enable;
 .tlsAllowInsecureConnection:flag=false --tls-allow-insecure;
 .brokerClientTlsEnabledWithKeyStore:flag=false --tls-enable-keystore;
 .brokerClientTlsTrustStoreType:text=JKS --tls-trust-store-type; .brokerClientTlsTrustStore:text --tls-trust-store;
 .brokerClientTlsTrustStorePassword:text --tls-trust-store-pwd;
 .brokerClientTlsKeyStoreType:text=JKS --tls-key-store-type; .brokerClientTlsKeyStore:text --tls-key-store;
 .brokerClientTlsKeyStorePassword:text --tls-key-store-pwd;
 .brokerClientTrustCertsFilePath:text --tls-trust-certs-filepath;
 .brokerClientKeyFilePath:text --tls-key-filepath; .brokerClientCertificateFilePath:text --tls-certs-filepath;
 .brokerClientSslFactoryPlugin:text=org.apache.pulsar.common.util.DefaultPulsarSslFactory --tls-factory-plugin;
 .brokerClientSslFactoryPluginParams:text --tls-factory-plugin-params; .listenerName:text --listener-name;
 =file:file --cluster-config-file
"""
_DOMAIN: Final = "clusters/{cluster}/failureDomains/{domain}; /domain:text! --domain-name"
CLUSTERS: Final = f"""\
get GET clusters/{{cluster}}
create =create-cluster cluster; {_CLUSTER}\
update =update-cluster cluster; {_CLUSTER}\
delete =delete-cluster cluster !; =all:flag -a --all
list =list-clusters; =current:flag -c --current
update-peer-clusters POST clusters/{{cluster}}/peers; @:list! --peer-clusters
get-cluster-migration GET clusters/{{cluster}}/migrate
update-cluster-migration POST clusters/{{cluster}}/migrate; ?migrated:flag --migrated;
 .serviceUrl:text --service-url; .serviceUrlTls:text --service-url-secure; .brokerServiceUrl:text --broker-url;
 .brokerServiceUrlTls:text --broker-url-secure
get-peer-clusters GET clusters/{{cluster}}/peers
get-failure-domain GET {_DOMAIN}
create-failure-domain POST {_DOMAIN}; .brokers:list --broker-list
update-failure-domain POST {_DOMAIN}; .brokers:list --broker-list
delete-failure-domain DELETE {_DOMAIN}
list-failure-domains GET clusters/{{cluster}}/failureDomains
"""
_ISOLATION: Final = "clusters/{cluster}/namespaceIsolationPolicies"
ISOLATION: Final = f"""\
set =set-isolation cluster policy; =namespaces:list! --namespaces; =primary:list! --primary;
 =secondary:list --secondary; =type:text! --auto-failover-policy-type; =parameters:commaMap! \
--auto-failover-policy-params;
 =scope:all_matching/changed/none --unload-scope
get GET {_ISOLATION}/{{policy}}
list GET {_ISOLATION}
delete DELETE {_ISOLATION}/{{policy}}
brokers GET {_ISOLATION}/brokers
broker GET {_ISOLATION}/brokers/{{broker}}; /broker:text! --broker
"""
BROKERS: Final = """\
list GET brokers/{cluster?}
leader-broker GET brokers/leaderBroker
namespaces GET brokers/{cluster}/{broker}/ownedNamespaces; /broker:text! -u --url
update-dynamic-config POST brokers/configuration/{key}/{value}; /key:text! -c --config; /value:text! -v --value
delete-dynamic-config DELETE brokers/configuration/{key}; /key:text! -c --config
list-dynamic-config GET brokers/configuration
get-all-dynamic-config GET brokers/configuration/values
get-internal-config GET brokers/internal-configuration
get-runtime-config GET brokers/configuration/runtime
healthcheck GET brokers/health; ?topicVersion:V1/V2 -tv --topic-version
backlog-quota-check GET brokers/backlog-quota-check
version GET brokers/version
shutdown POST brokers/shutdown !; ?maxConcurrentUnloadPerSec:int=0 --max-concurrent-unload-per-sec -m;
 ?forcedTerminateTopic:flag=false --forced-terminate-topic -f
"""
BROKER_STATS: Final = """\
monitoring-metrics GET broker-stats/metrics; =indent:flag -i --indent
mbeans GET broker-stats/mbeans; =indent:flag -i --indent
topics GET broker-stats/topics; =indent:flag -i --indent
allocator-stats GET broker-stats/allocator-stats/{allocator}
load-report GET broker-stats/load-report
"""
BOOKIES: Final = """\
racks-placement GET bookies/racks-info
list-bookies GET bookies/all
get-bookie-rack GET bookies/racks-info/{bookie}; /bookie:text! -b --bookie
delete-bookie-rack DELETE bookies/racks-info/{bookie}; /bookie:text! -b --bookie
set-bookie-rack POST bookies/racks-info/{bookie}; ?group:text=default -g --group; /bookie:text! -b --bookie;
 .rack:text! -r --rack; .hostname:text -hn --hostname
"""
RESOURCE_QUOTAS: Final = """\
get =get-quota; =namespace:text --namespace -n; =bundle:text --bundle -b
set =set-quota; =namespace:text --namespace -n; =bundle:text --bundle -b; .msgRateIn:int! --msgRateIn -mi;
 .msgRateOut:int! --msgRateOut -mo; .bandwidthIn:int! --bandwidthIn -bi; .bandwidthOut:int! --bandwidthOut -bo;
 .memory:int! --memory -mem; .dynamic:flag=false --dynamic -d
reset-namespace-bundle-quota DELETE resource-quotas/{namespace}/{bundle}; /namespace:text! --namespace -n;
 /bundle:text! --bundle -b
"""
_GROUP: Final = (
    "resourcegroups/{group}; .publishRateInMsgs:int --msg-publish-rate -mp; .publishRateInBytes:int "
    "--byte-publish-rate -bp; .dispatchRateInMsgs:int --msg-dispatch-rate -md; .dispatchRateInBytes:int "
    "--byte-dispatch-rate -bd"
)
RESOURCE_GROUPS: Final = f"""\
list GET resourcegroups
get GET resourcegroups/{{group}}
create PUT {_GROUP}
update PUT {_GROUP}
delete DELETE resourcegroups/{{group}}
"""
PROXY_STATS: Final = """\
connections GET /proxy-stats/connections; =indent:flag -i --indent
topics GET /proxy-stats/topics; =indent:flag -i --indent
"""
#: Of Pulsar 5.
METADATA_MIGRATION: Final = """\
start POST metadata/migration/start; ?target:text! --target
status GET metadata/migration/status
"""
_TXN: Final = "/admin/v3/transactions"
_PLACE: Final = "/place:text! -t --topic"
_ID: Final = "/most:int! -m --most-sig-bits; /least:int! -l --least-sig-bits"
TRANSACTIONS: Final = f"""\
coordinators-list GET {_TXN}/coordinators
coordinator-stats GET {_TXN}/coordinatorStats; ?coordinatorId:int -c --coordinator-id
coordinator-internal-stats GET {_TXN}/coordinatorInternalStats/{{coordinator}}; /coordinator:int! -c --coordinator-id;
 ?metadata:flag -m --metadata
transaction-metadata GET {_TXN}/transactionMetadata/{{most}}/{{least}}; {_ID}
slow-transactions GET {_TXN}/slowTransactions/{{timeout_ms}}; ?coordinatorId:int -c --coordinator-id;
 /timeout_ms:millis! -t --time
abort-transaction POST {_TXN}/abortTransaction/{{most}}/{{least}} !; {_ID}
scale-transactionCoordinators POST {_TXN}/transactionCoordinator/replicas; @:int! -r --replicas
transaction-buffer-stats GET {_TXN}/transactionBufferStats/{{place}}; {_PLACE}; ?lowWaterMarks:flag -l --low-water-mark;
 ?segmentStats:flag -s --segment-stats
buffer-snapshot-internal-stats GET {_TXN}/transactionBufferInternalStats/{{place}}; {_PLACE};
 ?metadata:flag -m --metadata
transaction-in-buffer-stats GET {_TXN}/transactionInBufferStats/{{place}}/{{most}}/{{least}}; {_PLACE}; {_ID}
pending-ack-stats GET {_TXN}/pendingAckStats/{{place}}/{{subscription}}; {_PLACE};
 /subscription:text! -s --sub-name; ?lowWaterMarks:flag -l --low-water-mark
pending-ack-internal-stats GET {_TXN}/pendingAckInternalStats/{{place}}/{{subscription}}; {_PLACE};
 /subscription:text! -s --subscription-name; ?metadata:flag -m --metadata
transaction-in-pending-ack-stats GET {_TXN}/transactionInPendingAckStats/{{place}}/{{subscription}}/{{most}}/{{least}};
 {_PLACE}; /subscription:text! -s --sub-name; {_ID}
position-stats-in-pending-ack GET {_TXN}/positionStatsInPendingAck/{{place}}/{{subscription}}/{{ledger}}/{{entry}};
 {_PLACE}; /subscription:text! -s --subscription-name; /ledger:int! -l --ledger-id; /entry:int! -e --entry-id;
 ?batchIndex:int -b --batch-index
"""
