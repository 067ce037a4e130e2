"""TLS where a bookie, or auto-recovery, answers HTTP: BookKeeper's ``httpServerTlsEnable``.

Loaded where it is asked for. It holds for the port of metrics alone too (``prometheusStatsHttpPort``), for which
BookKeeper has no TLS: who asks for it is not answered plainly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from geminga.model.errors import ConfigurationError
from geminga.model.secret import Secret
from geminga.model.settings import setting
from geminga.runtime.ports import ServerTls
from geminga.runtime.tls.contexts import Made, server_context
from geminga.runtime.tls.following import FollowedContext
from geminga.runtime.tls.settings import Material, Named, PeerCertificate, Rules

#: Seconds that a handshake may take.
HANDSHAKE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class BookieHttpTlsConfig:
    """Stores, which are PEM files or PKCS#12."""

    is_used: bool = setting("httpServerTlsEnable", False, "true or false")
    key_store: str = setting("httpServerKeyStorePath", "", "the path of a PEM file or of a PKCS#12 store")
    key_password: Secret = setting("httpServerKeyStorePassword", Secret(""), "a password")
    #: With it clients must show a certificate, as in BookKeeper.
    trust_store: str = setting("httpServerTrustStorePath", "", "the path of a PEM file or of a PKCS#12 store")
    trust_password: Secret = setting("httpServerTrustStorePassword", Secret(""), "a password")

    @property
    def knows_clients(self) -> bool:
        """Whether nobody is answered without a certificate."""
        return bool(self.trust_store)

    def served(self) -> ServerTls:
        """TLS of a port, whose files are looked at with each connection; raises ConfigurationError."""
        if not self.key_store:
            raise ConfigurationError(
                "httpServerKeyStorePath is not set: HTTP speaks TLS (httpServerTlsEnable=true) and needs a certificate "
                "with its key; expected a PEM file of both, or a PKCS#12 store"
            )
        followed = FollowedContext("HTTP", [self.key_store, self.trust_store], self._made, at_each=True)
        return ServerTls(followed.context, HANDSHAKE_S)

    def _made(self) -> Made:
        material = Material(
            Named("httpServerKeyStorePath", self.key_store),
            Named("httpServerKeyStorePath"),
            Named("httpServerTrustStorePath", self.trust_store),
            "httpServerKeyStorePassword",
            self.key_password.reveal(),
            "httpServerTrustStorePassword",
            self.trust_password.reveal(),
        )
        peers = PeerCertificate.REQUIRED if self.knows_clients else PeerCertificate.UNASKED
        return server_context(material, Rules(), peers)
