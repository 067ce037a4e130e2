"""TLS between bookies and who uses them: BookKeeper's keys, and Pulsar's of a broker. Loaded where asked for.

BookKeeper names the file of the private key ``tlsKeyStore`` and that of whom to trust ``tlsTrustStore`` where they are
PEM; where ``tlsCertificatePath`` is not set, ``tlsKeyStore`` has both, PEM or PKCS#12. What a file is, its bytes tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from geminga.bookie.serving.entrance import BookieTls
from geminga.model.errors import ConfigurationError
from geminga.model.settings import setting
from geminga.runtime.ports import ServerTls
from geminga.runtime.tls.contexts import Made, client_context, server_context
from geminga.runtime.tls.following import FollowedContext
from geminga.runtime.tls.material import read_file
from geminga.runtime.tls.settings import Material, Named, PeerCertificate, Rules, check_protocols
from geminga.security.certificate_role import bookie_role_of_subject, subject_of

#: What BookKeeper's key names, and Pulsar's.
FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"
#: Who a client is, by its certificate; and what stands for nobody being asked.
AUTH_FACTORY = "org.apache.bookkeeper.tls.BookieAuthZFactory"
AUTH_OFF = (
    "",
    "null",
    "org.apache.bookkeeper.auth.AuthProviderFactoryFactory$AuthenticationDisabledAuthProviderFactory",
)


@dataclass(frozen=True, slots=True)
class BookieTlsConfig:
    """Of a bookie's port, and of who uses bookies from the same file (auto-recovery)."""

    factory: str = setting("tlsProviderFactoryClass", "", FACTORY)
    requires_client: bool = setting("tlsClientAuthentication", False, "true or false")
    certificate: str = setting("tlsCertificatePath", "", "the path of a PEM file")
    key_store: str = setting("tlsKeyStore", "", "the path of a PEM file or of a PKCS#12 store")
    key_store_type: str = setting("tlsKeyStoreType", "JKS", "PEM, PKCS12; what the file is counts")
    key_password_path: str = setting("tlsKeyStorePasswordPath", "", "the path of a file")
    trust_store: str = setting("tlsTrustStore", "", "the path of a PEM file or of a PKCS#12 store")
    trust_store_type: str = setting("tlsTrustStoreType", "JKS", "PEM, PKCS12; what the file is counts")
    trust_password_path: str = setting("tlsTrustStorePasswordPath", "", "the path of a file")
    protocols: tuple[str, ...] = setting("tlsEnabledProtocols", (), "TLSv1.2, TLSv1.3, comma separated")
    ciphers: tuple[str, ...] = setting("tlsEnabledCipherSuites", (), "names of cipher suites, comma separated")
    checks_name: bool = setting("tlsHostnameVerificationEnabled", False, "true or false")
    #: Seconds between two looks at the files; 0: never.
    refresh_s: int = setting("tlsCertFilesRefreshDurationSeconds", 0, "seconds >= 0", minimum=0)
    provider: str = setting("tlsProvider", "", "a name; without effect")
    #: Geminga's own: who asks without TLS is served, too, while it is being rolled out.
    is_optional: bool = setting("gemingaTlsOptional", False, "true or false")
    auth_factory: str = setting("bookieAuthProviderFactoryClass", "", AUTH_FACTORY)
    #: Of certificates; counted where the factory is named.
    authorized_roles: tuple[str, ...] = setting("authorizedRoles", (), "roles, comma separated")

    def check(self) -> None:
        """Raise ConfigurationError for another factory, and for versions that are not spoken."""
        _check_factory("tlsProviderFactoryClass", self.factory)
        check_protocols(self.rules)
        if self.auth_factory.strip() not in (*AUTH_OFF, AUTH_FACTORY):
            why = "SASL is not built" if "SASL" in self.auth_factory else "no such provider is known"
            raise ConfigurationError(
                f"bookieAuthProviderFactoryClass={self.auth_factory}: {why}; expected {AUTH_FACTORY}, by the role in "
                "a client's certificate"
            )
        if not self.knows_clients:
            if self.authorized_roles:
                raise ConfigurationError(
                    f"authorizedRoles={','.join(self.authorized_roles)}: every certificate would be served, for "
                    f"bookieAuthProviderFactoryClass is not set; expected {AUTH_FACTORY}"
                )
            return
        if not self.authorized_roles:
            raise ConfigurationError(
                f"bookieAuthProviderFactoryClass={self.auth_factory}: authorizedRoles is not set, and nobody would be "
                "served; expected roles of certificates, comma separated"
            )
        if self.is_optional:
            raise ConfigurationError(
                "gemingaTlsOptional=true: who asks without TLS shows no certificate, so that authorizedRoles would "
                "keep nobody away; expected false with bookieAuthProviderFactoryClass"
            )

    @property
    def knows_clients(self) -> bool:
        """Whether nobody is served without a certificate of one of the roles."""
        return self.auth_factory.strip() == AUTH_FACTORY

    def refusal(self, certificate: bytes | None) -> str:
        """Why who shows ``certificate`` (DER) has no right to anything; empty: it has."""
        if certificate is None:
            return "it shows no certificate"
        try:
            role = bookie_role_of_subject(subject_of(certificate))
        except ValueError as error:
            return f"its certificate gives no role: {error}"
        return "" if role in self.authorized_roles else "the role of its certificate is none of authorizedRoles"

    def material(self) -> Material:
        """Where certificate, key and trust are; raises ConfigurationError for files of passwords."""
        password = _password("tlsKeyStorePasswordPath", self.key_password_path)
        trust_password = _password("tlsTrustStorePasswordPath", self.trust_password_path)
        key = Named("tlsKeyStore", self.key_store)
        has_pair = bool(self.certificate)
        return Material(
            Named("tlsCertificatePath", self.certificate) if has_pair else key,
            key if has_pair else Named("tlsKeyStore"),
            Named("tlsTrustStore", self.trust_store),
            "tlsKeyStorePasswordPath",
            password,
            "tlsTrustStorePasswordPath",
            trust_password,
        )

    @property
    def rules(self) -> Rules:
        """Versions and ciphers."""
        return Rules("tlsEnabledProtocols", self.protocols, "tlsEnabledCipherSuites", self.ciphers)

    def served(self, handshake_s: float) -> tuple[BookieTls, FollowedContext]:
        """TLS of the bookie's port, and what follows its files; raises ConfigurationError."""
        if not self.key_store and not self.certificate:
            raise ConfigurationError(
                "tlsKeyStore is not set: the bookie speaks TLS and needs a certificate with its key; expected "
                "tlsCertificatePath and tlsKeyStore, PEM"
            )
        is_required = self.requires_client or self.knows_clients
        peers = PeerCertificate.REQUIRED if is_required else PeerCertificate.WANTED
        followed = _followed("the bookie's port", self, partial(self._server, peers))
        refusal = self.refusal if self.knows_clients else None
        return BookieTls(ServerTls(followed.context, handshake_s), self.is_optional, refusal), followed

    def used(self) -> FollowedContext:
        """What connections to bookies get; raises ConfigurationError."""
        return _followed("TLS to bookies", self, self._client)

    def paths(self) -> list[str]:
        """Of all files."""
        return [self.certificate, self.key_store, self.trust_store, self.key_password_path, self.trust_password_path]

    def _server(self, peers: PeerCertificate) -> Made:
        return server_context(self.material(), self.rules, peers)

    def _client(self) -> Made:
        return client_context(self.material(), self.rules, checks_name=self.checks_name)


