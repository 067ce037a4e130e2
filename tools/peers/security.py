"""What a broker and the programs are told when the checks run with security: keys, tokens, certificates.

Whoever runs the checks has a role of its own; what is administered goes by the token of a super-user. Everything is
made for one run, in its directory.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from geminga.security.keys import secret_key
from geminga.security.token_rules import create_token
from tools.interop.artifacts import ToolError

#: What ``--security`` takes.
KINDS: Final = ("token", "tls", "consume-only")
#: Whose the clients of the checks are, and who administers.
ROLE, OPERATOR = "peer", "operator"
#: What clients say of a refusal for want of rights: Go's and Java's names of the protocol's error.
REFUSED: Final = ("AuthorizationError", "AuthorizationException")
REQUEST_LIMIT_S: Final = 30.0
_PROVIDERS: Final = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
_CLIENT: Final = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


@dataclass(frozen=True)
class Security:
    """Of one run: settings of the broker, and arguments of the programs."""

    kind: str
    settings: dict[str, str]
    arguments: list[str]
    operator: str
    #: The token of whose the clients are.
    token: str
    tls_ports: tuple[int, int] | None
    #: File of the authority that signed the broker's certificate, where there is one.
    trust: Path | None = None

    def provision(self, web_url: str) -> None:
        """Who runs the checks administers ``public``, or may only consume in its default namespace."""
        # A client finds the coordinators of transactions by looking up a topic of this namespace.
        self._ask(web_url, f"/namespaces/pulsar/system/permissions/{ROLE}", ["consume"])
        if self.kind == "consume-only":
            self._ask(web_url, f"/namespaces/public/default/permissions/{ROLE}", ["consume"])
        else:
            tenant = {"adminRoles": [ROLE], "allowedClusters": ["standalone"]}
            self._ask(web_url, "/tenants/public", tenant)

    def _ask(self, web_url: str, path: str, body: object) -> None:
        headers = {"Authorization": f"Bearer {self.operator}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{web_url}/admin/v2{path}", json.dumps(body).encode(), headers, method="POST")
        urllib.request.urlopen(request, timeout=REQUEST_LIMIT_S).close()

    def urls(self, service_url: str, web_url: str) -> tuple[str, str]:
        """Where the programs connect."""
        if self.tls_ports is None:
            return service_url, web_url
        broker, web = self.tls_ports
        return f"pulsar+ssl://127.0.0.1:{broker}", f"https://127.0.0.1:{web}"

    def published(self, web_url: str) -> str:
        """Topics into which something was published though nobody may, by the broker's metrics; empty: none."""
        if self.kind != "consume-only":
            return ""
        with urllib.request.urlopen(f"{web_url}/metrics", timeout=REQUEST_LIMIT_S) as answer:
            lines = answer.read().decode().splitlines()
        counted = [line for line in lines if line.startswith("pulsar_in_messages_total{") and "public/" in line]
        # The broker itself writes policies into topics of two underscores.
        return "; ".join(line for line in counted if "/__" not in line and float(line.rpartition(" ")[2]) > 0)

    def excuses(self, problem: str) -> bool:
        """Whether a check that failed so did because its role may only consume."""
        return self.kind == "consume-only" and any(word in problem for word in REFUSED)


def prepare(kind: str, directory: Path, ports: list[int]) -> Security:
    """Keys and tokens, and for ``tls`` an authority and certificates; ``ports`` are two free ones."""
    secret = os.urandom(32)
    role, operator = (create_token(secret_key(secret), "HS256", {"sub": who}, {}) for who in (ROLE, OPERATOR))
    providers = [f"{_PROVIDERS}Token", *([f"{_PROVIDERS}Tls"] if kind == "tls" else [])]
    settings = {
        "authenticationEnabled": "true",
        "authenticationProviders": ",".join(providers),
        "tokenSecretKey": f"data:;base64,{base64.b64encode(secret).decode()}",
        "authorizationEnabled": "true",
        "superUserRoles": OPERATOR,
        "brokerClientAuthenticationPlugin": _CLIENT,
        "brokerClientAuthenticationParameters": f"token:{operator}",
    }
    arguments = ["-admin", operator]
    if kind != "tls":
        consumes = ["-consumer", ROLE] if kind == "consume-only" else []
        return Security(kind, settings, [*arguments, "-token", role, *consumes], operator, role, None)
    trust, own, peer = certificates(directory)
    settings |= {
        "brokerServicePortTls": str(ports[0]),
        "webServicePortTls": str(ports[1]),
        "tlsCertificateFilePath": f"{own}.cert.pem",
        "tlsKeyFilePath": f"{own}.key.pem",
        "tlsTrustCertsFilePath": str(trust),
    }
    arguments += ["-trust", str(trust), "-cert", f"{peer}.cert.pem", "-key", f"{peer}.key.pem"]
    return Security(kind, settings, arguments, operator, role, (ports[0], ports[1]), trust)


def certificates(directory: Path) -> tuple[Path, Path, Path]:
    """The authority's certificate, and the stems of the broker's and the client's files; raises ToolError."""
    trust, key = directory / "trust.pem", directory / "authority.key"
    _openssl("req", "-x509", *_NEW, str(key), "-out", str(trust), "-days", "2", "-subj", "/CN=authority")
    stems = []
    for name, addresses in (("127.0.0.1", "IP:127.0.0.1,DNS:localhost"), (ROLE, f"DNS:{ROLE}")):
        stem = directory / f"of-{name}"
        request, extensions = directory / f"{name}.csr", directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={addresses}\n", encoding="ascii")
        _openssl("req", *_NEW, f"{stem}.key.pem", "-out", str(request), "-subj", f"/CN={name}")
        signer = ["-CA", str(trust), "-CAkey", str(key), "-CAcreateserial", "-days", "2", "-extfile", str(extensions)]
        _openssl("x509", "-req", "-in", str(request), *signer, "-out", f"{stem}.cert.pem")
        stems.append(stem)
    return trust, stems[0], stems[1]


_NEW: Final = ("-newkey", "rsa:2048", "-nodes", "-keyout")


def _openssl(*arguments: str) -> None:
    try:
        done = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        raise ToolError("openssl: not here; it makes the certificates of --security tls") from None
    if done.returncode:
        raise ToolError(f"openssl {arguments[0]}: {done.stderr[-1000:]}")
