"""A secured cluster's files as Apache's programs read them: keys apart from certificates, BookKeeper's own names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.chaos.secured import Security

from geminga.app.configuration.bookie_tls_config import FACTORY
from support.processes.certificates import parts_of

#: From the organizational unit of a certificate Apache's bookies read whom they let in (``BookieAuthZFactory``).
ROLE: Final = "broker"
UNIT: Final = f"0:{ROLE}"


def java_properties(security: Security, name: str) -> dict[str, str]:
    """Of a Java process that speaks to ZooKeeper by TLS."""
    lines = security.member(name).zookeeper.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines)


def bookies_file(security: Security, name: str) -> Path:
    """Further settings of Apache's bookies: who shows no certificate of ours, and this role, is not served at all."""
    certificate, key = parts_of(security.member(name).own)
    return _written(
        security.member(name).own.with_suffix(".bookie.conf"),
        {
            "tlsProviderFactoryClass": FACTORY,
            "tlsClientAuthentication": "true",
            "tlsKeyStoreType": "PEM",
            "tlsKeyStore": key,
            "tlsCertificatePath": certificate,
            "tlsTrustStoreType": "PEM",
            "tlsTrustStore": security.member(name).trust,
            "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.tls.BookieAuthZFactory",
            "authorizedRoles": ROLE,
        },
    )


def ledgers_file(security: Security, name: str) -> Path:
    """The same of Apache's ledger client."""
    certificate, key = parts_of(security.member(name).own)
    return _written(
        security.member(name).own.with_suffix(".client.conf"),
        {
            "tlsProviderFactoryClass": FACTORY,
            "tlsClientAuthentication": "true",
            "clientKeyStoreType": "PEM",
            "clientKeyStore": key,
            "tlsCertificatePath": certificate,
            "clientTrustStoreType": "PEM",
            "clientTrustStore": security.member(name).trust,
            "tlsHostnameVerificationEnabled": "true",
        },
    )


def broker_settings(security: Security, name: str) -> dict[str, object]:
    """Of Apache's broker: those of ours without what it does not know, and files that have a certificate or a key."""
    certificate, key = parts_of(security.member(name).own)
    ours = security.broker_settings(name)
    return {
        **{setting: value for setting, value in ours.items() if not setting.startswith("geminga")},
        "tlsCertificateFilePath": certificate,
        "tlsKeyFilePath": key,
        "brokerClientCertificateFilePath": certificate,
        "brokerClientKeyFilePath": key,
        "bookkeeperTLSCertificateFilePath": certificate,
        "bookkeeperTLSKeyFilePath": key,
        "bookkeeperTLSProviderFactoryClass": FACTORY,
        # TLS begins in version 3 of the protocol.
        "bookkeeperUseV2WireProtocol": "false",
    }


def _written(path: Path, settings: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return path
