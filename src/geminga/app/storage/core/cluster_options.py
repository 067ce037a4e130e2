"""The options of ``geminga initialize-cluster-metadata``: what they mean, and which make no sense. Pure.

Names and defaults are those of Pulsar's tool of that name. What it takes without a look (a URL of another scheme, a
name with a slash) is refused here: nothing could be reached under it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from geminga.metadata.core.zookeeper_address import ZooKeeperAddress, parse_zookeeper_address
from geminga.model.errors import ConfigurationError
from geminga.model.limits import TRANSACTION_COORDINATORS_MAX
from geminga.model.topic_name import is_valid_named_entity

#: Of a metadata store that is a file in a data directory.
SQLITE: Final = "sqlite:"
#: Bundles of the first namespaces unless told.
BUNDLES_DEFAULT: Final = 16
#: Coordinators of transactions where there are none, unless told.
COORDINATORS_DEFAULT: Final = 16
#: As a namespace may have.
BUNDLES_MAX: Final = 128
PROXY_PROTOCOLS: Final = ("SNI",)


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """As they were given; an empty text or None: not given."""

    cluster: str
    web_service_url: str
    metadata_store: str
    configuration_metadata_store: str = ""
    web_service_url_tls: str = ""
    broker_service_url: str = ""
    broker_service_url_tls: str = ""
    proxy_url: str = ""
    proxy_protocol: str = ""
    is_tls_enabled: bool = False
    auth_plugin: str = ""
    auth_parameters: str = ""
    bundles: int = 0
    #: None: as many as Pulsar's tool makes where there are none; those that are there stay.
    transaction_coordinators: int | None = None
    stream_storage_containers: int = 16
    session_timeout_ms: int = 30_000
    existing_bookkeeper: str = ""
    #: Files that configure a metadata store, by the option that names them.
    #: A file of ZooKeeper's client properties.
    store_config: str = ""
    configuration_store_config: str = ""

    @property
    def is_zookeeper(self) -> bool:
        """Whether that is where the metadata are to be."""
        return not self.metadata_store.startswith(SQLITE)


def check(options: ClusterOptions) -> None:
    """Raise ConfigurationError, which names the option, its value and what is expected."""
    if not is_valid_named_entity(options.cluster) or not options.cluster.isascii():
        raise ConfigurationError(f"--cluster {options.cluster!r}: expected letters, digits and -=:._")
    for option, url, schemes in (
        ("--web-service-url", options.web_service_url, ("http",)),
        ("--web-service-url-tls", options.web_service_url_tls, ("https",)),
        ("--broker-service-url", options.broker_service_url, ("pulsar",)),
        ("--broker-service-url-tls", options.broker_service_url_tls, ("pulsar+ssl",)),
        ("--proxy-url", options.proxy_url, ("pulsar", "pulsar+ssl")),
    ):
        if url or option == "--web-service-url":
            _check_url(option, url, schemes)
    if options.proxy_protocol and options.proxy_protocol not in PROXY_PROTOCOLS:
        raise ConfigurationError(f"--proxy-protocol {options.proxy_protocol}: expected SNI")
    asked = options.transaction_coordinators
    coordinators = COORDINATORS_DEFAULT if asked is None else asked
    for option, number, least, most in (
        ("--default-namespace-bundle-number", options.bundles, 0, BUNDLES_MAX),
        ("--initial-num-transaction-coordinators", coordinators, 1, TRANSACTION_COORDINATORS_MAX),
        ("--initial-num-stream-storage-containers", options.stream_storage_containers, 0, 1 << 31),
        ("--zookeeper-session-timeout-ms", options.session_timeout_ms, 1, 1 << 31),
    ):
        if not least <= number <= most:
            raise ConfigurationError(f"{option} {number}: expected a whole number from {least} to {most}")
    if options.existing_bookkeeper:
        raise ConfigurationError(
            f"--existing-bk-metadata-service-uri {options.existing_bookkeeper}: bookies whose metadata are elsewhere "
            "are named to the broker (bookkeeperMetadataServiceUri); leave it out"
        )
    if options.store_config and not options.is_zookeeper:
        raise ConfigurationError(
            f"--metadata-store-config-path {options.store_config}: there is nothing to configure; leave it out"
        )
    if options.configuration_store_config and not is_apart(options):
        raise ConfigurationError(
            f"--configuration-metadata-store-config-path {options.configuration_store_config}: without a "
            "--configuration-metadata-store of its own the file of --metadata-store-config-path counts; leave it out"
        )


def is_apart(options: ClusterOptions) -> bool:
    """Whether what clusters share is to be in a store of its own."""
    return options.configuration_metadata_store not in ("", options.metadata_store)


def _check_url(option: str, url: str, schemes: tuple[str, ...]) -> None:
    expected = " or ".join(f"{scheme}://host:port" for scheme in schemes)
    try:
        parts = urlsplit(url.partition(",")[0])
        is_good = parts.scheme in schemes and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_good = False
    if not is_good:
        raise ConfigurationError(f"{option} {url or '(nothing)'}: expected {expected}")


def metadata_store(options: ClusterOptions) -> str | ZooKeeperAddress:
    """The data directory whose metadata are meant, or the ZooKeeper; raises ConfigurationError."""
    store = options.metadata_store
    expected = f"expected {SQLITE}DIR, where DIR is that of geminga standalone --data DIR, or zk:host:port/path"
    if not store.removeprefix(SQLITE):
        raise ConfigurationError(f"--metadata-store {store or '(nothing)'}: {expected}")
    if store.startswith(SQLITE):
        return store.removeprefix(SQLITE)
    try:
        return parse_zookeeper_address(store)
    except ConfigurationError as error:
        raise ConfigurationError(f"--metadata-store {store}: {expected}") from error


def configuration_store(options: ClusterOptions) -> ZooKeeperAddress | None:
    """The ZooKeeper of what clusters share; None: that of the other metadata. Raises ConfigurationError."""
    if not is_apart(options):
        return None
    store = options.configuration_metadata_store
    expected = "expected zk:host:port/path, the same as --metadata-store, or nothing"
    if not options.is_zookeeper:
        raise ConfigurationError(
            f"--configuration-metadata-store {store}: a standalone shares its metadata with nobody; leave it out"
        )
    try:
        return parse_zookeeper_address(store)
    except ConfigurationError as error:
        raise ConfigurationError(f"--configuration-metadata-store {store}: {expected}") from error


def cluster_data(options: ClusterOptions) -> dict[str, str | bool]:
    """The fields of Pulsar's ``ClusterData`` that were given."""
    texts = {
        "serviceUrl": options.web_service_url,
        "serviceUrlTls": options.web_service_url_tls,
        "brokerServiceUrl": options.broker_service_url,
        "brokerServiceUrlTls": options.broker_service_url_tls,
        "proxyServiceUrl": options.proxy_url,
        "proxyProtocol": options.proxy_protocol,
        "authenticationPlugin": options.auth_plugin,
        "authenticationParameters": options.auth_parameters,
    }
    found: dict[str, str | bool] = {key: text for key, text in texts.items() if text}
    if options.is_tls_enabled:
        found["brokerClientTlsEnabled"] = True
    return found
