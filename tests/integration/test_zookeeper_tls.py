"""The metadata store over TLS, on a real ZooKeeper that lets in nobody without a certificate of its authority."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tools.zookeeper_server import ServerTls, ZooKeeperServer, running_zookeeper

from geminga.app.configuration.zookeeper_client import with_client_config
from geminga.metadata import MUST_NOT_EXIST, SessionEvent
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.metadata.zookeeper import ZooKeeperMetadataStore
from geminga.model.errors import MetadataUnavailableError
from support.processes.bookie_process import BookieProcess
from support.processes.certificates import Authority
from support.processes.zookeeper_stores import opened
from support.worlds.metadata_stores import Inbox

pytestmark = pytest.mark.integration

PASSWORD = "not to be told"


class Place(NamedTuple):
    """A server, whom it trusts, and somebody else."""

    server: ZooKeeperServer
    trusted: Authority
    client: Path
    directory: Path

    def config(self, name: str, **lines: object) -> str:
        """A file of client properties; ``_`` is a dot."""
        path = self.directory / f"{name}.properties"
        text = "".join(f"zookeeper.{key.replace('_', '.')}={value}\n" for key, value in lines.items())
        path.write_text(f"zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\n{text}")
        return str(path)

    def good(self) -> str:
        return self.config(
            "good",
            client_secure="true",
            ssl_keyStore_location=self.client,
            ssl_keyStore_password=PASSWORD,
            ssl_trustStore_location=self.trusted.certificate,
        )

    def address(self, config: str, *, host: str = "127.0.0.1", chroot: str = "") -> ZooKeeperAddress:
        return with_client_config(ZooKeeperAddress((f"{host}:{self.server.secure_port}",), chroot), config)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority(directory, "authority")
    server_store = authority.store("server", "127.0.0.1")
    client_store = authority.store("client", password=PASSWORD)
    with running_zookeeper(tls=ServerTls(server_store, authority.certificate)) as server:
        yield Place(server, authority, client_store, directory)


def test_nodes_watches_and_reconnects_are_those_of_a_plain_connection(place: Place) -> None:
    async def main(store: ZooKeeperMetadataStore) -> None:
        # Many answers in one record, and records that hold a part of an answer.
        values = {f"/n{number:03}": bytes([number % 256]) * (number * 997 % 70_000) for number in range(150)}
        await asyncio.gather(
            *(store.put(path, value, expected_version=MUST_NOT_EXIST) for path, value in values.items())
        )
        found = await asyncio.gather(*(store.get(path) for path in values))
        assert [node is not None and node.value for node in found] == list(values.values())
        assert sorted(await store.children("/")) == sorted(path[1:] for path in values)
        told, session = Inbox(), Inbox()
        store.watch_node("/n000", told)
        store.on_session_event(session)
        await store.put("/n000", b"changed", expected_version=0)
        await told.has(1)
        place.server.kill()
        await session.comes(SessionEvent.CONNECTION_LOST)
        place.server.start()
        await session.comes(SessionEvent.RECONNECTED)
        node = await store.get("/n000")
        assert node is not None
        assert node.value == b"changed"
        await store.put("/n000", b"again", expected_version=1)
        await told.has(2)

    opened(place.address(place.good(), chroot="/many"), main)


def refused(address: ZooKeeperAddress, *, wait_s: float = 3) -> str:
    async def never(_: ZooKeeperMetadataStore) -> None:
        pytest.fail("it was let in")

    with pytest.raises(MetadataUnavailableError) as caught:
        opened(address, never, wait_s=wait_s)
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


def test_who_is_not_trusted_is_not_spoken_to(place: Place, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    certificates = {"ssl_keyStore_location": place.client, "ssl_keyStore_password": PASSWORD}
    wrong = place.config("wrong", client_secure="true", ssl_trustStore_location=stranger.certificate, **certificates)
    assert "certificate verify failed" in refused(place.address(wrong))
    # The system's authorities did not sign it either.
    assert "certificate verify failed" in refused(
        place.address(place.config("system", client_secure="true", **certificates))
    )
    # Its certificate is for 127.0.0.1.
    assert "localhost" in refused(place.address(place.good(), host="localhost"))


def test_name_of_the_host_need_not_be_looked_at(place: Place) -> None:
    async def main(store: ZooKeeperMetadataStore) -> None:
        assert not await store.exists("/x")

    config = place.config(
        "any-name",
        client_secure="true",
        ssl_keyStore_location=place.client,
        ssl_keyStore_password=PASSWORD,
        ssl_trustStore_location=place.trusted.certificate,
        ssl_hostnameVerification="false",
    )
    opened(place.address(config, host="localhost"), main)


def test_server_asks_for_a_certificate_and_for_tls(place: Place, tmp_path: Path) -> None:
    nobody = place.config("nobody", client_secure="true", ssl_trustStore_location=place.trusted.certificate)
    assert "not reached within 1 s" in refused(place.address(nobody), wait_s=1)
    assert "not reached within 1 s" in refused(place.address(""), wait_s=1)


def test_processes_of_a_cluster_use_it(place: Place, tmp_path: Path) -> None:
    config, target = place.good(), f"zk:{place.server.secure_hosts}/cluster"
    command = [sys.executable, "-m", "geminga", "initialize-cluster-metadata", "-c", "c1", "-uw", "http://h:1"]
    command += ["-md", target, "--metadata-store-config-path", config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    bookie = BookieProcess(tmp_path / "b", "--metadata", target, "--set", f"metadataStoreConfigPath={config}", port=0)
    bookie.start()

    async def main(store: ZooKeeperMetadataStore) -> None:
        assert bookie.bookie_id in await store.children("/ledgers/available")

    try:
        opened(place.address(config, chroot="/cluster"), main)
    finally:
        assert bookie.stop() == 0
    assert PASSWORD not in bookie.errors()
