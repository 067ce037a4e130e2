"""The metadata store on a real ZooKeeper that lets in nobody who does not say who it is: SASL, and ``digest``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.zookeeper_server import ZooKeeperServer, running_zookeeper

from geminga.app.configuration.zookeeper_client import with_client_config
from geminga.metadata import MUST_NOT_EXIST, SessionEvent
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.metadata.zookeeper import ZooKeeperMetadataStore
from geminga.model.errors import MetadataUnavailableError
from geminga.runtime import real_runtime
from support.house.real_runtimes import close_runtime
from support.processes.zookeeper_stores import opened
from support.worlds.metadata_stores import Inbox

pytestmark = pytest.mark.integration

PASSWORD = "not to be told"
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with running_zookeeper(users={"jane": PASSWORD}) as server:
        yield server


def by_sasl(directory: Path, server: ZooKeeperServer, password: str) -> ZooKeeperAddress:
    (directory / "jaas.conf").write_text(f'Client {{ {MODULE} required username="jane" password="{password}"; }};')
    (directory / "sasl").write_text(f"java.security.auth.login.config={directory}/jaas.conf\n")
    return with_client_config(ZooKeeperAddress((server.hosts,), "/users"), str(directory / "sasl"))


def refused(address: ZooKeeperAddress) -> str:
    async def never(_: ZooKeeperMetadataStore) -> None:
        pytest.fail("it was let in")

    with pytest.raises(MetadataUnavailableError) as caught:
        opened(address, never)
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


def test_user_and_password_are_taken_and_said_again_on_each_connection(server: ZooKeeperServer, tmp_path: Path) -> None:
    async def main(store: ZooKeeperMetadataStore) -> None:
        session = Inbox()
        store.on_session_event(session)
        await store.put("/a", b"1", expected_version=MUST_NOT_EXIST)
        server.kill()
        await session.comes(SessionEvent.CONNECTION_LOST)
        server.start()
        await session.comes(SessionEvent.RECONNECTED)
        node = await store.get("/a")
        assert node is not None
        assert node.value == b"1"

    opened(by_sasl(tmp_path, server, PASSWORD), main)


def test_digest_is_enough_where_the_servers_say_so(server: ZooKeeperServer, tmp_path: Path) -> None:
    async def main(store: ZooKeeperMetadataStore) -> None:
        assert await store.children("/") == []

    (tmp_path / "digest").write_text("geminga.zookeeper.digest=jim:any\n")
    opened(with_client_config(ZooKeeperAddress((server.hosts,), "/digest"), str(tmp_path / "digest")), main)


def test_who_is_not_let_in_is_told_at_once(server: ZooKeeperServer, tmp_path: Path) -> None:
    assert "the servers refuse this client's user or password" in refused(by_sasl(tmp_path, server, "wrong"))
    assert "the servers want to know who this client is" in refused(ZooKeeperAddress((server.hosts,), "/nobody"))


def test_connection_that_is_lost_while_it_is_said_is_made_again(server: ZooKeeperServer, tmp_path: Path) -> None:
    """A server that goes down in that moment is no refusal: whoever took it for one would end the process."""

    class Cutting:
        """Between client and server: the first connections end with the first bytes behind the session's request."""

        def __init__(self) -> None:
            self.cuts_left = 2

        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection("127.0.0.1", server.port)

            async def answers() -> None:
                while data := await there.read(65536):
                    writer.write(data)
                writer.close()

            task = asyncio.ensure_future(answers())
            requests = 0
            while data := await reader.read(65536):
                requests += 1
                if requests == 2 and self.cuts_left:
                    self.cuts_left -= 1
                    break
                back.write(data)
            back.close()
            writer.close()
            await task

    async def scenario() -> None:
        runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
        cutting = Cutting()
        listener = await asyncio.start_server(cutting.serve, "127.0.0.1", 0)
        host = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        address = by_sasl(tmp_path, server, PASSWORD)._replace(hosts=(host,))
        store = await ZooKeeperMetadataStore.open(runtime, address)
        assert not await store.exists("/nothing")
        assert not cutting.cuts_left
        await store.close()
        listener.close()
        await close_runtime(runtime)

    asyncio.run(scenario())
