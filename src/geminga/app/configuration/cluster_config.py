"""The configuration of ``geminga broker``: what a standalone takes, and where its cluster's metadata and bookies are.

Keys and defaults are those of Pulsar's ``broker.conf``, which can be used as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from geminga.app.configuration.config import Config, build_settings, cluster_config_from, shown_assignment
from geminga.app.configuration.config_sources import ConfigEntry, from_assignment, from_environment, read_file
from geminga.app.configuration.core.unbuilt_keys import asked_in_vain
from geminga.app.configuration.zookeeper_client import with_client_config
from geminga.broker.ownership.core.broker_data import MODULAR_LOAD_MANAGER
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress, parse_zookeeper_address
from geminga.model.errors import ConfigurationError
from geminga.model.settings import setting

#: A session may not be shorter: the server looks at sessions every 2 s.
SESSION_MS_LEAST: Final = 4000
#: Keys that ask for protection between this broker and its bookies that is not there: with one it does not start.
BOOKIE_SECURITY: Final = ("bookkeeperClientAuthenticationPlugin",)


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Where the cluster's metadata and bookies are."""

    metadata_store_url: str = setting("metadataStoreUrl", "", "zk:host:port,host:port/chroot")
    #: Its name before Pulsar 2.11.
    zookeeper_servers: str = setting("zookeeperServers", "", "host:port,host:port/chroot")
    #: How the ZooKeeper is spoken to, that of the bookies included.
    metadata_store_config_path: str = setting(
        "metadataStoreConfigPath", "", "the path of a file of ZooKeeper's client properties"
    )
    #: What clusters share; nothing, or the same: there is one cluster.
    configuration_metadata_store_url: str = setting("configurationMetadataStoreUrl", "", "the same, or nothing")
    #: Of the bookies; empty: the metadata store.
    bookkeeper_metadata_service_uri: str = setting(
        "bookkeeperMetadataServiceUri", "", "metadata-store:zk:host:port or zk+hierarchical://host:port/ledgers"
    )
    #: Brokers of one cluster must have the same.
    load_manager_class_name: str = setting("loadManagerClassName", MODULAR_LOAD_MANAGER, MODULAR_LOAD_MANAGER)
    session_timeout_ms: int = setting(
        "metadataStoreSessionTimeoutMillis", 30_000, "milliseconds >= 4000", minimum=SESSION_MS_LEAST
    )


@dataclass(frozen=True, slots=True)
class BrokerProcessConfig:
    """Everything configured for a broker of its own."""

    config: Config
    #: Of the cluster's metadata.
    metadata: ZooKeeperAddress
    #: Of the ledgers': mostly the same.
    ledgers: ZooKeeperAddress
    session_timeout_ms: int


def load_broker_config(
    files: Sequence[str] = (), env: Mapping[str, str] | None = None, overrides: Sequence[str] = ()
) -> BrokerProcessConfig:
    """Configuration from ``files``, the environment ``env`` and ``key=value`` texts; raises ConfigurationError."""
    entries = [entry for path in files for entry in read_file(path)]
    entries += from_environment(env or {})
    entries += [from_assignment(text) for text in overrides]
    latest = {entry.key: entry for entry in entries}
    _refuse_security(latest)
    cluster = build_settings(ClusterConfig, latest)
    if cluster.load_manager_class_name != MODULAR_LOAD_MANAGER:
        raise ConfigurationError(
            f"{shown_assignment(latest['loadManagerClassName'])}: another load manager is not built, and a cluster "
            f"has one; expected {MODULAR_LOAD_MANAGER}, or nothing"
        )
    metadata = _metadata(cluster, latest)
    ledgers = metadata
    if cluster.bookkeeper_metadata_service_uri:
        ledgers = _address("bookkeeperMetadataServiceUri", cluster.bookkeeper_metadata_service_uri)
    path = cluster.metadata_store_config_path
    return BrokerProcessConfig(
        cluster_config_from(entries, ClusterConfig),
        with_client_config(metadata, path),
        with_client_config(ledgers, path),
        cluster.session_timeout_ms,
    )


def _refuse_security(latest: Mapping[str, ConfigEntry]) -> None:
    for key in BOOKIE_SECURITY:
        entry = latest.get(key)
        if entry is not None and asked_in_vain(key, entry.text) is not None:
            raise ConfigurationError(
                f"{shown_assignment(entry)}: a broker of this version speaks to its bookies without "
                "authentication, and does not start where it is asked for. Remove this key to run it without"
            )


def _metadata(cluster: ClusterConfig, latest: Mapping[str, ConfigEntry]) -> ZooKeeperAddress:
    key = "metadataStoreUrl" if cluster.metadata_store_url else "zookeeperServers"
    text = cluster.metadata_store_url or cluster.zookeeper_servers
    if not text:
        raise ConfigurationError(
            "metadataStoreUrl is not set: a broker of its own keeps its metadata in a ZooKeeper; expected "
            "metadataStoreUrl=zk:host:port,host:port. (geminga standalone has everything in one process)"
        )
    metadata = _address(key, text)
    shared = cluster.configuration_metadata_store_url
    if shared and _address("configurationMetadataStoreUrl", shared) != metadata:
        raise ConfigurationError(
            f"configurationMetadataStoreUrl={shared}: a store of its own for what clusters share is not built; "
            f"expected that of {key}, or nothing"
        )
    return metadata


def _address(key: str, text: str) -> ZooKeeperAddress:
    try:
        return parse_zookeeper_address(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{key}: {error}") from None
