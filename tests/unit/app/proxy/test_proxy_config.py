"""The configuration of a proxy: Pulsar's names and defaults, and what is said of the rest."""

from __future__ import annotations

import pytest

from geminga.app.configuration.proxy_config import IDLE, UNBUILT, ProxyServerConfig, load_proxy_config
from geminga.model.errors import ConfigurationError
from geminga.proxy.config import ProxyConfig

BROKER = "brokerServiceURL=pulsar://b:6650"


def test_defaults_are_pulsars_but_for_the_address() -> None:
    config = load_proxy_config(overrides=[BROKER])
    assert config.proxy == ProxyConfig(broker_url="pulsar://b:6650")
    assert config.server == ProxyServerConfig()
    assert (config.server.port, config.server.web_port, config.server.bind_address) == (6650, 8080, "127.0.0.1")
    assert config.proxy.allowed_ports == ("6650", "6651")
    assert config.warnings == ()
    assert config.metadata is config.authentication is config.tls is None


def test_ports_of_tls_and_credentials_have_the_proxys_names() -> None:
    config = load_proxy_config(
        overrides=[
            *("servicePort=", "servicePortTls=6651", "webServicePortTls=8443", "tlsEnabledWithBroker=true"),
            *("brokerServiceURLTLS=pulsar+ssl://b:6651", "tlsCertificateFilePath=c.pem", "tlsKeyFilePath=k.pem"),
            *("brokerClientAuthenticationPlugin=token", "brokerClientAuthenticationParameters=token:x"),
        ]
    )
    assert config.tls is not None
    assert (config.server.port, config.tls.broker_port, config.tls.web_port) == (None, 6651, 8443)
    assert config.links.uses_tls
    assert config.links.auth_plugin == "token"
    assert "token:x" not in repr(config)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ([], "neither brokerServiceURL nor metadataStoreUrl is set"),
        (["tlsEnabledWithBroker=true", BROKER], "neither brokerServiceURLTLS nor metadataStoreUrl"),
        ([BROKER, "checkActiveBrokers=true"], "metadataStoreUrl, which is not set"),
        (["metadataStoreUrl=nonsense://"], "metadataStoreUrl"),
        ([BROKER, "brokerProxyConnectTimeoutMs=0"], "brokerProxyConnectTimeoutMs=0"),
        ([BROKER, "maxConcurrentInboundConnections=0"], "maxConcurrentInboundConnections=0"),
        ([BROKER, "authenticationEnabled=true"], "authenticationProviders is empty"),
        ([BROKER, "servicePortTls=x"], "servicePortTls=x"),
        (
            [BROKER, "authenticationEnabled=true", "anonymousUserRole=a", "proxyRoles=p"],
            "takes none from another",
        ),
    ],
)
def test_what_can_not_be_is_said_at_the_start(overrides: list[str], told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_proxy_config(overrides=overrides)
    assert told in str(raised.value)


def test_what_is_not_built_and_what_nobody_knows_is_named() -> None:
    asked = [f"{key}=x" for key in UNBUILT if key != "tlsEnabledInProxy"]
    warnings = load_proxy_config(
        overrides=[BROKER, *asked, "noSuchKey=1", "forwardAuthorizationCredentials=true"]
    ).warnings
    assert len(warnings) == len(asked) + 2
    assert any("noSuchKey" in warning for warning in warnings)
    assert (
        load_proxy_config(overrides=[BROKER, *(f"{key}=" for key in UNBUILT), *(f"{key}=1" for key in IDLE)]).warnings
        == ()
    )


#: Of Apache's conf/proxy.conf 4.2, all that it sets to something.
CONF = """
metadataStoreSessionTimeoutMillis=30000 metadataStoreCacheExpirySeconds=300 bindAddress=0.0.0.0
haProxyProtocolEnabled=false proxyZeroCopyModeEnabled=true servicePort=6650 webServicePort=8080
webServiceTlsProvider=Conscrypt tlsEnabledWithKeyStore=false tlsKeyStoreType=JKS tlsTrustStoreType=JKS
brokerProxyAllowedTargetPorts=6650,6651 proxyLogLevel=0 authorizationEnabled=false
authorizationProvider=org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider
forwardAuthorizationCredentials=false authenticationEnabled=false tlsEnabledWithBroker=false
tlsCertRefreshCheckDurationSec=300 maxConcurrentInboundConnections=10000 maxConcurrentInboundConnectionsPerIp=0
maxConcurrentLookupRequests=50000 tlsEnabledInProxy=false tlsAllowInsecureConnection=false
tlsHostnameVerificationEnabled=false tlsRequireTrustedClientCertOnConnect=false httpOutputBufferSize=32768
httpRequestsLimitEnabled=false httpRequestsMaxPerSecond=100.0 httpServerThreadPoolQueueSize=8192
httpServerAcceptQueueSize=8192 maxHttpServerConnections=2048 maxConcurrentHttpRequests=1024
httpMaxRequestHeaderSize=8192 saslJaasClientAllowedIds=.*pulsar.* saslJaasServerSectionName=PulsarProxy
webSocketServiceEnabled=false zookeeperSessionTimeoutMs=-1 zooKeeperCacheExpirySeconds=-1
enableProxyStatsEndpoints=true authenticateMetricsEndpoint=true metricsBufferResponse=false
"""
#: And to nothing.
EMPTY = """
configurationMetadataStoreUrl brokerServiceURLTLS brokerWebServiceURL brokerWebServiceURLTLS statusFilePath
functionWorkerWebServiceURL functionWorkerWebServiceURLTLS advertisedAddress servicePortTls webServicePortTls
numIOThreads numAcceptorThreads tlsProvider tlsKeyStore tlsKeyStorePassword tlsTrustStore tlsTrustStorePassword
webServiceTlsProtocols webServiceTlsCiphers superUserRoles authenticationProviders anonymousUserRole
brokerClientAuthenticationPlugin brokerClientAuthenticationParameters brokerClientTrustCertsFilePath
tlsCertificateFilePath tlsKeyFilePath tlsTrustCertsFilePath tlsProtocols tlsCiphers httpReverseProxyConfigs
httpNumThreads basicAuthConf tokenSecretKey tokenPublicKey tokenAuthClaim tokenAudienceClaim tokenAudience
saslJaasServerRoleTokenSignerSecretPath clusterName globalZookeeperServers zookeeperServers configurationStoreServers
"""


def test_apaches_file_is_taken_as_it_is() -> None:
    config = load_proxy_config(overrides=[*CONF.split(), *(f"{key}=" for key in EMPTY.split()), BROKER])
    assert config.warnings == ()
    assert (config.server.bind_address, config.tls) == ("0.0.0.0", None)


def test_metrics_are_for_known_ones_as_in_pulsars_proxy() -> None:
    enabled = [BROKER, "authenticationEnabled=true", "anonymousUserRole=a"]
    for more, expected in (([], True), (["authenticateMetricsEndpoint=false"], False)):
        authentication = load_proxy_config(overrides=[*enabled, *more]).authentication
        assert authentication is not None
        assert authentication.authenticates_metrics is expected


TLS_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderTls"


@pytest.mark.parametrize(
    ("settings", "follows"),
    [
        ([], False),
        (["brokerClientAuthenticationPlugin=token", "brokerClientAuthenticationParameters=file:///t"], True),
        (["tlsEnabledWithBroker=true", "brokerServiceURLTLS=pulsar+ssl://b:6651"], True),
        (["servicePortTls=6651", "tlsCertificateFilePath=/c"], True),
        (["authenticationEnabled=true", f"authenticationProviders={TLS_PROVIDER}"], True),
    ],
)
def test_who_has_files_read_again_ends_no_proxy_that_has_some(settings: list[str], *, follows: bool) -> None:
    """SIGHUP; the credentials at brokers alone were none."""
    config = load_proxy_config(overrides=["brokerServiceURL=pulsar://b:6650", *settings])
    assert config.follows_files == follows
