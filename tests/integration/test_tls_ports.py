"""Ports with TLS of a real process: the official client over them, HTTPS, and certificates exchanged under use."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pulsar
import pytest
from tools.standalone_process import StandaloneProcess

import geminga
import geminga.client as gc
from geminga.client import blocking
from support.processes.certificates import Authority
from support.processes.official import quiet_client

pytestmark = pytest.mark.integration
WAIT_MS = 20_000
#: What a client says first, as far as its length: the rest never comes.
HALF_HELLO = bytes.fromhex("1603010200010001fc0303")
#: A handshake under way holds some 300 KiB, and that room is kept for the next ones: memory follows the most that were
#: ever under way at once, not how many there were (99.6 MiB from the 5,000th on with 100 at once, from 69).
UNDER_WAY_BYTES = 320 * 1024
FEW, MANY = 100, 1_000
#: Less than 840 bytes for each of 10,000: what is kept of a handshake is more.
GROWN_BYTES_MAX = 8 * 1024 * 1024


class Secured:
    """A broker's certificates, and those of its clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory, "authority")
        self.own = directory / "own.pem"
        self.exchange("first")
        self.client = str(self.authority.store("client"))
        self.settings = {
            "brokerServicePortTls": 0,
            "webServicePortTls": 0,
            "tlsCertificateFilePath": self.own,
            "tlsTrustCertsFilePath": self.authority.certificate,
        }

    def exchange(self, name: str) -> str:
        """A new certificate; its SHA-256."""
        os.replace(self.authority.store(name, "127.0.0.1"), self.own)
        text = self.own.read_text()
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERT") :])).hexdigest()

    def official(self, url: str, *, shows_certificate: bool = False) -> pulsar.Client:
        own = {"authentication": pulsar.AuthenticationTLS(self.client, self.client)} if shows_certificate else {}
        trust = str(self.authority.certificate)
        return quiet_client(url, self.directory, tls_trust_certs_file_path=trust, tls_validate_hostname=True, **own)

    def get(self, url: str, *, shows_certificate: bool = False) -> object:
        return json.loads(self.text(url, shows_certificate=shows_certificate))

    def text(self, url: str, *, shows_certificate: bool = False) -> str:
        context = ssl.create_default_context(cafile=self.authority.certificate)
        if shows_certificate:
            context.load_cert_chain(self.client)
        with urllib.request.urlopen(url, context=context, timeout=20) as answer:
            return str(answer.read().decode())


