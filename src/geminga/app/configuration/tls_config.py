"""TLS of a broker's ports, from Pulsar's keys. Loaded where one of them asks for something.

PEM files are named by ``tlsCertificateFilePath`` and its like; with ``tlsEnabledWithKeyStore`` PKCS#12 stores are by
``tlsKeyStore`` and ``tlsTrustStore``. ``tlsProvider`` chooses between implementations of Java's and says nothing here.
``tlsAllowInsecureConnection`` takes any certificate of clients in Pulsar; here one that is shown must always be good.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from geminga.model.errors import ConfigurationError
from geminga.model.secret import Secret
from geminga.model.settings import setting
from geminga.runtime.tls.contexts import Made, choose_by_name, server_context
from geminga.runtime.tls.following import FollowedContext
from geminga.runtime.tls.settings import Material, Named, PeerCertificate, Rules, check_protocols

_PORT: Final = "a port, 0 to 65535, or nothing"
_BINARY: Final = "brokerServicePortTls"
_HTTP: Final = "webServicePortTls"
BY_NAME: Final = "gemingaTlsCertificatesByName"
_NAMED: Final = "name=certificate.pem or name=certificate.pem;key.pem, comma separated"
_NAME: Final = re.compile(r"(?:\*\.)?(?:[a-z0-9_-]+\.)*[a-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Ports, files and rules of TLS."""

    #: Of the binary protocol (Pulsar's is 6651) and of HTTP (8443); 0: the kernel picks. None: there is none.
    broker_port: int | None = setting("brokerServicePortTls", None, _PORT, minimum=0, maximum=65535)
    web_port: int | None = setting("webServicePortTls", None, _PORT, minimum=0, maximum=65535)
    certificate: str = setting("tlsCertificateFilePath", "", "the path of a PEM file")
    private_key: str = setting("tlsKeyFilePath", "", "the path of a PEM file")
    #: Who issues clients' certificates.
    trust: str = setting("tlsTrustCertsFilePath", "", "the path of a PEM file")
    allows_insecure: bool = setting("tlsAllowInsecureConnection", False, "true or false")
    requires_client: bool = setting("tlsRequireTrustedClientCertOnConnect", False, "true or false")
    #: Seconds between two looks at the files; 0: at each new connection.
    refresh_s: int = setting("tlsCertRefreshCheckDurationSec", 300, "seconds >= 0", minimum=0)
    protocols: tuple[str, ...] = setting("tlsProtocols", (), "TLSv1.2, TLSv1.3, comma separated")
    ciphers: tuple[str, ...] = setting("tlsCiphers", (), "names of cipher suites, comma separated")
    #: Of HTTP, where they are others.
    web_protocols: tuple[str, ...] = setting("webServiceTlsProtocols", (), "TLSv1.2, TLSv1.3, comma separated")
    web_ciphers: tuple[str, ...] = setting("webServiceTlsCiphers", (), "names of cipher suites, comma separated")
    provider: str = setting("tlsProvider", "", "a name; without effect")
    web_provider: str = setting("webServiceTlsProvider", "", "a name; without effect")
    has_key_store: bool = setting("tlsEnabledWithKeyStore", False, "true or false")
    key_store_type: str = setting("tlsKeyStoreType", "JKS", "PKCS12, or JKS for a file that is PKCS#12")
    key_store: str = setting("tlsKeyStore", "", "the path of a PKCS#12 store")
    key_store_password: Secret = setting("tlsKeyStorePassword", Secret(""), "a password")
    trust_store_type: str = setting("tlsTrustStoreType", "JKS", "PKCS12, or JKS for a file that is PKCS#12")
    trust_store: str = setting("tlsTrustStore", "", "the path of a PKCS#12 store")
    trust_store_password: Secret = setting("tlsTrustStorePassword", Secret(""), "a password")
    #: Before Pulsar 2.0 it alone opened the ports.
    is_asked_for: bool = setting("tlsEnabled", False, "true or false")
    #: Geminga's own: which certificate is shown to who asks for which name (SNI).
    by_name: tuple[str, ...] = setting("gemingaTlsCertificatesByName", (), _NAMED)
    #: Whether the plain port of the binary protocol, and of HTTP, is not opened.
    replaces_broker_port: bool = False
    replaces_web_port: bool = False

    def instead_of_plain(self, empty: AbstractSet[str]) -> TlsConfig:
        """The same, given which keys were set to nothing: a plain port that is, beside one with TLS, is not opened."""
        return replace(
            self,
            replaces_broker_port=self.broker_port is not None and "brokerServicePort" in empty,
            replaces_web_port=self.web_port is not None and "webServicePort" in empty,
        )

    def check(self) -> None:
        """Raise ConfigurationError for keys that do not go together."""
        if self.is_asked_for and self.broker_port is None and self.web_port is None:
            raise ConfigurationError(
                f"tlsEnabled=true, and no port speaks TLS; expected {_BINARY}=6651 or {_HTTP}=8443"
            )
        for rules in (self.binary_rules, self.web_rules):
            check_protocols(rules)
        self._named()

    @property
    def material(self) -> Material:
        """Where certificate, key and trust are."""
        if self.has_key_store:
            return Material(
                Named("tlsKeyStore", self.key_store),
                Named("tlsKeyStore"),
                Named("tlsTrustStore", self.trust_store),
                "tlsKeyStorePassword",
                self.key_store_password.reveal(),
                "tlsTrustStorePassword",
                self.trust_store_password.reveal(),
            )
        return Material(
            Named("tlsCertificateFilePath", self.certificate),
            Named("tlsKeyFilePath", self.private_key),
            Named("tlsTrustCertsFilePath", self.trust),
        )

    @property
    def binary_rules(self) -> Rules:
        """Of the binary protocol."""
        return Rules("tlsProtocols", self.protocols, "tlsCiphers", self.ciphers)

    @property
    def web_rules(self) -> Rules:
        """Of HTTP: those of the binary protocol where nothing is said."""
        binary = self.binary_rules
        web = Rules("webServiceTlsProtocols", self.web_protocols, "webServiceTlsCiphers", self.web_ciphers)
        protocols = web[:2] if self.web_protocols else binary[:2]
        ciphers = web[2:] if self.web_ciphers else binary[2:]
        return Rules(*protocols, *ciphers)

    @property
    def peers(self) -> PeerCertificate:
        """What clients must show: as Pulsar, one is always asked for, and must be good if it comes."""
        return PeerCertificate.REQUIRED if self.requires_client else PeerCertificate.WANTED

    def context(self, rules: Rules, what: str) -> FollowedContext:
        """A context of a port, which follows its files; raises ConfigurationError."""
        material = self.material
        if not material.certificate.path:
            raise ConfigurationError(
                f"{material.certificate.key} is not set: {what} speaks TLS and needs a certificate with its key"
            )
        paths = [material.certificate.path, material.private_key.path, material.trust.path]
        paths += [path for files in self._named().values() for path in files]
        make = partial(self._made, material, rules)
        return FollowedContext(what, paths, make, at_each=self.refresh_s == 0)

    def _made(self, material: Material, rules: Rules) -> Made:
        made = server_context(material, rules, self.peers)
        named = {
            name: server_context(
                replace(
                    material, certificate=Named(BY_NAME, certificate), private_key=Named(BY_NAME, key), password=""
                ),
                rules,
                self.peers,
            ).context
            for name, (certificate, key) in self._named().items()
        }
        if named:
            choose_by_name(made.context, named)
        return made

    def _named(self) -> dict[str, tuple[str, str]]:
        """Name -> files of certificate and key; raises ConfigurationError."""
        found: dict[str, tuple[str, str]] = {}
        for text in self.by_name:
            name, equals, files = text.partition("=")
            certificate, _, key = files.partition(";")
            name = name.strip().lower()
            if not equals or not certificate.strip() or not _NAME.fullmatch(name):
                raise ConfigurationError(f"{BY_NAME}={text}: expected {_NAMED}")
            if name in found:
                raise ConfigurationError(f"{BY_NAME}={text}: {name} has a certificate already; expected each name once")
            found[name] = (certificate.strip(), key.strip())
        return found
