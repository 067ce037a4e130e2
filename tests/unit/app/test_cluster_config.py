"""What ``geminga broker`` is configured by: a broker.conf as it is, and clear refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminga.app.configuration.cluster_config import BOOKIE_SECURITY, load_broker_config
from geminga.model.errors import ConfigurationError

ZK = "metadataStoreUrl=zk:a:2181,b:2181/root"


def test_metadata_and_ledgers_are_in_one_place_unless_told() -> None:
    loaded = load_broker_config(overrides=[ZK])
    assert str(loaded.metadata) == str(loaded.ledgers) == "zk:a:2181,b:2181/root"
    assert loaded.session_timeout_ms == 30_000
    loaded = load_broker_config(
        overrides=[ZK, "bookkeeperMetadataServiceUri=zk+hierarchical://c:2181;d:2181/bk/ledgers"]
    )
    assert (str(loaded.metadata), str(loaded.ledgers)) == ("zk:a:2181,b:2181/root", "zk:c:2181,d:2181/bk")
    loaded = load_broker_config(overrides=["zookeeperServers=old:2181", "configurationMetadataStoreUrl=zk:old:2181"])
    assert str(loaded.metadata) == "zk:old:2181"
    assert not loaded.is_configuration_apart


@pytest.mark.parametrize(
    ("texts", "configuration"),
    [
        ([], "zk:a:2181,b:2181/root"),
        (["configurationMetadataStoreUrl= "], "zk:a:2181,b:2181/root"),
        (["configurationMetadataStoreUrl=zk:a:2181,b:2181/all"], "zk:a:2181,b:2181/all"),
        (["configurationStoreServers=c:2181/all"], "zk:c:2181/all"),
        (["globalZookeeperServers=g:2181", "configurationStoreServers=c:2181"], "zk:c:2181"),
        (["globalZookeeperServers=g:2181", "configurationMetadataStoreUrl=zk:c:2181"], "zk:c:2181"),
        (["globalZookeeperServers=g:2181"], "zk:g:2181"),
    ],
)
def test_what_clusters_share_is_where_pulsars_keys_say(texts: list[str], configuration: str) -> None:
    loaded = load_broker_config(overrides=[ZK, *texts])
    assert str(loaded.configuration) == configuration
    assert loaded.is_configuration_apart == (configuration != "zk:a:2181,b:2181/root")
    assert loaded.config.warnings == ()


def test_the_shared_store_is_spoken_to_as_its_own_file_says(tmp_path: Path) -> None:
    for name in ("own", "shared"):
        (tmp_path / f"{name}.properties").write_text(f"geminga.zookeeper.digest={name}:secret\n")
    paths = [f"metadataStoreConfigPath={tmp_path}/own.properties", "configurationMetadataStoreUrl=zk:c:2181"]
    loaded = load_broker_config(overrides=[ZK, *paths])
    assert loaded.configuration.credentials == loaded.metadata.credentials
    paths.append(f"configurationStoreConfigPath={tmp_path}/shared.properties")
    loaded = load_broker_config(overrides=[ZK, *paths])
    assert loaded.configuration.credentials is not None
    assert loaded.configuration.credentials.user == "shared"


def test_quorums_are_pulsars_unless_told() -> None:
    ledgers = load_broker_config(overrides=[ZK]).config.managed_ledger
    assert (ledgers.ensemble_size, ledgers.write_quorum, ledgers.ack_quorum) == (2, 2, 2)
    said = [f"managedLedgerDefault{name}={value}" for name, value in (("EnsembleSize", 5), ("WriteQuorum", 3))]
    ledgers = load_broker_config(overrides=[ZK, *said, "managedLedgerDefaultAckQuorum=2"]).config.managed_ledger
    assert (ledgers.ensemble_size, ledgers.write_quorum, ledgers.ack_quorum) == (5, 3, 2)


def test_a_broker_takes_no_transactions_unless_told() -> None:
    assert not load_broker_config(overrides=[ZK]).config.broker.transaction_coordinator_enabled


def test_a_file_is_read_and_what_it_says_of_bookies_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("metadataStoreUrl=zk:z:1\njournalSyncData=false\nmetadataStoreSessionTimeoutMillis=8000\n")
    loaded = load_broker_config([str(file)])
    assert (str(loaded.metadata), loaded.session_timeout_ms) == ("zk:z:1", 8000)
    assert loaded.config.warnings == ()


@pytest.mark.parametrize(
    ("texts", "refusal"),
    [
        ([], "metadataStoreUrl is not set.*expected metadataStoreUrl=zk:host:port"),
        (["metadataStoreUrl=etcd://a:1"], "metadataStoreUrl: 'etcd://a:1' is no ZooKeeper; expected zk:"),
        (
            [ZK, "configurationMetadataStoreUrl=etcd://a:1"],
            "configurationMetadataStoreUrl: 'etcd://a:1' is no ZooKeeper",
        ),
        ([ZK, "bookkeeperMetadataServiceUri=zk://a/b"], "bookkeeperMetadataServiceUri: .*expected one that ends"),
        (
            [ZK, "loadManagerClassName=org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"],
            "loadManagerClassName=.*ExtensibleLoadManagerImpl.*another load manager is not built.*Modular",
        ),
        ([ZK, "metadataStoreSessionTimeoutMillis=100"], "metadataStoreSessionTimeoutMillis=100.*>= 4000"),
        ([ZK, "authenticationEnabled=true"], "authenticationEnabled=true.*nobody could prove who they are"),
        ([ZK, "managedLedgerDefaultEnsembleSize=2", "managedLedgerDefaultWriteQuorum=3"], "no more than the ensemble"),
    ],
)
def test_what_can_not_be_is_refused_by_name(texts: list[str], refusal: str) -> None:
    with pytest.raises(ConfigurationError, match=refusal):
        load_broker_config(overrides=texts)


@pytest.mark.parametrize("key", BOOKIE_SECURITY)
def test_protection_towards_bookies_is_refused_by_name(key: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{key}=true \(--set\): .*without authentication.*Remove this key"):
        load_broker_config(overrides=[ZK, f"{key}=true"])
    for nothing in ("", "false"):
        assert not any(key in each for each in load_broker_config(overrides=[ZK, f"{key}={nothing}"]).config.warnings)
