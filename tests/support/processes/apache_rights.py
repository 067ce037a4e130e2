"""Apache's standalone that asks for tokens, and knows the roles of the table of decisions."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.interop.apache_standalone import ApacheStandalone
from tools.interop.artifacts import BUILD

KEY = b"0123456789abcdef0123456789abcdef"
ANSWER_LIMIT_S = 2.0
#: Of what has to be there first.
SETUP_LIMIT_S = 60.0


def token(role: str, key: bytes = KEY, **claims: object) -> str:
    """A token of that role, signed with ``key``."""

    def encoded(part: bytes) -> str:
        return base64.urlsafe_b64encode(part).rstrip(b"=").decode()

    text = f"{encoded(json.dumps({'alg': 'HS256'}).encode())}.{encoded(json.dumps({'sub': role, **claims}).encode())}"
    return f"{text}.{encoded(hmac.new(key, text.encode(), hashlib.sha256).digest())}"


class Asked(ApacheStandalone):
    """Apache's standalone with authentication and authorization."""

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        role: str = "root",
        original: str = "",
        limit_s: float = ANSWER_LIMIT_S,
    ):
        connection = http.client.HTTPConnection("127.0.0.1", self.web_port, timeout=limit_s)
        headers = {"Authorization": f"Bearer {token(role)}"} if role else {}
        headers |= {"X-Original-Principal": original} if original else {}
        headers |= {} if body is None else {"Content-Type": "application/json"}
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except TimeoutError:
            # It was let in, and does something.
            return 0, b""
        finally:
            connection.close()

    def must(self, method: str, path: str, body: object = None) -> bytes:
        status, text = self.ask(
            method, f"/admin/v2{path}", None if body is None else json.dumps(body).encode(), limit_s=SETUP_LIMIT_S
        )
        assert status in (200, 204), (method, path, status, text)
        return text

    def _is_healthy(self) -> bool:
        try:
            health = self.ask("GET", "/admin/v2/brokers/health")
            return health[0] == 200 and b"public/default" in self.ask("GET", "/admin/v2/namespaces/public")[1]
        except (OSError, http.client.HTTPException):
            return False


@contextmanager
def running_asked(
    directory: Path,
    *,
    proxies: tuple[str, ...],
    topics: Mapping[str, Mapping[str, list[str]]],
    of_namespace: Mapping[str, list[str]],
) -> Iterator[Asked]:
    """One in which ``owner`` administers ``public`` and ``other-admin`` another tenant; ``root`` and ``proxy-root`` are
    super-users. ``topics``: made, with a subscription ``sub``, and who may do what there; ``of_namespace``: the same of
    ``public/default``."""
    classes = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
    settings = {
        "authenticationEnabled": "true",
        "authenticationProviders": classes,
        "tokenSecretKey": f"data:;base64,{base64.b64encode(KEY).decode()}",
        "authorizationEnabled": "true",
        "superUserRoles": "root,proxy-root",
        "proxyRoles": ",".join(proxies),
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token('root')}",
        "transactionCoordinatorEnabled": "true",
    }
    with Asked(directory / "apache", log=BUILD / "rights-apache.log", settings=settings) as broker:
        clusters = {"allowedClusters": ["standalone"]}
        broker.must("POST", "/tenants/public", {**clusters, "adminRoles": ["owner"]})
        broker.must("PUT", "/tenants/elsewhere", {**clusters, "adminRoles": ["other-admin"]})
        for role, actions in of_namespace.items():
            broker.must("POST", f"/namespaces/public/default/permissions/{role}", actions)
        for name, given in topics.items():
            path = f"/{name.replace('://', '/')}"
            broker.must("PUT", path)
            broker.must("PUT", f"{path}/subscription/sub", {"ledgerId": -1, "entryId": -1})
            for role, actions in given.items():
                broker.must("POST", f"{path}/permissions/{role}", actions)
        yield broker