def served(url: str) -> str:
    """SHA-256 of the certificate that is shown there."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    shown = ssl.get_server_certificate((parts.hostname, parts.port), timeout=20)
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(shown)).hexdigest()


def pass_on(client: pulsar.Client, topic: str) -> bytes:
    """A message through a topic."""
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"over TLS")
    return consumer.receive(WAIT_MS).data()


@pytest.fixture(scope="module")
def secured(tmp_path_factory) -> Secured:
    return Secured(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def process(tmp_path_factory, secured) -> Iterator[StandaloneProcess]:
    directory = tmp_path_factory.mktemp("tls")
    with StandaloneProcess(directory / "data", log=directory / "log", settings=secured.settings) as made:
        yield made


def test_official_client_speaks_tls_with_and_without_a_certificate(process, secured) -> None:
    url = str(process.ready["brokerServiceUrlTls"])
    for shows in (False, True):
        client = secured.official(url, shows_certificate=shows)
        assert pass_on(client, f"binary-{shows}") == b"over TLS"
        client.close()
    over_http = secured.official(str(process.ready["webServiceUrlTls"]))
    assert pass_on(over_http, "http") == b"over TLS"
    over_http.close()


@pytest.mark.parametrize("key", ["brokerServiceUrlTls", "webServiceUrlTls", "webServiceUrl"])
def test_our_client_finds_brokers_over_tls_and_over_http(process, secured, key) -> None:
    own = gc.AuthenticationTLS(secured.client, secured.client)
    trust = str(secured.authority.certificate)
    with blocking.connect(str(process.ready[key]), tls_trust_certs_file_path=trust, authentication=own) as client:
        topic = f"ours-{key}"
        pattern, earliest = re.compile(f"persistent://public/default/{topic}"), gc.InitialPosition.Earliest
        consumer = client.subscribe(pattern, "s", initial_position=earliest)
        producer = client.create_producer(topic)
        producer.send(b"over TLS")
        assert consumer.receive(WAIT_MS).data() == b"over TLS"
        assert client.get_topic_partitions(topic) == [f"persistent://public/default/{topic}"]
        with pytest.raises(gc.TopicNotFound, match="Namespace"):
            client.create_producer("persistent://public/nowhere/t")


def test_our_client_says_what_is_wrong_with_a_web_service(process) -> None:
    nobody = blocking.connect(str(process.ready["webServiceUrlTls"]), operation_timeout_ms=500)
    with nobody as client, pytest.raises(gc.ConnectError, match="certificate verify failed"):
        client.create_producer("t")
    binary = process.service_url.replace("pulsar:", "http:")
    with blocking.connect(binary, operation_timeout_ms=500) as client, pytest.raises(gc.PulsarException):
        client.create_producer("t")


def test_lookup_over_https_tells_both_addresses(process, secured) -> None:
    url = str(process.ready["webServiceUrlTls"])
    found = secured.get(f"{url}/lookup/v2/topic/persistent/public/default/t", shows_certificate=True)
    assert found["brokerUrlTls"] == process.ready["brokerServiceUrlTls"]
    assert found["brokerUrl"] == process.ready["brokerServiceUrl"]
    assert (found["httpUrl"], found["httpUrlTls"]) == (process.ready["webServiceUrl"], url)
    cluster = secured.get(f"{url}/admin/v2/clusters/standalone")
    assert cluster["brokerServiceUrlTls"] == process.ready["brokerServiceUrlTls"]


def test_certificate_is_exchanged_by_a_signal_and_connections_in_use_stay(process, secured) -> None:
    urls = [str(process.ready["brokerServiceUrlTls"]), str(process.ready["webServiceUrlTls"])]
    client = secured.official(urls[0])
    consumer, producer = client.subscribe("kept", "s"), client.create_producer("kept")
    first = served(urls[0])
    second = secured.exchange("second")
    assert second != first
    assert {served(url) for url in urls} == {first}
    signal_and_wait(process, "new certificate of CN=second", 2)
    assert {served(url) for url in urls} == {second}
    secured.own.write_text("nothing")
    signal_and_wait(process, "the certificates that were read before stay in use", 2)
    assert {served(url) for url in urls} == {second}
    producer.send(b"still there")
    assert consumer.receive(WAIT_MS).data() == b"still there"
    assert producer.is_connected()
    client.close()
    assert "econnect" not in (secured.directory / "client.log").read_text()


def signal_and_wait(process: StandaloneProcess, line: str, times: int) -> None:
    """SIGHUP, and until the log has that line so often."""
    os.kill(process.pid, signal.SIGHUP)
    # What asks is answered by the loop that reads the files, so that it needs no patience of its own.
    for _ in range(1_000):
        urllib.request.urlopen(f"{process.web_url}/admin/v2/clusters", timeout=20).close()
        if process.log.read_text().count(line) >= times:
            return
    raise AssertionError(process.log_tail())


def test_ports_with_tls_stand_instead_of_the_plain_ones(secured) -> None:
    secured.exchange("third")
    only = {**secured.settings, "brokerServicePort": "", "webServicePort": "", "tlsCertRefreshCheckDurationSec": 0}
    with geminga.Standalone(config=only) as broker:
        assert broker.service_url.startswith("pulsar+ssl://")
        assert broker.web_service_url.startswith("https://")
        for number, url in enumerate((broker.service_url, broker.web_service_url)):
            client = secured.official(url)
            assert pass_on(client, f"t{number}") == b"over TLS"
            client.close()
        found = secured.get(f"{broker.web_service_url}/lookup/v2/topic/persistent/public/default/t")
        assert (found["brokerUrl"], found["nativeUrl"], found["brokerUrlSsl"]) == ("", "", "")
        assert found["brokerUrlTls"] == broker.service_url
        assert "httpUrl" not in found
        # It told load balancers and operators that it was stopping: it has no plain address.
        for path in ("brokers/ready", "brokers/health"):
            assert secured.text(f"{broker.web_service_url}/admin/v2/{path}") == "ok"
        # Looked at with each new connection.
        fourth = secured.exchange("fourth")
        assert served(broker.service_url) == fourth


def test_client_must_show_a_certificate_where_that_is_asked_for(secured) -> None:
    secured.exchange("strict")
    strict = {**secured.settings, "tlsRequireTrustedClientCertOnConnect": True}
    with geminga.Standalone(config=strict) as broker:
        url = broker.service_url_tls
        with pytest.raises((OSError, ssl.SSLError)):
            secured.get(f"{broker.web_service_url_tls}/admin/v2/clusters")
        assert secured.get(f"{broker.web_service_url_tls}/admin/v2/clusters", shows_certificate=True) == ["standalone"]
        client = secured.official(url, shows_certificate=True)
        assert pass_on(client, "t") == b"over TLS"
        client.close()


@pytest.mark.long
def test_ten_thousand_halves_of_handshakes_leave_nothing_and_others_are_served(process, secured) -> None:
    ports = [urlsplit(str(process.ready[key])).port for key in ("brokerServiceUrlTls", "webServiceUrlTls")]
    client = secured.official(str(process.ready["brokerServiceUrlTls"]))
    producer, consumer = client.create_producer("witness"), client.subscribe("witness", "s")

    def is_served(payload: bytes) -> None:
        producer.send(payload)
        assert consumer.receive(WAIT_MS).data() == payload

    is_served(b"before")
    first_bytes, first_files = process.rss_bytes(), open_files(process.pid)

    def strike(count: int) -> None:
        halves = [socket.create_connection(("127.0.0.1", ports[number % 2])) for number in range(count)]
        for half in halves:
            half.sendall(HALF_HELLO)
        is_served(b"in between")
        for half in halves:
            half.close()
        is_served(b"behind")
        # Closed by their clients, so that nothing but turns of the loop is waited for: no more are under way at once.
        for _ in range(1_000):
            urllib.request.urlopen(f"{process.web_url}/admin/v2/clusters", timeout=20).close()
            if open_files(process.pid) <= first_files:
                break
        assert open_files(process.pid) <= first_files

    for _ in range(50):  # until the room for so many at once has been touched everywhere
        strike(FEW)
    warm_bytes = process.rss_bytes()
    for _ in range(10_000 // FEW):
        strike(FEW)
    grown_bytes = process.rss_bytes() - warm_bytes
    for _ in range(10_000 // MANY):
        strike(MANY)
    client.close()
    room_bytes = process.rss_bytes() - first_bytes
    print(
        f"{first_bytes / 2**20:.1f} MiB; {FEW} halves of handshakes at once: {warm_bytes / 2**20:.1f}, "
        f"after 10,000 more {grown_bytes / 2**20:.1f} on top; "
        f"{MANY} at once, 10,000 more: {room_bytes / 2**20:.1f} above the first"
    )
    assert grown_bytes < GROWN_BYTES_MAX
    assert room_bytes < MANY * UNDER_WAY_BYTES + GROWN_BYTES_MAX


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
