"""Other clusters of a process: nothing is loaded before somebody asks, and what is stored of them says who answers."""

from __future__ import annotations

import asyncio
import json

import pytest

from geminga.app.configuration.config import load_config
from geminga.app.servers.late_clusters import LateClusters
from geminga.broker.resources import Resources
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import UnavailableError
from geminga.model.topic_name import TopicName
from geminga.runtime import real_runtime
from support.house.real_runtimes import close_runtime


async def web_service(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say what it was asked."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next((int(line.split()[1]) for line in head.splitlines() if line.lower().startswith("content-length")), 0)
    body = (await reader.readexactly(length)).decode()
    answer = json.dumps([*head.split()[:2], body]).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(answer), answer))
    await writer.drain()
    writer.close()


def test_a_cluster_is_asked_where_it_says_that_it_is() -> None:
    async def main() -> None:
        runtime = real_runtime(lambda part, error: None)
        resources = Resources(MemoryMetadataStore(runtime))
        server = await asyncio.start_server(web_service, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        data = {"serviceUrl": f"http://127.0.0.1:{port}", "brokerServiceUrl": "pulsar://127.0.0.1:1"}
        for name in ("east", "west"):
            await resources.clusters.create(name, data)
        await resources.tenants.create("t", {"allowedClusters": ["east", "west"]})
        await resources.namespaces.create("t/n", {"replication_clusters": ["east", "west"]})
        clusters = LateClusters(runtime, resources, load_config(overrides=["clusterName=east"]))
        await clusters.close()  # before anybody asked
        clusters = LateClusters(runtime, resources, load_config(overrides=["clusterName=east"]))
        assert (await clusters.ask("west", "/a?b=c")).json() == ["GET", "/a?b=c", ""]
        with pytest.raises(UnavailableError, match="there is no cluster north"):
            await clusters.ask("north", "/a")
        assert await clusters.sharing("zk:all").others("t/n") == ["west"]
        await clusters.sharing("zk:all").make_partitions(TopicName.parse("persistent://t/n/x"), 3)
        # Stores of their own, which a topic keeps alike: nobody is asked.
        apart = clusters.sharing("")
        assert await apart.others("t/n") == ["west"]
        assert await apart.others("t/other") == await apart.holders(TopicName.parse("persistent://t/n/x")) == []
        await apart.make_partitions(TopicName.parse("persistent://t/n/x"), 3)
        assert clusters.open() is clusters.open()
        await clusters.close()
        server.close()
        await server.wait_closed()
        await close_runtime(runtime)

    asyncio.run(main())
