"""Keys of Pulsar that ask for what Geminga does not have: which are refused at start, and which are named in a warning.

Where security was asked for, or that clusters are kept alike, starting without it would be worse than not starting:
nobody would see it before it is needed. What is merely absent is named, one line for each key with its value. A key
asks for nothing while it is empty or at the value that switches it off, which is Pulsar's default; so Pulsar's own
``broker.conf`` says nothing here. Keys that are in no group tune machinery that Geminga does not have (threads, Netty,
RocksDB, balancing of load between brokers): they promise nobody anything.

docs/configuration.md lists the same groups; a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

#: Values that switch a key off, in small letters.
_OFF: Final = frozenset({"", "false", "0", "0.0", "-1"})
#: How names of Apache's own classes begin.
_APACHES: Final = ("org.apache.pulsar.", "org.apache.bookkeeper.")


class Unbuilt(NamedTuple):
    """What the keys of a group ask for."""

    #: Such as "TLS": the group's name in the documentation.
    what: str
    #: What happens instead.
    instead: str
    keys: tuple[str, ...]
    #: Whether a process that was asked for it must not start.
    is_refused: bool = False
    #: Values that ask for nothing, in small letters.
    quiet: frozenset[str] = _OFF
    #: The keys name classes of Java: Apache's own, which Geminga has its own of, ask for nothing.
    are_classes: bool = False


def _keys(text: str) -> tuple[str, ...]:
    return tuple(text.split())


GROUPS: Final = (
    Unbuilt(
        "Credentials and roles",
        "nobody is asked who he is where authentication is off",
        _keys(
            "authenticationProviders authenticateOriginalAuthData authenticateMetricsEndpoint proxyRoles "
            "anonymousUserRole strictAuthMethod basicAuthConf tokenSecretKey tokenPublicKey tokenAuthClaim "
            "tokenAudience tokenAudienceClaim"
        ),
    ),
    Unbuilt(
        "Kerberos and Athenz",
        "there are no such providers",
        _keys("athenzDomainNames saslJaasServerRoleTokenSignerSecretPath"),
    ),
    Unbuilt(
        "Certificates",
        "no port speaks TLS (brokerServicePortTls=6651, webServicePortTls=8443)",
        _keys(
            "tlsEnabledWithKeyStore tlsRequireTrustedClientCertOnConnect tlsCertificateFilePath tlsKeyFilePath "
            "tlsTrustCertsFilePath tlsKeyStore tlsKeyStorePassword tlsTrustStore tlsTrustStorePassword tlsProtocols "
            "tlsCiphers tlsProvider tlsAllowInsecureConnection webServiceTlsProtocols webServiceTlsCiphers"
        ),
    ),
    Unbuilt(
        "Certificates of links to other brokers",
        "they are spoken to without TLS (brokerClientTlsEnabled=true)",
        _keys(
            "brokerClientTrustCertsFilePath brokerClientKeyFilePath brokerClientCertificateFilePath "
            "brokerClientTlsEnabledWithKeyStore brokerClientSslProvider tlsHostnameVerificationEnabled "
            "brokerClientTlsKeyStore brokerClientTlsKeyStorePassword brokerClientTlsTrustStore "
            "brokerClientTlsTrustStorePassword"
        ),
    ),
    Unbuilt(
        "Ciphers of links to other brokers",
        "TLS 1.2 and 1.3, and OpenSSL's ciphers, are spoken",
        _keys("brokerClientTlsCiphers brokerClientTlsProtocols"),
    ),
    Unbuilt(
        "Security between brokers and bookies",
        "bookies of the process need none, and those of a cluster are spoken to without",
        _keys(
            "replicationTlsEnabled bookkeeperTLSClientAuthentication "
            "bookkeeperTLSKeyFilePath bookkeeperTLSCertificateFilePath bookkeeperTLSTrustCertsFilePath "
            "bookkeeperTLSKeyStorePasswordPath bookkeeperTLSTrustStorePasswordPath "
            "bookkeeper_tlsHostnameVerificationEnabled bookkeeperClientAuthenticationPlugin "
            "bookkeeperClientAuthenticationParametersName bookkeeperClientAuthenticationParameters "
            "bookieAuthProviderFactoryClass"
        ),
    ),
    Unbuilt(
        "Other metadata and bookies",
        "this process keeps its own in its data directory",
        _keys(
            "metadataStoreUrl configurationMetadataStoreUrl metadataStoreConfigPath zookeeperServers "
            "configurationStoreServers globalZookeeperServers zkServers metadataServiceUri "
            "bookkeeperMetadataServiceUri configurationStoreConfigPath"
        ),
    ),
    Unbuilt(
        "The whole metadata store kept alike by a topic",
        "every write of one cluster, of its ledgers and cursors, too, would be made in the others, over what they know "
        "of their own. Nothing is to be kept alike but what administrators change, which "
        "configurationMetadataSyncEventTopic does",
        _keys("metadataSyncEventTopic"),
        is_refused=True,
    ),
    Unbuilt(
        "Placement of entries by failure domain",
        "racks, and groups of brokers and namespaces, hold",
        _keys("isolationGroups failureDomainsEnabled"),
    ),
    Unbuilt(
        "Limits",
        "there is no such limit",
        _keys(
            "topicFencingTimeoutSeconds managedLedgerReadEntryTimeoutSeconds "
            "managedLedgerAddEntryTimeoutSeconds managedLedgerInactiveLedgerRolloverTimeSeconds "
            "clientLibraryVersionCheckEnabled"
        ),
    ),
    Unbuilt(
        "Offloading to other stores than a directory or S3",
        "the broker's environment says who asks S3, and there are no other drivers",
        _keys(
            "s3ManagedLedgerOffloadRole gcsManagedLedgerOffloadBucket gcsManagedLedgerOffloadRegion "
            "gcsManagedLedgerOffloadServiceAccountKeyFile"
        ),
    ),
    Unbuilt(
        "The pace and the extent of migration between clusters",
        "a cluster or namespace that is marked as migrated is looked at each second, and its topics move",
        _keys("clusterMigrationCheckDurationSeconds topicMigrationEnabled"),
    ),
    Unbuilt(
        "Functions, packages, other protocols",
        "there is no such service",
        _keys(
            "functionsWorkerEnabled functionsWorkerEnablePackageManagement enablePackagesManagement "
            "messagingProtocols "
            "enableRunBookieAutoRecoveryTogether"
        ),
    ),
    Unbuilt(
        "Plug-ins in Java",
        "they are not loaded",
        _keys(
            "brokerInterceptors brokerEntryPayloadProcessors additionalServlets topicFactoryClassName "
            "additionalSystemCursorNames"
        ),
    ),
    Unbuilt(
        "Classes of Java in the place of Pulsar's own",
        "they are not loaded: what Geminga has does their work",
        _keys(
            "brokerClientSslFactoryPlugin compactionServiceFactoryClassName delayedDeliveryTrackerFactoryClassName "
            "dispatchRateLimiterFactoryClassName jvmGCMetricsLoggerClassName "
            "loadManagerServiceUnitStateTableViewClassName managedLedgerStorageClassName "
            "pulsarResourcesExtendedClassName resourceUsageTransportClassName schemaRegistryCompatibilityCheckers "
            "schemaRegistryStorageClassName sslFactoryPlugin topicBundleAssignmentStrategy "
            "topicPoliciesServiceClassName transactionBufferProviderClassName "
            "transactionMetadataStoreProviderClassName transactionPendingAckStoreProviderClassName"
        ),
        are_classes=True,
    ),
    Unbuilt(
        "Metrics of the health",
        "they are of the moment at which they are asked for",
        _keys("healthCheckMetricsUpdateTimeInSeconds"),
    ),
    Unbuilt(
        "Network interfaces that count as load",
        "all of the host's do",
        _keys("loadBalancerOverrideBrokerNics"),
    ),
    Unbuilt(
        "Skipping of data that can not be read",
        "it is given up by command, ledger by ledger: `geminga lake skip-hole`",
        _keys("autoSkipNonRecoverableData managedLedgerForceRecovery schemaLedgerForceRecovery lazyCursorRecovery"),
    ),
    Unbuilt(
        "Other behaviour",
        "it is not there",
        _keys("unblockStuckSubscriptionEnabled bootstrapNamespaces strictTopicNameEnabled"),
    ),
)

#: Keys of protocol handlers that are not Pulsar's own begin so.
HANDLER_PREFIXES: Final = ("kafka", "kop", "mqtt", "amqp")
_HANDLERS: Final = Unbuilt("Protocol handlers", "there is no such service", ())

_BY_KEY: Final[Mapping[str, Unbuilt]] = {key: group for group in GROUPS for key in group.keys}


def asked_in_vain(key: str, text: str) -> Unbuilt | None:
    """The group of ``key`` if ``key=text`` asks for something that is not there."""
    group = _BY_KEY.get(key)
    if group is None and key.startswith(HANDLER_PREFIXES):
        group = _HANDLERS
    if group is None or text.strip().lower() in group.quiet:
        return None
    return None if group.are_classes and _are_apaches(text) else group


def _are_apaches(text: str) -> bool:
    return all(name.strip().startswith(_APACHES) for name in text.split(",") if name.strip())
