"""Clusters of both makes in a real ZooKeeper: our bookies or Apache's, our ledger client, and Apache's as a program."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import pytest
from tools.chaos.cluster import AutoRecoveryProcess, BookieProcess
from tools.chaos.secured import Security
from tools.zookeeper_server import ZooKeeperServer

from geminga.app.configuration.bookie_tls_config import BrokerBookieTlsConfig
from geminga.bookkeeper import BookKeeper, LedgerHandle
from geminga.bookkeeper.remote import RegisteredBookies, RemoteBookiePool
from geminga.bookkeeper.remote.kept_connection import TlsOfBookies
from geminga.metadata.core.zookeeper_address import parse_zookeeper_address
from geminga.metadata.ports import MetadataStore
from geminga.metadata.zookeeper import ZooKeeperMetadataStore
from geminga.runtime import Runtime, real_runtime
from support.house.real_runtimes import close_runtime
from support.processes.apache_secured import bookies_file, java_properties, ledgers_file
from support.worlds.ledgers import Appends

T = TypeVar("T")

JAVA: Final = Path(__file__).parents[2] / "interop" / "java"
COUNT: Final = 200
QUORUMS: Final = {"ensemble_size": 3, "write_quorum": 2, "ack_quorum": 2}
LIMIT_S: Final = 120.0
SESSION_MS: Final = 4000
#: Of the ledger clients, in a secured cluster.
CLIENT: Final = "ledgers"
#: That a writer has to replace a lost bookie itself.
GRACE_MS: Final = 1000


@contextmanager
def our_bookies(
    zookeeper: ZooKeeperServer, directory: Path, count: int = 4, *, security: Security | None = None
) -> Iterator[list[BookieProcess]]:
    bookies = []
    for number in range(count):
        secured = {} if security is None else security.bookie_settings(f"b{number}")
        settings = {"zkTimeout": SESSION_MS, **secured}
        bookies.append(BookieProcess(directory / f"b{number}", log=directory / f"b{number}.log", settings=settings))
    try:
        for bookie in bookies:
            bookie.zookeeper = f"zk:{_hosts(zookeeper, security)}"
            bookie.start()
        yield bookies
    finally:
        for bookie in bookies:
            bookie.kill()


@contextmanager
def java_process(
    *words: str, log: Path | None = None, properties: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A class of Apache's, or a source file of ours; it ends with its input, is killed in the end, dies with us."""
    from tools.interop.apache_standalone import MEMORY, OPENS, die_with_parent
    from tools.interop.artifacts import HERE, class_path, java, pinned_version

    opens = [part for name in OPENS for part in ("--add-opens", f"{name}=ALL-UNNAMED")]
    program = [java(), *MEMORY, *opens, f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"]
    program += [f"-D{name}={value}" for name, value in (properties or {}).items()]
    with ExitStack() as stack:
        process = subprocess.Popen(
            [*program, "-cp", class_path(pinned_version()), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if log is None else stack.enter_context(log.open("a")),
            text=True,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    """What our program in Java says next; it must not end."""
    assert process.stdout is not None
    heard = []
    for line in process.stdout:
        heard.append(line)
        if line.startswith("> "):
            return line[2:].strip()
    raise AssertionError("".join(heard)[-4000:])


@contextmanager
def apaches_bookies(
    zookeeper: ZooKeeperServer,
    directory: Path,
    numbers: range = range(4),
    *,
    session_ms: int = SESSION_MS,
    security: Security | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """In one process; the first of all makes the cluster."""
    words = [uri(zookeeper, security), str(directory), str(numbers.start), str(numbers.stop), str(session_ms)]
    properties = {}
    if security is not None:
        name = f"apache-{numbers.start}"
        properties = {**java_properties(security, name), "settings": str(bookies_file(security, name))}
    with java_process(str(JAVA / "ApacheCluster.java"), *words, properties=properties) as process:
        assert said(process) == "ready"
        # A pipe that nobody reads fills up and stops them: they tell of each entry that is read to recover it.
        reader = threading.Thread(target=lambda: [None for _ in process.stdout or ()], daemon=True)
        reader.start()
        try:
            yield process
        finally:
            process.kill()
            reader.join()


@contextmanager
def apaches_autorecovery(zookeeper: ZooKeeperServer, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Auditor and replication worker, as ``bookkeeper autorecovery`` starts them."""
    settings = {
        "metadataServiceUri": uri(zookeeper),
        "bookieId": "apache-recovery",
        "allowLoopback": "true",
        "listeningInterface": "lo",
        "zkTimeout": SESSION_MS,
        "openLedgerRereplicationGracePeriod": GRACE_MS,
        "rwRereplicateBackoffMs": 200,
        "lockReleaseOfFailedLedgerGracePeriod": 3200,
    }
    conf = directory / "autorecovery.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    name = "org.apache.bookkeeper.replication.AutoRecoveryMain"
    with java_process(name, "-c", str(conf), log=directory / "apache-recovery.log") as process:
        yield process


class ApachesAuditor:
    """Apache's auditor without a worker, which also takes locks as a worker does; made by :meth:`running`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    @contextmanager
    def running(cls, zookeeper: ZooKeeperServer) -> Iterator[ApachesAuditor]:
        with java_process(str(JAVA / "ApacheAuditor.java"), uri(zookeeper), "apache-auditor") as process:
            assert said(process) == "ready"
            yield cls(process)

    def told(self, *words: object) -> str:
        """The answer to ``auditor``, ``lock ID``, ``owner ID`` or ``unlock ID``."""
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        return said(self._process)

    def kill(self) -> None:
        self._process.kill()


@contextmanager
def our_autorecovery(zookeeper: ZooKeeperServer, directory: Path) -> Iterator[AutoRecoveryProcess]:
    process = AutoRecoveryProcess(
        directory,
        log=directory / "our-recovery.log",
        settings={"zkTimeout": SESSION_MS, "openLedgerRereplicationGracePeriod": GRACE_MS},
    )
    process.zookeeper = f"zk:{zookeeper.hosts}"
    try:
        process.start(LIMIT_S)
        yield process
    finally:
        process.kill()


def uri(zookeeper: ZooKeeperServer, security: Security | None = None) -> str:
    return f"zk+hierarchical://{_hosts(zookeeper, security)}/ledgers"


def _hosts(zookeeper: ZooKeeperServer, security: Security | None) -> str:
    return zookeeper.hosts if security is None else zookeeper.secure_hosts


def apache(zookeeper: ZooKeeperServer, version: int, *commands: str, security: Security | None = None) -> list[str]:
    """What Apache's client says to each command, behind the command's name."""
    from tools.interop.java_program import run_java

    properties = {}
    if security is not None:
        properties = {**java_properties(security, CLIENT), "settings": str(ledgers_file(security, CLIENT))}
    told = run_java(
        JAVA / "ApacheLedgers.java", uri(zookeeper, security), str(version), *commands, properties=properties
    )
    answers = [line[2:].split(" ", 1) for line in told if line.startswith("> ")]
    assert [name for name, _ in answers] == [command.partition(":")[0] for command in commands]
    return [outcome for _, outcome in answers]


def entries(tag: str, count: int = COUNT) -> list[bytes]:
    return [f"{tag} {number}".encode() for number in range(count)]


def told(payloads: Sequence[bytes]) -> str:
    """As ``ApacheLedgers`` tells of a ledger."""
    lines = b"".join(one + b"\n" for one in payloads)
    return f"{len(payloads) - 1} {hashlib.sha256(lines).hexdigest()}"


class OurClient(NamedTuple):
    """Everything that a process of ours has of a cluster."""

    runtime: Runtime
    metadata: MetadataStore
    pool: RemoteBookiePool
    bookkeeper: BookKeeper


def in_cluster(
    zookeeper: ZooKeeperServer,
    main: Callable[[OurClient], Awaitable[T]],
    *,
    bookies: int = 4,
    security: Security | None = None,
) -> T:
    """What ``main`` returns, with so many bookies there."""

    async def run() -> T:
        runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
        address = parse_zookeeper_address(f"zk:{zookeeper.hosts}")
        store = await ZooKeeperMetadataStore.open(runtime, address)
        pool = RemoteBookiePool(runtime, tls=None if security is None else _tls_of_bookies(security))
        came = asyncio.Event()
        pool.watch(lambda *_: came.set())
        registered = await RegisteredBookies.follow(store, pool)
        while len(pool.available()) < bookies:
            came.clear()
            await came.wait()
        result = await main(OurClient(runtime, store, pool, BookKeeper(runtime, store, pool)))
        await registered.close()
        await pool.close()
        await store.close()
        await close_runtime(runtime)
        return result

    async def bounded() -> T:
        return await asyncio.wait_for(run(), LIMIT_S)

    return asyncio.run(bounded())


def _tls_of_bookies(security: Security) -> TlsOfBookies:
    """As a broker makes it from the same settings."""
    settings = security.broker_settings(CLIENT)
    return (
        BrokerBookieTlsConfig(
            is_used=True,
            private_key=str(settings["bookkeeperTLSKeyFilePath"]),
            trust=str(settings["bookkeeperTLSTrustCertsFilePath"]),
            checks_name=True,
        )
        .used()
        .context
    )


def with_our_client(
    zookeeper: ZooKeeperServer,
    main: Callable[[BookKeeper], Awaitable[T]],
    *,
    bookies: int = 4,
    security: Security | None = None,
) -> T:
    return in_cluster(zookeeper, lambda ours: main(ours.bookkeeper), bookies=bookies, security=security)


async def write(client: BookKeeper, tag: str) -> LedgerHandle:
    """A ledger that is not closed."""
    handle = await client.create_ledger(**QUORUMS)
    appends = Appends(handle)
    for payload in entries(tag):
        assert await appends.append_and_wait(payload) is None
    return handle


async def read(client: BookKeeper, ledger_id: int) -> list[bytes]:
    handle = await client.open_ledger(ledger_id)
    found: list[bytes] = []
    while len(found) <= handle.last_add_confirmed:
        found += await handle.read_entries(len(found), handle.last_add_confirmed)
    return found
