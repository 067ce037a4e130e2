"""TLS with certificates of both ends on every link: ZooKeeper, bookies, two brokers, the official client and ours."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pulsar
import pytest
from tools.chaos.cluster import BrokerProcess
from tools.zookeeper_server import ServerTls, running_zookeeper

import geminga.client.blocking
from geminga.app.configuration.bookie_tls_config import AUTH_FACTORY, FACTORY
from support.processes.bookie_process import BookieProcess
from support.processes.certificates import Authority
from support.processes.official import quiet_client

# Five processes, one of them a JVM; each link has cheap tests of its own.
pytestmark = [pytest.mark.integration, pytest.mark.long]

TOPICS = 8


class Cluster:
    """Everything is configured to take certificates of one authority alone."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.authority = Authority(directory, "authority")
        self.trust = str(self.authority.certificate)
        self.client = str(self.authority.store("client"))
        store = self.authority.store("zookeeper", "127.0.0.1")
        zookeeper = stack.enter_context(running_zookeeper(tls=ServerTls(store, self.authority.certificate)))
        self.target = f"zk:{zookeeper.secure_hosts}/cluster"
        self.properties = directory / "zookeeper.properties"
        self.properties.write_text(
            "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\nzookeeper.client.secure=true\n"
            f"zookeeper.ssl.keyStore.location={self.client}\nzookeeper.ssl.trustStore.location={self.trust}\n"
        )
        command = [sys.executable, "-m", "geminga", "initialize-cluster-metadata", "-c", "c1", "-uw", "http://h:1"]
        command += ["-md", self.target, "--metadata-store-config-path", str(self.properties)]
        subprocess.run(command, check=True, timeout=120)
        self.bookies = [self._bookie(f"bookie-{number}") for number in range(2)]
        for bookie in self.bookies:
            bookie.start()
            stack.callback(bookie.kill)
        self.brokers = [stack.enter_context(self._broker(f"broker-{number}")) for number in range(2)]

    def _bookie(self, name: str) -> BookieProcess:
        values = {
            "metadataStoreConfigPath": self.properties,
            "tlsProviderFactoryClass": FACTORY,
            "tlsKeyStore": self.authority.store(name, "127.0.0.1"),
            "tlsTrustStore": self.trust,
            "bookieAuthProviderFactoryClass": AUTH_FACTORY,
            "authorizedRoles": "broker",
        }
        settings = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
        return BookieProcess(self.directory / name, "--metadata", self.target, *settings)

    def _broker(self, name: str) -> BrokerProcess:
        own = self.authority.store(name, "127.0.0.1", unit="0:broker")
        values = {
            "metadataStoreConfigPath": self.properties,
            "clusterName": "c1",
            "brokerServicePortTls": 0,
            "webServicePortTls": 0,
            "tlsCertificateFilePath": own,
            "tlsTrustCertsFilePath": self.trust,
            "tlsRequireTrustedClientCertOnConnect": "true",
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": self.trust,
            "brokerClientCertificateFilePath": own,
            "tlsHostnameVerificationEnabled": "true",
            "bookkeeperTLSClientAuthentication": "true",
            "bookkeeperTLSKeyFilePath": own,
            "bookkeeperTLSTrustCertsFilePath": self.trust,
            "bookkeeper_tlsHostnameVerificationEnabled": "true",
        }
        process = BrokerProcess(self.directory / name, log=self.directory / f"{name}.log", settings=values)
        process.zookeeper = self.target
        return process


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("secured"), stack)


def test_messages_pass_through_every_link_with_tls(cluster: Cluster) -> None:
    certificate = pulsar.AuthenticationTLS(cluster.client, cluster.client)
    url = str(cluster.brokers[0].ready["brokerServiceUrlTls"])
    official = quiet_client(
        url,
        cluster.directory,
        tls_trust_certs_file_path=cluster.trust,
        tls_validate_hostname=True,
        authentication=certificate,
    )
    for number in range(TOPICS):
        official.create_producer(f"t{number}").send(b"one")
    official.close()
    with geminga.client.blocking.connect(
        str(cluster.brokers[1].ready["brokerServiceUrlTls"]),
        tls_trust_certs_file_path=cluster.trust,
        authentication=geminga.client.AuthenticationTLS(cluster.client, cluster.client),
    ) as ours:
        for number in range(TOPICS):
            reader = ours.create_reader(f"t{number}", geminga.client.MessageId.earliest)
            assert reader.read_next(30_000).data() == b"one"
    # Of topics that either broker serves, through one: they ask each other.
    web = cluster.brokers[0].web_url
    for number in range(TOPICS):
        request = urllib.request.Request(
            f"{web}/admin/v2/persistent/public/default/p{number}/partitions", b"2", method="PUT"
        )
        request.add_header("Content-Type", "application/json")
        urllib.request.urlopen(request, timeout=60).close()
    for number in range(TOPICS):
        path = f"admin/v2/persistent/public/default/p{number}/partitioned-stats"
        assert b'"partitions"' in urllib.request.urlopen(f"{web}/{path}", timeout=60).read()


def test_a_bookie_is_spoken_to_in_no_other_way(cluster: Cluster) -> None:
    logs = "".join(broker.log.read_text() for broker in cluster.brokers)
    assert "Traceback" not in logs
    for bookie in cluster.bookies:
        assert "asks without TLS" not in bookie.errors()
        assert "handshake failed" not in bookie.errors()
        assert "has no right here" not in bookie.errors()
