"""The same cluster with TLS and authentication on every link: nothing of it is spoken to in another way.

ZooKeeper, bookies and brokers take certificates of one authority alone and show one to each other; brokers ask
everybody for a token, each other too, and a role for its right. The clients are of a role that may produce and consume.
"""

from __future__ import annotations

import json
import ssl
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

import pulsar

from geminga.app.configuration.bookie_tls_config import FACTORY
from geminga.security.keys import secret_key
from geminga.security.token_rules import create_token
from support.processes.certificates import Authority
from tools.zookeeper_server import ServerTls

_PACKAGE: Final = "org.apache.pulsar."
#: Roles: of the brokers, of who administers, and of the clients.
BROKER: Final = "broker"
ADMIN: Final = "admin"
LOAD: Final = "load"
#: Seconds that a token of a client holds: renewed again and again during a run.
TOKEN_S: Final = 60.0
SECRET: Final = bytes(range(7, 71))


def token_of(role: str, life_s: float | None = None) -> str:
    """A token of this cluster."""
    until = {} if life_s is None else {"exp": time.time() + life_s}
    return create_token(secret_key(SECRET), "HS256", {"sub": role, **until}, {})


class Security:
    """Keys and certificates in ``directory``, and what each kind of process is told of them."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.authority = Authority(directory, "authority")
        self.trust = self.authority.certificate
        self._own = self.authority.store("member", "127.0.0.1")
        self._secret = directory / "secret.key"
        self._secret.write_bytes(SECRET)
        self._properties = directory / "zookeeper.properties"
        self._properties.write_text(
            "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\nzookeeper.client.secure=true\n"
            f"zookeeper.ssl.keyStore.location={self._own}\nzookeeper.ssl.trustStore.location={self.trust}\n"
        )
        self.zookeeper = ServerTls(self._own, self.trust)

    @property
    def bookie_settings(self) -> dict[str, object]:
        """Of a bookie."""
        return {
            "metadataStoreConfigPath": self._properties,
            "tlsProviderFactoryClass": FACTORY,
            "tlsKeyStore": self._own,
            "tlsTrustStore": self.trust,
            "tlsClientAuthentication": "true",
        }

    @property
    def broker_settings(self) -> dict[str, object]:
        """Of a broker: its ports without TLS are not there."""
        return {
            "metadataStoreConfigPath": self._properties,
            "brokerServicePort": "",
            "webServicePort": "",
            "tlsCertificateFilePath": self._own,
            "tlsTrustCertsFilePath": self.trust,
            "tlsHostnameVerificationEnabled": "true",
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": self.trust,
            "brokerClientCertificateFilePath": self._own,
            "bookkeeperTLSClientAuthentication": "true",
            "bookkeeperTLSKeyFilePath": self._own,
            "bookkeeperTLSTrustCertsFilePath": self.trust,
            "bookkeeper_tlsHostnameVerificationEnabled": "true",
            "authenticationEnabled": "true",
            "authenticationProviders": f"{_PACKAGE}broker.authentication.AuthenticationProviderToken",
            "tokenSecretKey": f"file://{self._secret}",
            "authenticationRefreshCheckSeconds": int(TOKEN_S / 2),
            "authorizationEnabled": "true",
            "superUserRoles": f"{BROKER},{ADMIN}",
            "brokerClientAuthenticationPlugin": f"{_PACKAGE}client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{token_of(BROKER)}",
        }

    def client_options(self) -> dict[str, Any]:
        """Of an official client: its token ends in :data:`TOKEN_S`, and is made anew each time it is asked for."""
        return {
            "tls_trust_certs_file_path": str(self.trust),
            "tls_validate_hostname": True,
            "authentication": pulsar.AuthenticationToken(lambda: token_of(LOAD, TOKEN_S)),
        }

    def grant(self, web_url: str) -> None:
        """Let the clients' role produce and consume in ``public/default``."""
        request = urllib.request.Request(
            f"{web_url.rstrip('/')}/admin/v2/namespaces/public/default/permissions/{LOAD}",
            json.dumps(["produce", "consume"]).encode(),
            method="POST",
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {token_of(ADMIN)}"},
        )
        context = ssl.create_default_context(cafile=str(self.trust))
        urllib.request.urlopen(request, context=context, timeout=60).close()
