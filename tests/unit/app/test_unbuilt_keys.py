"""What is asked for and not there: refused where it protects, named otherwise, quiet at Pulsar's defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from geminga.app.configuration.cluster_config import load_broker_config
from geminga.app.configuration.config import CONFIG_CLASSES, load_config
from geminga.app.configuration.core.unbuilt_keys import GROUPS, asked_in_vain
from geminga.app.configuration.known_keys import KNOWN_KEYS, KNOWN_PREFIXES
from geminga.app.servers.listeners import check_open_start
from geminga.model.errors import ConfigurationError
from geminga.model.settings import settings_of

ROOT = Path(__file__).parents[3]
KEYS = [key for group in GROUPS for key in group.keys]
REFUSED = [key for group in GROUPS if group.is_refused for key in group.keys]
#: What Apache Pulsar's broker.conf says about each key of the table that it gives a value other than false or 0.
PULSAR_DEFAULTS = {
    "managedLedgerReadEntryTimeoutSeconds": "0",
}


def value_of(key: str) -> str:
    """A value that asks for it."""
    if key.endswith("PortTls"):
        return "6651"
    return (
        "true"
        if re.search("nabled|Original|Endpoint|strictAuth|require|Require|Recovery|Skip|Clients|Name$", key)
        else "7"
    )


def test_keys_are_pulsars_and_stand_in_one_group() -> None:
    assert len(KEYS) == len(set(KEYS))
    assert {key for key in KEYS if key not in KNOWN_KEYS and not key.startswith(KNOWN_PREFIXES)} == set()


def test_what_has_an_effect_is_not_in_the_table() -> None:
    built = {key for config_class in CONFIG_CLASSES for key in settings_of(config_class)}
    assert set(KEYS) & built == set()


def test_everything_else_is_named_one_by_one(tmp_path) -> None:
    named = [key for key in KEYS if key not in REFUSED]
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value_of(key)}\n" for key in named))
    warnings = load_config([str(conf)]).warnings
    assert len(warnings) == len(named)
    for number, (key, warning) in enumerate(zip(named, warnings, strict=True), 1):
        assert warning.startswith(f"{key}=")
        assert f"broker.conf, line {number})" in warning


@pytest.mark.parametrize("key", REFUSED)
def test_who_asks_for_what_no_process_may_go_without_is_refused_by_name(key: str) -> None:
    topic = f"{key}=persistent://public/default/metadata-sync"
    for load, also in ((load_config, ()), (load_broker_config, ("metadataStoreUrl=zk:localhost:2181",))):
        with pytest.raises(ConfigurationError, match=rf"refused.*: {topic} \(--set\): .*which configurationM"):
            load(overrides=[*also, topic])
        load(overrides=[*also, f"{key}="])


def test_secrets_are_not_repeated() -> None:
    (warning,) = load_config(overrides=["tokenSecretKey=data:;base64,aGVsbG8="]).warnings
    assert "aGVsbG8" not in warning
    assert "tokenSecretKey=......" in warning


@pytest.mark.parametrize("key", KEYS)
def test_key_that_is_off_is_quiet(key: str) -> None:
    assert asked_in_vain(key, "") is None
    assert asked_in_vain(key, value_of(key)) is not None
    if not key.endswith("PortTls"):
        for text in ("false", "False", " 0 ", "0.0", "-1", PULSAR_DEFAULTS.get(key, "")):
            assert asked_in_vain(key, text) is None
            assert load_config(overrides=[f"{key}={text}"]).warnings == ()


def test_keys_of_protocol_handlers_are_named_though_they_are_not_pulsars() -> None:
    (warning,) = load_config(overrides=["kopSslProtocol=TLS"]).warnings
    assert warning.startswith("kopSslProtocol=TLS (--set) has no effect (Protocol handlers)")


def test_machinery_that_is_not_there_is_passed_over() -> None:
    keys = ["loadBalancerEnabled", "narExtractionDirectory", "numIOThreads", "webSocketNumIoThreads"]
    families = ["bookkeeper_opportunisticStriping", "brokerClient_operationTimeoutMs", "dbStorage_rocksDB_new"]
    assert load_config(overrides=[f"{key}=1" for key in [*keys, *families]]).warnings == ()


def test_documentation_lists_the_groups_with_their_keys() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    for group in GROUPS:
        rows = [line for line in text.splitlines() if line.startswith(f"| {group.what} |")]
        assert len(rows) == 1, group.what
        assert re.findall(r"`(\w+)`", rows[0]) == list(group.keys), group.what


#: Keys of Apache Pulsar's broker.conf that have another value than nothing, as it has them.
STOCK = """
brokerServicePort=6650
brokerServicePortTls=
webServicePortTls=
webServiceTlsProvider=Conscrypt
bindAddress=0.0.0.0
numOrderedExecutorThreads=8
clusterName=
subscriptionTypesEnabled=Exclusive,Shared,Failover,Key_Shared
maxUnackedMessagesPerSubscriptionOnBrokerBlocked=0.16
subscribeRatePeriodPerConsumerInSecond=30
dispatchThrottlingOnNonBacklogConsumerEnabled=true
delayedDeliveryTrackerFactoryClassName=org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory
delayedDeliveryMaxNumBuckets=-1
acknowledgmentAtBatchIndexLevelEnabled=false
maxMessagePublishBufferSizeInMB=
tlsCertRefreshCheckDurationSec=300
tlsEnabledWithKeyStore=false
tlsKeyStoreType=JKS
authenticationEnabled=false
authenticationRefreshCheckSeconds=60
authorizationProvider=org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider
saslJaasClientAllowedIds=.*pulsar.*
httpMaxRequestHeaderSize = 8192
httpRequestsLimitEnabled=false
httpRequestsMaxPerSecond=100.0
maxHttpServerConnections=2048
bookkeeperClientRackawarePolicyEnabled=true
bookkeeperTLSProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory
bookkeeper_tlsHostnameVerificationEnabled=false
managedLedgerDefaultEnsembleSize=2
managedLedgerDefaultWriteQuorum=2
managedLedgerDefaultAckQuorum=2
managedLedgerCacheSizeMB=
managedLedgerOffloadAutoTriggerSizeThresholdBytes=-1
managedLedgerOffloadThresholdInSeconds=-1
managedLedgerOffloadDriver=
managedLedgerTraceTaskExecution=true
loadBalancerEnabled=true
loadManagerClassName=org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl
loadBalancerSplitIntervalMinutes=1
replicationMetricsEnabled=true
replicatorPrefix=pulsar.repl
webSocketServiceEnabled=false
functionsWorkerEnabled=false
schemaRegistryStorageClassName=org.apache.pulsar.broker.service.schema.BookkeeperSchemaStorageFactory
fileSystemProfilePath=conf/filesystem_offload_core_site.xml
transactionCoordinatorEnabled=false
transactionMetadataStoreProviderClassName=org.apache.pulsar.transaction.coordinator.impl.MLTransactionMetadataStoreProvider
maxActiveTransactionsPerCoordinator=0
enablePackagesManagement=false
zooKeeperSessionTimeoutMillis=-1
replicationTlsEnabled=false
tlsEnabled=false
"""


def test_pulsars_own_file_starts_with_a_word_on_its_quorums_alone(tmp_path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(STOCK)
    config = load_config([str(conf)])
    (warning,) = config.warnings
    assert "lowered to 1" in warning
    # And listens where everybody is, as it says, if that is meant or somebody asks who they are.
    with pytest.raises(
        ConfigurationError, match=r"^bindAddress=0\.0\.0\.0: whoever reaches this machine can read, write"
    ):
        check_open_start(config.server)
    check_open_start(load_config([str(conf)], {}, ["gemingaAllowOpen=true"]).server)
    asking = ["authenticationEnabled=true", "anonymousUserRole=nobody"]
    check_open_start(load_config([str(conf)], {}, asking).server)
