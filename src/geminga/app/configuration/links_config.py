"""How a broker speaks to other brokers: Pulsar's ``brokerClient`` keys. Loaded where one of them asks for something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from geminga.model.errors import ConfigurationError
from geminga.model.secret import Secret
from geminga.model.settings import setting

if TYPE_CHECKING:
    from geminga.broker.access.core.handshake import Credentials
    from geminga.broker.access.ports import Authenticator
    from geminga.broker.authentication.authentication import OwnRole
    from geminga.broker.peers.links import PeerLinks
    from geminga.client import ClientArguments
    from geminga.runtime import Runtime


@dataclass(frozen=True, slots=True)
class LinksConfig:
    """Credentials, files and whether TLS is spoken."""

    uses_tls: bool = setting("brokerClientTlsEnabled", False, "true or false")
    auth_plugin: str = setting("brokerClientAuthenticationPlugin", "", "token, tls, basic, oauth2, or Pulsar's class")
    auth_params: Secret = setting("brokerClientAuthenticationParameters", Secret(""), "its parameters")
    trust: str = setting("brokerClientTrustCertsFilePath", "", "the path of a PEM file")
    certificate: str = setting("brokerClientCertificateFilePath", "", "the path of a PEM file")
    private_key: str = setting("brokerClientKeyFilePath", "", "the path of a PEM file")
    #: Pulsar's default, for certificates of brokers that name no hosts.
    checks_name: bool = setting("tlsHostnameVerificationEnabled", False, "true or false")
    provider: str = setting("brokerClientSslProvider", "", "a name; without effect")
    has_key_store: bool = setting("brokerClientTlsEnabledWithKeyStore", False, "true or false")
    key_store_type: str = setting("brokerClientTlsKeyStoreType", "JKS", "PKCS12, or JKS for a file that is PKCS#12")
    key_store: str = setting("brokerClientTlsKeyStore", "", "the path of a PKCS#12 store")
    key_store_password: Secret = setting("brokerClientTlsKeyStorePassword", Secret(""), "a password")
    trust_store_type: str = setting("brokerClientTlsTrustStoreType", "JKS", "PKCS12, or JKS for a file that is PKCS#12")
    trust_store: str = setting("brokerClientTlsTrustStore", "", "the path of a PKCS#12 store")
    trust_store_password: Secret = setting("brokerClientTlsTrustStorePassword", Secret(""), "a password")

    def _files(self) -> ClientArguments:
        if not self.has_key_store:
            return {
                "tls_trust_certs_file_path": self.trust,
                "tls_certificate_file_path": self.certificate,
                "tls_private_key_file_path": self.private_key,
            }
        return {
            "tls_trust_certs_file_path": self.trust_store,
            "tls_trust_certs_password": self.trust_store_password.reveal(),
            "tls_certificate_file_path": self.key_store,
            "tls_certificate_password": self.key_store_password.reveal(),
        }

    def own_role(self, runtime: Runtime, authenticator: Authenticator) -> OwnRole | None:
        """Who this broker is to others, by its own ``authenticator``; None: it shows them nothing."""
        if not self.auth_plugin:
            return None
        from geminga.broker.authentication.authentication import OwnRole

        async def credentials() -> Credentials | None:
            return await self.links().credentials(runtime)

        return OwnRole(authenticator, credentials, runtime.clock.monotonic)

    def links(self) -> PeerLinks:
        """The same, ready for use; raises ConfigurationError for what can not be, files among it."""
        from geminga.broker.peers.links import PeerLinks
        from geminga.client import ClientOptions, InvalidConfiguration, authentication_from

        try:
            authentication = authentication_from(self.auth_plugin, self.auth_params.reveal())
            found = PeerLinks(
                {
                    "authentication": authentication,
                    **self._files(),
                    "tls_validate_hostname": self.checks_name,
                },
                uses_tls=self.uses_tls,
            )
            if self.uses_tls:
                # What is wrong with a file is said at the start, not by links that fail.
                ClientOptions(**found.client_arguments).tls_made()
        except InvalidConfiguration as error:
            raise ConfigurationError(f"links to other brokers (brokerClient...): {error}") from error
        return found
