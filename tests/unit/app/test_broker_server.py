"""A broker from start to stop, whatever it stands on: the standalone's storage, and a cluster's."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import urllib.request

import pytest
from tools.zookeeper_server import ZooKeeperServer

from geminga.app.configuration.cluster_config import load_broker_config
from geminga.app.configuration.config import load_config
from geminga.app.servers import member_broker
from geminga.app.servers.broker_server import BrokerServer, Storage
from geminga.app.servers.cluster_broker import ClusterBrokerServer
from geminga.app.servers.standalone import StandaloneServer
from geminga.bookkeeper import BookKeeper
from geminga.broker.ownership.core.broker_data import BROKERS_PATH
from geminga.metadata.core.zookeeper_address import parse_zookeeper_address
from geminga.metadata.zookeeper import ZooKeeperMetadataStore
from geminga.model.errors import ConfigurationError, UnavailableError
from geminga.runtime import real_runtime
from support.house.real_runtimes import close_runtime

PORTS = ("brokerServicePort=0", "webServicePort=0")


def fatal(part: str, error: BaseException) -> None:
    pytest.fail(f"{part}: {error}")


def standalone(*more: str) -> StandaloneServer:
    return StandaloneServer(load_config(overrides=[*PORTS, *more]), None, on_fatal=fatal, pid=1)


async def clusters(server: BrokerServer, url: str) -> list[str]:
    def ask() -> list[str]:
        with urllib.request.urlopen(f"{url}/admin/v2/clusters", timeout=30) as answer:
            found: list[str] = json.loads(answer.read())
            return found

    return await asyncio.to_thread(ask)


def test_a_standalone_answers_from_its_start_to_its_stop() -> None:
    async def main() -> None:
        server = standalone()
        addresses = await server.start()
        assert await clusters(server, addresses.web_service_url) == ["standalone"]
        assert await server.stop()
        with pytest.raises(OSError, match="Errno 111"):
            await asyncio.open_connection("127.0.0.1", addresses.broker_port)

    asyncio.run(main())


def test_a_start_that_fails_names_the_key_and_leaves_no_port_behind() -> None:
    async def main() -> None:
        first, second = standalone(), StandaloneServer
        addresses = await first.start()
        config = load_config(overrides=["brokerServicePort=0", f"webServicePort={addresses.web_port}"])
        with pytest.raises(UnavailableError, match=f"webServicePort: can not listen on 127.0.0.1:{addresses.web_port}"):
            await second(config, None, on_fatal=fatal, pid=1).start()
        assert await clusters(first, addresses.web_service_url) == ["standalone"]
        assert await first.stop()

    asyncio.run(main())


def test_one_port_for_two_keys_is_told_by_both() -> None:
    """It was "can not listen: Address already in use", without a port, of one that nobody else had."""

    async def main() -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        config = load_config(overrides=[f"brokerServicePort={port}", f"webServicePort={port}"])
        with pytest.raises(ConfigurationError, match=f"brokerServicePort: {port}: .* that of webServicePort"):
            await StandaloneServer(config, None, on_fatal=fatal, pid=1).start()

    asyncio.run(main())


def test_a_start_that_breaks_lets_go_of_what_it_had(tmp_path) -> None:
    """What was not expected left its threads, and its directory in use, for as long as the program lived."""

    class Breaking(StandaloneServer):
        async def _start_beside(self, storage: Storage, bookkeeper: BookKeeper) -> None:
            raise KeyError("nobody thought of it")

    async def main() -> None:
        config, directory = load_config(overrides=[*PORTS]), str(tmp_path / "d")
        with pytest.raises(KeyError, match="nobody thought of it"):
            await Breaking(config, directory, on_fatal=fatal, pid=1).start()
        server = StandaloneServer(config, directory, on_fatal=fatal, pid=1)
        await server.start()
        assert await server.stop()

    asyncio.run(main())


def test_a_part_that_breaks_at_the_stop_keeps_no_other_one_open(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    """What was opened before it stayed open, its directory in use."""

    async def breaks() -> None:
        raise KeyError("nobody thought of it")

    async def main() -> None:
        config, directory = load_config(overrides=[*PORTS]), str(tmp_path / "d")
        server = StandaloneServer(config, directory, on_fatal=fatal, pid=1)
        await server.start()
        server._closers.append(("part of a test", breaks))
        with pytest.raises(KeyError):
            await server.stop()
        after = StandaloneServer(config, directory, on_fatal=fatal, pid=1)
        await after.start()
        assert await after.stop()

    asyncio.run(main())
    assert "closing the part of a test failed: KeyError" in caplog.text


def test_what_fails_since_its_files_were_let_go_of_is_no_fault_of_the_disk() -> None:
    async def main() -> None:
        told: list[str] = []
        config = load_config(overrides=[*PORTS])
        server = StandaloneServer(config, None, on_fatal=lambda part, error: told.append(f"{part}: {error}"), pid=1)
        await server.start()
        assert server.runtime is not None
        server.runtime.on_fatal("journal", OSError("it is broken"))
        assert told == ["journal: it is broken"]
        # What a stop that takes too long does.
        await server.abandon()
        server.runtime.on_fatal("journal", OSError("the file is closed"))
        assert told == ["journal: it is broken"]

    asyncio.run(main())


def test_a_clusters_broker_is_registered_while_it_serves(
    zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(member_broker, "BOOKIES_WAIT_S", 0.1)
    where = f"metadataStoreUrl=zk:{zookeeper.hosts}/broker-server"
    config = load_broker_config(overrides=[*PORTS, where, "clusterName=c", "metadataStoreSessionTimeoutMillis=4000"])

    async def main() -> None:
        server = ClusterBrokerServer(config, on_fatal=fatal)
        with caplog.at_level(logging.WARNING, "geminga"):
            addresses = await server.start()
        assert "managedLedgerDefaultEnsembleSize=2, and 0 bookies take entries" in caplog.text
        assert await clusters(server, addresses.web_service_url) == ["c"]
        runtime = real_runtime(fatal)
        looking = await ZooKeeperMetadataStore.open(runtime, parse_zookeeper_address(where.partition("=")[2]))
        name = f"127.0.0.1:{addresses.web_port}"
        assert await looking.children(BROKERS_PATH) == [name]
        node = await looking.get(f"{BROKERS_PATH}/{name}")
        assert node is not None
        assert json.loads(node.value)["pulsarServiceUrl"] == addresses.broker_service_url
        second = ClusterBrokerServer(config, on_fatal=fatal)
        beside = await second.start()
        names = {name, f"127.0.0.1:{beside.web_port}"}
        assert set(await looking.children(BROKERS_PATH)) == names
        assert await second.stop()
        assert await looking.children(BROKERS_PATH) == [name]
        assert await server.stop()
        assert await looking.children(BROKERS_PATH) == []
        await looking.close()
        await close_runtime(runtime)

    asyncio.run(main())
