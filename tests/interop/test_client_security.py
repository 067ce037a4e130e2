"""Our client and its credentials: a token, a password, a certificate, an issuer's token, over TLS and without.

One broker asks for all of them. Apache's provider of OpenID Connect can be had of 4.0.8 only; it works in 4.2.4.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from tools.free_ports import free_ports
from tools.interop.apache_standalone import ApacheStandalone
from tools.interop.artifacts import BUILD, oidc_class_path
from tools.standalone_process import StandaloneProcess

import geminga.client.blocking as blocking
from geminga.admin.blocking import connect as connect_admin
from geminga.admin.errors import AdminError
from geminga.client import (
    AuthenticationBasic,
    AuthenticationError,
    AuthenticationOauth2,
    AuthenticationTLS,
    AuthenticationToken,
    AuthorizationError,
    ConnectError,
)
from support.house.signing import OTHER_SECRET, SECRET, in_text, token_of
from support.house.weekly_sample import sampled
from support.processes.certificates import Authority, parts_of
from support.processes.openid_issuer import OpenIdIssuer

pytestmark = pytest.mark.integration

PACKAGE = "org.apache.pulsar.broker.authentication."
#: ``hello``, as Apache's ``htpasswd -m`` stores it.
USERS = "\n".join(f"{name}:$apr1$abcdefgh$cy3DSYyOwfhsyu7QOMQzd." for name in ("jane", "stranger"))


class Secured(NamedTuple):
    """A broker that asks, and who can answer."""

    plain: tuple[str, str]
    tls: tuple[str, str]
    trust: str
    by: dict[str, Callable[[str], Any]]
    wrong: dict[str, Any]


class ApacheWithOpenId(ApacheStandalone):
    """Its class path has the provider."""

    def class_path(self) -> str:
        return oidc_class_path()


@pytest.fixture(scope="module")
def secured(judge_is_apache: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("security")
    authority, other = Authority(directory, "authority"), Authority(tmp_path_factory.mktemp("other"), "other")
    certificate, key = parts_of(authority.store("broker", "127.0.0.1"))
    ports = free_ports(2)
    with ExitStack() as stack:
        issuer = stack.enter_context(OpenIdIssuer("brokers"))
        settings = {
            "authenticationEnabled": "true",
            "authenticationProviders": ",".join(
                f"{PACKAGE}{name}"
                for name in (
                    "AuthenticationProviderToken",
                    "AuthenticationProviderBasic",
                    "AuthenticationProviderTls",
                    "oidc.AuthenticationProviderOpenID",
                )
            ),
            "tokenSecretKey": in_text(SECRET),
            "basicAuthConf": in_text(USERS.encode()),
            "openIDAllowedTokenIssuers": issuer.url,
            "openIDAllowedAudiences": issuer.audience,
            "openIDRequireIssuersUseHttps": "false",
            "authorizationEnabled": "true",
            "superUserRoles": "root",
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{token_of('root').decode()}",
            "brokerServicePortTls": ports[0],
            "webServicePortTls": ports[1],
            "tlsCertificateFilePath": certificate,
            "tlsKeyFilePath": key,
            "tlsTrustCertsFilePath": authority.certificate,
        }
        if judge_is_apache:
            log = BUILD / "security-apache.log"
            broker: StandaloneProcess = ApacheWithOpenId(directory / "apache", log=log, settings=settings)
        else:
            broker = StandaloneProcess(directory / "data", log=directory / "log", settings=settings)
        broker.headers["Authorization"] = f"Bearer {token_of('root').decode()}"
        stack.enter_context(broker)
        broker.request("POST", "/admin/v2/namespaces/public/default/permissions/jane", ["produce", "consume"])

        def certified(by: Authority) -> Callable[[str], AuthenticationTLS]:
            return lambda role: AuthenticationTLS(*map(str, parts_of(by.store(role))))

        yield Secured(
            plain=(broker.service_url, broker.web_url),
            tls=(f"pulsar+ssl://127.0.0.1:{ports[0]}", f"https://127.0.0.1:{ports[1]}"),
            trust=str(authority.certificate),
            by={
                "token": lambda role: AuthenticationToken(token_of(role).decode()),
                "callable": lambda role: AuthenticationToken(lambda: token_of(role).decode()),
                "password": lambda role: AuthenticationBasic(role, "hello"),
                "certificate": certified(authority),
                "issuer": lambda role: AuthenticationOauth2(issuer.parameters(role)),
            },
            wrong={
                "nothing": None,
                "token": AuthenticationToken(token_of("jane", secret=OTHER_SECRET).decode()),
                "expired": AuthenticationToken(token_of("jane", exp=1).decode()),
                "password": AuthenticationBasic("jane", "hallo"),
                "user": AuthenticationBasic("joe", "hello"),
                "certificate": certified(other)("jane"),
                "audience": AuthenticationOauth2(issuer.parameters("jane", "others")),
            },
        )


WAYS = ("plain", "tls")
CELLS = [
    (kind, way)
    for kind in ("token", "callable", "password", "certificate", "issuer")
    for way in WAYS
    if (kind, way) != ("certificate", "plain")
]


def connected(secured: Secured, way: str, authentication: Any) -> blocking.Client:
    options = {"tls_trust_certs_file_path": secured.trust, "tls_validate_hostname": True} if way == "tls" else {}
    if authentication is not None:
        options["authentication"] = authentication
    return blocking.connect(getattr(secured, way)[0], operation_timeout_ms=10_000, **options)


@pytest.mark.parametrize(("kind", "way"), sampled("who has the right", CELLS, 4, are_rows=True))
def test_who_has_the_right_publishes_consumes_and_looks(
    secured: Secured, fresh_topic: str, kind: str, way: str
) -> None:
    authentication = secured.by[kind]("jane")
    with connected(secured, way, authentication) as client:
        consumer = client.subscribe(fresh_topic, "sub")
        producer = client.create_producer(fresh_topic)
        for number in range(3):
            producer.send(b"%d" % number)
        for number in range(3):
            message = consumer.receive(timeout_millis=10_000)
            assert message.data() == b"%d" % number
            consumer.acknowledge(message)
    tls = ssl.create_default_context(cafile=secured.trust)
    if isinstance(authentication, AuthenticationTLS):
        tls.load_cert_chain(authentication.certificate_path, authentication.private_key_path)
    with connect_admin(getattr(secured, way)[1], authentication=authentication, tls=tls) as admin:
        assert fresh_topic in admin.topics.list("public/default")
        with pytest.raises(AdminError) as refused:
            admin.tenants.list()
        assert refused.value.status == 401


@pytest.mark.parametrize(("kind", "way"), sampled("who has no right", CELLS, 4, are_rows=True))
def test_who_is_known_and_has_no_right_is_told_so(secured: Secured, fresh_topic: str, kind: str, way: str) -> None:
    with connected(secured, way, secured.by[kind]("stranger")) as client, pytest.raises(AuthorizationError):
        client.create_producer(fresh_topic)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "kind",
    sampled(
        "who proves nothing",
        ["nothing", "token", "expired", "password", "user", "certificate", "audience"],
        3,
    ),
)
def test_who_proves_nothing_is_told_so(secured: Secured, fresh_topic: str, kind: str, way: str) -> None:
    # Over TLS a certificate of another authority ends the handshake; without TLS there is none to show.
    expected = (AuthenticationError, ConnectError) if kind == "certificate" else AuthenticationError
    with connected(secured, way, secured.wrong[kind]) as client, pytest.raises(expected):
        client.create_producer(fresh_topic)
