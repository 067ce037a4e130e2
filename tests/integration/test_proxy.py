"""Clients through a proxy: the official one and ours, with roles and TLS, and what reaches nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pulsar
import pytest

import geminga
import geminga.client as gc
from geminga.app.administration.groups import commands_of
from geminga.app.container.core.words import pulsar_call
from geminga.app.proxy.command import proxy as command
from geminga.app.proxy.web import ProxyWeb
from support.house.signing import SECRET, in_text, token_of
from support.processes.certificates import Authority
from support.processes.official import quiet_client
from support.processes.served_proxy import ServedProxy

pytestmark = [pytest.mark.integration, pytest.mark.geminga_only("the proxy is ours")]

PACKAGE = "org.apache.pulsar.broker.authentication."
TOKENS = {
    "authenticationEnabled": "true",
    "authenticationProviders": f"{PACKAGE}AuthenticationProviderToken",
    "tokenSecretKey": in_text(SECRET),
}
TOPIC = "persistent://public/default/through"


def token(role: str) -> str:
    return token_of(role, exp=time.time() + 1000).decode()


@pytest.fixture(scope="module")
def broker() -> Iterator[geminga.Standalone]:
    """It knows ``proxy`` as one, and verifies what that one passes on."""
    config = {
        **TOKENS,
        "authorizationEnabled": "true",
        "superUserRoles": "proxy,admin",
        "proxyRoles": "proxy",
        "authenticateOriginalAuthData": "true",
    }
    with geminga.Standalone(config=config) as running:
        yield running


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


@pytest.fixture(scope="module")
def proxy(broker: geminga.Standalone, authority: Authority) -> Iterator[ServedProxy]:
    certificate = authority.store("door", "127.0.0.1")
    with ServedProxy(
        *(f"{key}={value}" for key, value in TOKENS.items()),
        f"brokerServiceURL={broker.service_url}",
        f"brokerWebServiceURL={broker.web_service_url}",
        f"brokerProxyAllowedTargetPorts={urlsplit(broker.service_url).port}",
        "brokerClientAuthenticationPlugin=token",
        f"brokerClientAuthenticationParameters=token:{token('proxy')}",
        "forwardAuthorizationCredentials=true",
        *("servicePortTls=0", "webServicePortTls=0", "tlsEnabledWithKeyStore=true", f"tlsKeyStore={certificate}"),
        *("tlsKeyStoreType=PKCS12", "haProxyProtocolEnabled=false"),
    ) as served:
        yield served


def test_the_official_client_works_through_it(proxy: ServedProxy, tmp_path: Path) -> None:
    client = quiet_client(proxy.url, tmp_path, authentication=pulsar.AuthenticationToken(token("admin")))
    producer = client.create_producer(f"{TOPIC}-official", schema=pulsar.schema.StringSchema())
    consumer = client.subscribe(f"{TOPIC}-official", "s", schema=pulsar.schema.StringSchema())
    for number in range(20):
        producer.send(f"message {number}")
    for number in range(20):
        message = consumer.receive(10_000)
        assert message.value() == f"message {number}"
        consumer.acknowledge(message)
    assert client.get_topic_partitions(f"{TOPIC}-official") == [f"{TOPIC}-official"]
    client.close()
    assert proxy.counters["pulsar_proxy_lookup_requests"] > 0


@pytest.mark.parametrize("with_tls", [False, True])
def test_ours_works_through_it(proxy: ServedProxy, authority: Authority, *, with_tls: bool) -> None:
    asyncio.run(ours(proxy, authority, with_tls=with_tls))


async def ours(proxy: ServedProxy, authority: Authority, *, with_tls: bool) -> None:
    options = {"tls_trust_certs_file_path": str(authority.certificate)} if with_tls else {}
    credentials = gc.AuthenticationToken(token("admin"))
    async with gc.connect(proxy.tls_url if with_tls else proxy.url, authentication=credentials, **options) as client:
        async with client.create_producer(f"{TOPIC}-{with_tls}") as producer:
            large = b"x" * 3_000_000
            for payload in (b"first", large):
                await producer.send(payload)
        reader = await client.create_reader(f"{TOPIC}-{with_tls}", gc.MessageId.earliest)
        assert [(await reader.read_next()).data() for _ in range(2)] == [b"first", large]


def test_a_role_may_no_more_than_at_the_broker(proxy: ServedProxy, tmp_path: Path) -> None:
    client = quiet_client(proxy.url, tmp_path, authentication=pulsar.AuthenticationToken(token("jane")))
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(f"{TOPIC}-jane")
    client.close()
    with pytest.raises(gc.AuthenticationError):
        asyncio.run(produced(proxy.url, authentication=gc.AuthenticationToken("nonsense")))


async def produced(url: str, **options) -> None:
    async with gc.connect(url, operation_timeout_ms=300, **options) as client, client.create_producer(TOPIC):
        pass


def get(url: str, *headers: tuple[str, str], method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_administration_asks_as_whom_the_proxy_found(proxy: ServedProxy, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    admin, jane = (("Authorization", f"Bearer {token(role)}") for role in ("admin", "jane"))
    status, text = get(f"{proxy.web_url}/admin/v2/tenants", admin)
    assert (status, json.loads(text)) == (200, ["public", "pulsar"])
    assert get(f"{proxy.web_url}/admin/v2/tenants", jane)[0] == 401
    assert get(f"{proxy.web_url}/admin/v2/tenants", jane, ("X-Original-Principal", "admin"))[0] == 401
    assert get(f"{proxy.web_url}/admin/v2/tenants")[0] == 401
    status, text = get(f"{proxy.web_url}/lookup/v2/topic/persistent/public/default/x?token=query-secret", admin)
    assert status == 200
    shown = caplog.text
    assert "query-secret" not in shown
    assert token("admin")[:40] not in shown


def test_it_tells_of_itself(proxy: ServedProxy) -> None:
    assert get(f"{proxy.web_url}/status.html") == (200, "OK")
    assert get(f"{proxy.web_url}/health")[0] == 200
    assert get(f"{proxy.web_url}/metrics")[0] == 401, "as Pulsar's proxy, where somebody is asked who they are"
    status, text = get(f"{proxy.web_url}/metrics", ("Authorization", f"Bearer {token('jane')}"))
    assert status == 200
    for name in ("active_connections", "new_connections", "rejected_connections", "binary_ops", "binary_bytes"):
        assert f"\npulsar_proxy_{name} " in text
    # As the commands of the group proxy-stats ask a proxy's own port.
    assert {one.path for one in commands_of("proxy-stats").values()} == {
        "/proxy-stats/connections",
        "/proxy-stats/topics",
    }
    assert get(f"{proxy.web_url}/proxy-stats/connections", ("Authorization", f"Bearer {token('jane')}"))[0] == 200
    assert get(f"{proxy.web_url}/proxy-stats/topics", ("Authorization", f"Bearer {token('jane')}"))[0] == 412
    assert get(f"{proxy.web_url}/other")[0] == 404


def test_addresses_go_along_in_the_proxy_header_before_tls(tmp_path: Path, authority: Authority) -> None:
    config = {
        "haProxyProtocolEnabled": "true",
        "gemingaHaProxyProtocolRequired": "true",
        "brokerServicePortTls": "0",
        "webServicePortTls": "0",
        "tlsEnabledWithKeyStore": "true",
        "tlsKeyStore": str(authority.store("inside", "127.0.0.1")),
        "tlsKeyStoreType": "PKCS12",
    }
    with geminga.Standalone(config=config) as broker:
        with ServedProxy(
            *("haProxyProtocolEnabled=true", "tlsEnabledWithBroker=true", "tlsHostnameVerificationEnabled=true"),
            f"brokerClientTrustCertsFilePath={authority.certificate}",
            f"brokerServiceURLTLS={broker.service_url_tls}",
            f"brokerWebServiceURLTLS={broker.web_service_url_tls}",
            f"brokerProxyAllowedTargetPorts={urlsplit(broker.service_url_tls).port}",
        ) as proxy:
            client = quiet_client(proxy.url, tmp_path)
            producer = client.create_producer(TOPIC)
            producer.send(b"x")
            stats = json.loads(get(f"{proxy.web_url}/admin/v2/persistent/public/default/through/stats")[1])
            address = stats["publishers"][0]["address"]
            assert address.startswith("/127.0.0.1:")
            relayed = {one.peer for one in proxy.server._service.services.open}
            assert address in relayed, "the client's port, not that of the proxy"
            client.close()
        with pytest.raises(gc.PulsarException):
            asyncio.run(produced(broker.service_url))


def test_the_images_program_and_the_command_are_there() -> None:
    call = pulsar_call(["proxy"], {})
    assert call.arguments[:3] == ("proxy", "--config", "conf/proxy.conf")
    assert call.role == "proxy"
    assert command.__doc__
    assert ProxyWeb.__doc__
