"""The options of ``initialize-cluster-metadata``: what they mean, and which make no sense."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from geminga.app.storage.core.cluster_options import (
    ClusterOptions,
    check,
    cluster_data,
    configuration_store,
    metadata_store,
)
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.model.errors import ConfigurationError

GOOD = ClusterOptions("c1", "http://h:8080", "sqlite:/data")


def test_what_is_given_is_the_clusters_data() -> None:
    check(GOOD)
    assert cluster_data(GOOD) == {"serviceUrl": "http://h:8080"}
    every = replace(
        GOOD,
        web_service_url_tls="https://h",
        broker_service_url="pulsar://a:6650,b:6650",
        broker_service_url_tls="pulsar+ssl://h:6651",
        proxy_url="pulsar+ssl://p:1",
        proxy_protocol="SNI",
        is_tls_enabled=True,
        auth_plugin="a.B",
        auth_parameters="x:y",
    )
    check(every)
    assert cluster_data(every) == {
        "serviceUrl": "http://h:8080",
        "serviceUrlTls": "https://h",
        "brokerServiceUrl": "pulsar://a:6650,b:6650",
        "brokerServiceUrlTls": "pulsar+ssl://h:6651",
        "proxyServiceUrl": "pulsar+ssl://p:1",
        "proxyProtocol": "SNI",
        "authenticationPlugin": "a.B",
        "authenticationParameters": "x:y",
        "brokerClientTlsEnabled": True,
    }


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"cluster": "c/1"}, "--cluster 'c/1'"),
        ({"cluster": ""}, "--cluster ''"),
        ({"web_service_url": ""}, "--web-service-url (nothing)"),
        ({"web_service_url": "pulsar://h:1"}, "expected http://host:port"),
        ({"web_service_url": "http://"}, "--web-service-url http://"),
        ({"web_service_url": "http://h:0"}, "--web-service-url http://h:0"),
        ({"web_service_url": "http://h:99999"}, "--web-service-url http://h:99999"),
        ({"web_service_url_tls": "http://h:1"}, "--web-service-url-tls"),
        ({"broker_service_url": "http://h:1"}, "--broker-service-url http://h:1"),
        ({"broker_service_url_tls": "pulsar://h:1"}, "--broker-service-url-tls"),
        ({"proxy_url": "http://h:1"}, "pulsar://host:port or pulsar+ssl://host:port"),
        ({"proxy_protocol": "TCP"}, "--proxy-protocol TCP"),
        ({"bundles": -1}, "--default-namespace-bundle-number -1"),
        ({"transaction_coordinators": 0}, "--initial-num-transaction-coordinators 0"),
        ({"stream_storage_containers": -1}, "--initial-num-stream-storage-containers -1"),
        ({"session_timeout_ms": 0}, "--zookeeper-session-timeout-ms 0"),
        ({"existing_bookkeeper": "zk+null://h:1/ledgers"}, "--existing-bk-metadata-service-uri zk+null://h:1/ledgers"),
        ({"store_config": "f"}, "--metadata-store-config-path f"),
        ({"configuration_store_config": "f"}, "--configuration-metadata-store-config-path f"),
    ],
)
def test_what_makes_no_sense_is_named_with_its_value(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check(replace(GOOD, **changes))
    assert told in str(raised.value)


def test_the_metadata_store_is_a_data_directory_or_a_zookeeper() -> None:
    assert metadata_store(GOOD) == "/data"
    assert metadata_store(replace(GOOD, metadata_store="zk:h:2181/c")) == ZooKeeperAddress(("h:2181",), "/c")
    for changes in (
        {"metadata_store": "rocksdb:/data"},
        {"metadata_store": "zk:h:0"},
        {"metadata_store": "sqlite:"},
        {"metadata_store": ""},
    ):
        with pytest.raises(ConfigurationError, match="metadata-store"):
            metadata_store(replace(GOOD, **changes))


def test_what_clusters_share_is_in_a_zookeeper_of_its_own_or_where_all_is() -> None:
    for same in ("", GOOD.metadata_store):
        assert configuration_store(replace(GOOD, configuration_metadata_store=same)) is None
    apart = replace(GOOD, metadata_store="zk:h:2181/c", configuration_metadata_store="zk:h:2181/all")
    assert configuration_store(apart) == ZooKeeperAddress(("h:2181",), "/all")
    check(replace(apart, configuration_store_config="f"))
    for changes in ({"metadata_store": "sqlite:/data"}, {"configuration_metadata_store": "zk:h:0"}):
        with pytest.raises(ConfigurationError, match="--configuration-metadata-store zk:h:"):
            configuration_store(replace(apart, **changes))
