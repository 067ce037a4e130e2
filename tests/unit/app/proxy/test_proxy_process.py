"""The proxy's process: what keeps it from starting, and its ready line."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from geminga.app.configuration.proxy_config import load_proxy_config
from geminga.app.proxy.process import ProxyPorts, ProxyServer, ready_line, resolved
from geminga.model.errors import GemingaError

BROKER = "brokerServiceURL=pulsar://127.0.0.1:6650"
FREE = ("servicePort=0", "webServicePort=0")


def started(*settings: str) -> None:
    async def main() -> None:
        server = ProxyServer(load_proxy_config(overrides=[*FREE, BROKER, *settings]))
        try:
            await server.start()
        finally:
            await server.abandon()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["brokerServiceURL=http://b:1"], "expected pulsar://host:port"),
        (["brokerServiceURL=pulsar://a:1,b:2"], "expected pulsar://host:port"),
        (["brokerWebServiceURL=https://b:1"], "expected http://host:port"),
        (["bindAddress=0.0.0.0"], "gemingaAllowOpen=true"),
        (["brokerProxyAllowedTargetPorts=x"], "expected a port"),
        (["servicePort="], "servicePort and servicePortTls are empty"),
        (["servicePortTls=0"], "tlsCertificateFilePath is not set"),
        (["servicePortTls=0", "tlsCertificateFilePath=/none.pem"], "/none.pem"),
        (["authenticationEnabled=true", "authenticationProviders=nonsense"], "nonsense"),
        (["brokerClientAuthenticationPlugin=nonsense"], "brokerClient"),
    ],
)
def test_what_can_not_be_keeps_it_from_starting(settings: list[str], told: str) -> None:
    with pytest.raises(GemingaError) as raised:
        started(*settings)
    assert told in str(raised.value)


def test_a_port_that_is_taken_is_told_by_its_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for key in ("servicePort", "webServicePort"):
            with pytest.raises(GemingaError, match=f"{key}: .*in use"):
                started(f"{key}={taken.getsockname()[1]}")


def test_the_ready_line_names_the_ports_that_there_are() -> None:
    server = load_proxy_config(overrides=[BROKER, "advertisedAddress=door.example"]).server
    found = json.loads(ready_line(server, ProxyPorts(6650, None, 8080, None), json_line=True))
    assert (found["serviceUrl"], found["webServiceUrl"]) == ("pulsar://door.example:6650", "http://door.example:8080")
    assert "serviceUrlTls" not in found
    assert "pulsar+ssl://door.example:6651" in ready_line(server, ProxyPorts(None, 6651, None, None), json_line=False)


def test_a_name_has_the_systems_addresses() -> None:
    assert "127.0.0.1" in asyncio.run(resolved("localhost", 1))
    with pytest.raises(OSError, match="no name of a host"):
        asyncio.run(resolved("a..b", 1))