@dataclass(frozen=True, slots=True)
class BrokerBookieTlsConfig:
    """Of a broker's connections to bookies."""

    is_used: bool = setting("bookkeeperTLSClientAuthentication", False, "true or false")
    factory: str = setting("bookkeeperTLSProviderFactoryClass", FACTORY, FACTORY)
    certificate: str = setting("bookkeeperTLSCertificateFilePath", "", "the path of a PEM file")
    private_key: str = setting("bookkeeperTLSKeyFilePath", "", "the path of a PEM file, or of a PKCS#12 store")
    key_type: str = setting("bookkeeperTLSKeyFileType", "PEM", "PEM, PKCS12; what the file is counts")
    key_password_path: str = setting("bookkeeperTLSKeyStorePasswordPath", "", "the path of a file")
    trust: str = setting("bookkeeperTLSTrustCertsFilePath", "", "the path of a PEM file, or of a PKCS#12 store")
    trust_type: str = setting("bookkeeperTLSTrustCertTypes", "PEM", "PEM, PKCS12; what the file is counts")
    trust_password_path: str = setting("bookkeeperTLSTrustStorePasswordPath", "", "the path of a file")
    refresh_s: int = setting("bookkeeperTlsCertFilesRefreshDurationSeconds", 300, "seconds >= 0", minimum=0)
    checks_name: bool = setting("bookkeeper_tlsHostnameVerificationEnabled", False, "true or false")

    def used(self) -> FollowedContext:
        """What connections to bookies get; raises ConfigurationError."""
        _check_factory("bookkeeperTLSProviderFactoryClass", self.factory)
        return _followed("TLS to bookies", self, self._client)

    def paths(self) -> list[str]:
        """Of all files."""
        return [self.certificate, self.private_key, self.trust, self.key_password_path, self.trust_password_path]

    def _client(self) -> Made:
        key = Named("bookkeeperTLSKeyFilePath", self.private_key)
        has_pair = bool(self.certificate)
        material = Material(
            Named("bookkeeperTLSCertificateFilePath", self.certificate) if has_pair else key,
            key if has_pair else Named("bookkeeperTLSKeyFilePath"),
            Named("bookkeeperTLSTrustCertsFilePath", self.trust),
            "bookkeeperTLSKeyStorePasswordPath",
            _password("bookkeeperTLSKeyStorePasswordPath", self.key_password_path),
            "bookkeeperTLSTrustStorePasswordPath",
            _password("bookkeeperTLSTrustStorePasswordPath", self.trust_password_path),
        )
        return client_context(material, Rules(), checks_name=self.checks_name)


def _followed(what: str, config: BookieTlsConfig | BrokerBookieTlsConfig, make: Callable[[], Made]) -> FollowedContext:
    return FollowedContext(what, config.paths(), make)


def _check_factory(key: str, factory: str) -> None:
    if factory.strip() != FACTORY:
        raise ConfigurationError(f"{key}={factory}: another factory of TLS is not built; expected {FACTORY}")


def _password(key: str, path: str) -> str:
    """What stands in a file, without the end of its line."""
    return read_file(Named(key, path)).decode(errors="replace").strip() if path else ""
