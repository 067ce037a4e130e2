"""The same cluster with TLS and authentication on every link: nothing of it is spoken to in another way.

ZooKeeper, bookies and brokers take certificates of one authority alone and show one to each other; brokers ask
everybody for a token, each other too, and a role for its right. The clients are of a role that may produce and consume.
"""

from __future__ import annotations

import json
import os
import ssl
import time
import urllib.request
from pathlib import Path
from typing import Any, Final, NamedTuple

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


#: Seconds between two looks at files.
LOOK_S: Final = 1


def token_of(role: str, life_s: float | None = None, *, secret: bytes = SECRET) -> str:
    """A token of this cluster."""
    until = {} if life_s is None else {"exp": time.time() + life_s}
    return create_token(secret_key(secret), "HS256", {"sub": role, **until}, {})


class Member(NamedTuple):
    """Files of one process, which it is told to look at: they may be exchanged under way."""

    #: Key and certificate; and whose certificates are taken.
    own: Path
    trust: Path
    #: How ZooKeeper is spoken to.
    zookeeper: Path

    def exchange(self, authority: Authority) -> None:
        """A new certificate, of ``authority``."""
        os.replace(authority.store(f"{self.own.stem}-new", "127.0.0.1"), self.own)

    def trusts(self, *authorities: Authority) -> None:
        """From now on these alone."""
        new = self.trust.with_suffix(".new")
        new.write_text("".join(each.certificate.read_text() for each in authorities))
        os.replace(new, self.trust)


class Security:
    """Keys and certificates in ``directory``, and what each process is told of them."""

    def __init__(self, directory: Path, *, unit: str = "") -> None:
        """``unit``: the organizational unit in every certificate, from which Apache's bookies read roles."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._unit = unit
        self.authority = Authority(directory, "authority")
        #: By the name of its process.
        self.members: dict[str, Member] = {}
        #: The keys of tokens: the first and the second one, equal at first.
        self.secrets = directory / "secret.key", directory / "second.key"
        for path in self.secrets:
            path.write_bytes(SECRET)
        #: What the brokers show each other.
        self.broker_token = directory / "broker.token"
        self.broker_token.write_text(token_of(BROKER))
        server = self.member("zookeeper")
        self.zookeeper = ServerTls(server.own, server.trust)

    def member(self, name: str) -> Member:
        """The files of a process, made when it is first asked for."""
        if name not in self.members:
            made = Member(*(self._directory / f"{name}{end}" for end in (".pem", ".trust.pem", ".properties")))
            # Java asks for the name that the address has, where it is the client of ZooKeeper.
            self.authority.store(name, "127.0.0.1", unit=self._unit, host="localhost")
            made.trusts(self.authority)
            made.zookeeper.write_text(
                "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\nzookeeper.client.secure=true\n"
                f"zookeeper.ssl.keyStore.location={made.own}\nzookeeper.ssl.trustStore.location={made.trust}\n"
            )
            self.members[name] = made
        return self.members[name]

    def bookie_settings(self, name: str) -> dict[str, object]:
        """Of a bookie."""
        member = self.member(name)
        return {
            "metadataStoreConfigPath": member.zookeeper,
            "tlsProviderFactoryClass": FACTORY,
            "tlsKeyStore": member.own,
            "tlsTrustStore": member.trust,
            "tlsClientAuthentication": "true",
            "tlsCertFilesRefreshDurationSeconds": LOOK_S,
        }

    def broker_settings(self, name: str) -> dict[str, object]:
        """Of a broker: its ports without TLS are not there."""
        member = self.member(name)
        return {
            "metadataStoreConfigPath": member.zookeeper,
            "brokerServicePort": "",
            "webServicePort": "",
            "tlsCertificateFilePath": member.own,
            "tlsTrustCertsFilePath": member.trust,
            "tlsHostnameVerificationEnabled": "true",
            "tlsCertRefreshCheckDurationSec": LOOK_S,
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": member.trust,
            "brokerClientCertificateFilePath": member.own,
            "bookkeeperTLSClientAuthentication": "true",
            "bookkeeperTLSKeyFilePath": member.own,
            "bookkeeperTLSTrustCertsFilePath": member.trust,
            "bookkeeper_tlsHostnameVerificationEnabled": "true",
            "bookkeeperTlsCertFilesRefreshDurationSeconds": LOOK_S,
            "authenticationEnabled": "true",
            "authenticationProviders": f"{_PACKAGE}broker.authentication.AuthenticationProviderToken",
            "tokenSecretKey": f"file://{self.secrets[0]}",
            "gemingaTokenSecondSecretKey": f"file://{self.secrets[1]}",
            "gemingaCredentialFilesRefreshSeconds": LOOK_S,
            "authenticationRefreshCheckSeconds": int(TOKEN_S / 2),
            "authorizationEnabled": "true",
            "superUserRoles": f"{BROKER},{ADMIN}",
            "brokerClientAuthenticationPlugin": f"{_PACKAGE}client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"file://{self.broker_token}",
        }

    def client_options(self) -> dict[str, Any]:
        """Of an official client: its token ends in :data:`TOKEN_S`, and is made anew each time it is asked for."""
        return {
            "tls_trust_certs_file_path": str(self.member("client").trust),
            "tls_validate_hostname": True,
            "authentication": pulsar.AuthenticationToken(
                lambda: token_of(LOAD, TOKEN_S, secret=self.secrets[1].read_bytes())
            ),
        }

    def grant(self, web_url: str) -> None:
        """Let the clients' role produce and consume in ``public/default``."""
        self.administer(
            web_url, "POST", f"/admin/v2/namespaces/public/default/permissions/{LOAD}", ["produce", "consume"]
        )

    def administer(self, web_url: str, method: str, path: str, body: object = None) -> bytes:
        """One request of HTTP, by who may everything; what is answered. Raises HTTPError."""
        request = urllib.request.Request(
            web_url.rstrip("/") + path,
            None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self.admin_token()}"},
        )
        context = ssl.create_default_context(cafile=str(self.member("client").trust))
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            found: bytes = answer.read()
            return found

    def admin_token(self) -> str:
        """Of who may everything, by the key that the second file holds: the newer one, where they differ."""
        return token_of(ADMIN, secret=self.secrets[1].read_bytes())
