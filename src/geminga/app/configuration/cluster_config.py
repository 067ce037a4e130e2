"""The configuration of ``geminga broker``: what a standalone takes, and where its cluster's metadata and bookies are.

Keys and defaults are those of Pulsar's ``broker.conf``, which can be used as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from geminga.app.configuration.config import Config, build_settings, cluster_config_from, shown_assignment
from geminga.app.configuration.config_sources import ConfigEntry, collect_entries
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
    #: What clusters share: tenants, policies, clusters. Nothing: the metadata store.
    configuration_metadata_store_url: str = setting(
        "configurationMetadataStoreUrl", "", "zk:host:port,host:port/chroot, or nothing"
    )
    #: Its names before Pulsar 2.11 and 2.0.
    configuration_store_servers: str = setting("configurationStoreServers", "", "host:port,host:port/chroot")
    global_zookeeper_servers: str = setting("globalZookeeperServers", "", "host:port,host:port/chroot")
    #: How it is spoken to; nothing: as the metadata store is.
    configuration_store_config_path: str = setting(
        "configurationStoreConfigPath", "", "the path of a file of ZooKeeper's client properties"
    )
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
    #: Of what clusters share; that of ``metadata`` where this cluster has it to itself.
    configuration: ZooKeeperAddress

    @property
    def is_configuration_apart(self) -> bool:
        """Whether tenants and policies are in a store that other clusters may share."""
        return self.configuration != self.metadata


def load_broker_config(
    files: Sequence[str] = (), env: Mapping[str, str] | None = None, overrides: Sequence[str] = ()
) -> BrokerProcessConfig:
    """Configuration from ``files``, the environment ``env`` and ``key=value`` texts; raises ConfigurationError."""
    entries = collect_entries(files, env, overrides)
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
        _configuration(cluster, metadata),
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
    return _address(key, text)


def _configuration(cluster: ClusterConfig, metadata: ZooKeeperAddress) -> ZooKeeperAddress:
    """Where the configuration of clusters is; the first of the keys that says something counts, as in Pulsar."""
    path = cluster.metadata_store_config_path
    for key, text in (
        ("configurationMetadataStoreUrl", cluster.configuration_metadata_store_url),
        ("configurationStoreServers", cluster.configuration_store_servers),
        ("globalZookeeperServers", cluster.global_zookeeper_servers),
    ):
        if text.strip():
            address = _address(key, text)
            if address == metadata:
                break
            return with_client_config(address, cluster.configuration_store_config_path or path)
    return with_client_config(metadata, path)


def _address(key: str, text: str) -> ZooKeeperAddress:
    try:
        return parse_zookeeper_address(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{key}: {error}") from None
