"""Each peer hangs under load: sockets that are not read, processes that were stopped. Memory stays what it was.

``make hung HUNG_SECONDS=180 LINK=bookies``: all of them, or those whose name has the word.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from tools.chaos.cluster import BrokerProcess, Cluster
from tools.process_tree import children_of
from tools.standalone_process import StandaloneProcess

import geminga.client as gc
from geminga.client import blocking
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.processes.cluster_brokers import started
from support.processes.hung_peers import Load, Program, Publishing, soak, stopped
from support.processes.raw_protocol import RawConnection, frame

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SECONDS = float(os.environ.get("HUNG_S", "180"))
#: In ``make test``: as much as would be seen if it were kept.
SECONDS_SHORT = 8.0
TOPIC = "persistent://public/default/under-load"
#: Nothing is kept that nobody waits for, so that hours of it fit on a disk.
SHORT_LEDGERS = {"managedLedgerMaxEntriesPerLedger": 100, "managedLedgerMinLedgerRolloverTimeMinutes": 0}
#: A cache that fills because the disk is behind holds nothing for a peer.
SMALL_CACHE = {"dbStorage_writeCacheMaxSizeMb": 32}
BOOKIE_SETTINGS = {
    **SMALL_CACHE,
    "journalMaxSizeMB": 128,
    "gcWaitTime": 5000,
    "journalMaxBackups": 0,
    "logSizeLimit": 64 << 20,
}
SESSION_MS = 4000


def standalone(directory: Path, *arguments: str, **settings: object) -> StandaloneProcess:
    name = f"standalone-{len(list(directory.iterdir()))}"
    data = directory / name
    data.mkdir()
    return StandaloneProcess(
        data, log=directory / f"{name}.log", arguments=arguments, settings={**SHORT_LEDGERS, **SMALL_CACHE, **settings}
    )


@contextmanager
def cluster(
    directory: Path,
    *,
    quorum: tuple[int, int, int],
    bookies: int = 3,
    brokers: int = 1,
    session_ms: int = SESSION_MS,
    **settings: object,
) -> Iterator[Cluster]:
    """``quorum``: ensemble, write and ack quorum. ``settings``: of brokers."""
    names = ("EnsembleSize", "WriteQuorum", "AckQuorum")
    made = Cluster(
        directory,
        bookies=bookies,
        brokers=brokers,
        session_ms=session_ms,
        broker_settings={
            **SHORT_LEDGERS,
            **{f"managedLedgerDefault{name}": value for name, value in zip(names, quorum, strict=True)},
            "transactionCoordinatorEnabled": "true",
            **settings,
        },
        bookie_settings=BOOKIE_SETTINGS,
    )
    with started(made):
        yield made


# ---- clients that do not read


def with_permits(port: int, subscription: str) -> RawConnection:
    """A consumer that wants everything and reads nothing."""
    raw = RawConnection(port, timeout_s=30)
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    command = pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE)
    subscribe = command.subscribe
    subscribe.topic, subscribe.subscription, subscribe.subType = TOPIC, subscription, pb.CommandSubscribe.Shared
    subscribe.consumer_id, subscribe.request_id = 1, 1
    raw.send(frame(command))
    raw.expect(pb.BaseCommand.SUCCESS)
    flow = pb.BaseCommand(type=pb.BaseCommand.FLOW)
    flow.flow.consumer_id, flow.flow.messagePermits = 1, 1_000_000
    raw.send(frame(flow))
    return raw


def consumers_that_do_not_read(directory: Path, seconds: float, count: int, *, flows: bool) -> None:
    with standalone(directory) as broker, Publishing(broker.service_url, directory, [TOPIC]) as load:
        hung = [with_permits(broker.broker_port, f"s{number}") for number in range(count)]
        soak("consumers that do not read", {"broker": broker.pid}, seconds, messages=load).check(flows=flows)
        for raw in hung:
            raw.close()


def test_consumers_that_do_not_read_for_a_while(tmp_path: Path) -> None:
    """How fast messages flow beside other tests is not asked."""
    consumers_that_do_not_read(tmp_path, SECONDS_SHORT, 8, flows=False)


@pytest.mark.long
def test_consumers_that_do_not_read(tmp_path: Path) -> None:
    consumers_that_do_not_read(tmp_path, SECONDS, 24, flows=True)


def kept_half_used(port: int, data: bytes, stall_s: float = 20.0) -> Callable[[], None]:
    """Connects, sends as much as is taken, and waits until it is cut off, or so long."""

    def use() -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sent = 0
            with suppress(TimeoutError):
                while sent < len(data):
                    sent += sock.send(data[sent : sent + 65536])
            sock.settimeout(stall_s)
            # Cut off is what is not there to be read; an answer is left where it is.
            with suppress(TimeoutError):
                while sock.send(b"x"):
                    threading.Event().wait(1)

    return use


@pytest.mark.long
def test_rest_clients_that_read_nothing_and_send_halves(tmp_path: Path) -> None:
    rest_clients(tmp_path, SECONDS, topics=500, connections=100)


def rest_clients(directory: Path, seconds: float, *, topics: int, connections: int) -> None:
    """Of large answers, and of bodies of 5 MB; REST has no request that waits for news (long poll)."""
    asked = b"GET /admin/v2/broker-stats/topics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3
    half = b"POST /admin/v2/schemas/public/default/s/schema HTTP/1.1\r\nHost: localhost\r\n"
    half += b"Content-Type: application/json\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 4_000_000
    with standalone(directory) as broker, Publishing(broker.service_url, directory, [TOPIC]) as load:
        with blocking.connect(broker.service_url) as client:
            for number in range(topics):
                client.create_producer(f"persistent://public/default/t{number}").close()
        port = broker.web_port
        with ExitStack() as stack:
            hung = [Load(kept_half_used(port, data), connections, pause_s=3) for data in (asked, half)]
            for one in hung:
                stack.enter_context(one)
            seen = soak("REST clients that hang", {"broker": broker.pid}, seconds, messages=load, others=hung)
            for one in hung:
                one.is_over.set()
            broker.kill()  # which ends their waiting
        seen.check(flows=True)


# ---- our client, and Spark's tasks, at a broker that was stopped


@pytest.mark.long
@pytest.mark.parametrize("kind", ["asyncio", "blocking", "spark"])
def test_client_whose_broker_is_stopped(tmp_path: Path, kind: str) -> None:
    with standalone(tmp_path, transactionCoordinatorEnabled="true") as hung, standalone(tmp_path) as healthy:
        with (
            Program(tmp_path / "client.log", kind, hung.service_url, healthy.service_url) as program,
            stopped(hung.pid),
        ):
            program.begin()
            watched = {"client": program.process.pid, "broker": healthy.pid}
            seen = soak(f"{kind}: broker stopped", watched, SECONDS, messages=program)
            assert program.failed_there > 0, "nothing was asked of the broker that hangs"
        seen.check(flows=True)


# ---- storage


@pytest.mark.long
@pytest.mark.parametrize(
    ("bookies", "quorum", "hung"),
    [(3, (3, 3, 2), 1), (4, (3, 2, 2), 1), (3, (3, 2, 2), 1), (3, (3, 2, 2), 2)],
    ids=["1-of-3-at-3-3-2", "1-of-4-at-3-2-2", "1-of-3-at-3-2-2", "2-of-3-at-3-2-2"],
)
def test_bookies_that_are_stopped(tmp_path: Path, bookies: int, quorum: tuple[int, int, int], hung: int) -> None:
    """Where too few are left, nothing flows: publishers send what is taken."""
    flows = hung == 1 and (bookies > quorum[0] or quorum[1] > quorum[2])
    with cluster(tmp_path, bookies=bookies, quorum=quorum) as world:
        names = list(world.bookies)
        topics = [TOPIC] if flows else [f"{TOPIC}-{number}" for number in range(8)]
        with Publishing(world.service_url, tmp_path, topics) as load:
            until_it_flows(load)
            with stopped(*(world.bookies[name].pid for name in names[:hung])):
                watched = {"broker": world.broker.pid, **{name: world.bookies[name].pid for name in names[hung:]}}
                link = f"{hung} of {bookies} bookies stopped, {'/'.join(map(str, quorum))}"
                seen = soak(link, watched, SECONDS, messages=load)
    seen.check(flows=flows)


def until_it_flows(load: Publishing) -> None:
    pause = threading.Event()
    while load.size_bytes < 30_000_000:
        pause.wait(0.1)


@pytest.mark.long
def test_zookeeper_that_is_stopped(tmp_path: Path) -> None:
    """Sessions live for a minute, and everything that needs metadata is asked for as fast as it fails."""
    # A ledger that is open needs no metadata: messages flow as long as the session lives.
    never = {"managedLedgerMaxEntriesPerLedger": 1_000_000}
    with cluster(tmp_path, session_ms=60_000, quorum=(3, 2, 2), **never) as world:
        world.broker.request("PUT", "/admin/v2/persistent/public/default/parts/partitions", 4)
        with Publishing(world.service_url, tmp_path, [TOPIC]) as load, ExitStack() as stack:
            until_it_flows(load)
            stack.callback(world.zookeeper.servers[0].resume)
            world.zookeeper.servers[0].pause()
            others = [
                Load(asking(world.broker, *METADATA_QUESTIONS, timeout_s=2), 20, pause_s=0.5),
                Load(looking_up(world.broker.broker_port), 4, pause_s=1),
            ]
            for one in others:
                stack.enter_context(one)
            watched = {"broker": world.broker.pid} | {name: one.pid for name, one in world.bookies.items()}
            seen = soak("ZooKeeper stopped", watched, SECONDS, messages=load, others=others)
            world.broker.kill()
    seen.check(flows=False)


METADATA_QUESTIONS = (
    ("PUT", "/admin/v2/persistent/public/default/new{n}"),
    ("PUT", "/admin/v2/namespaces/public/new{n}"),
    ("GET", "/admin/v2/persistent/public/default"),
    ("GET", "/admin/v2/namespaces/public/new{n}"),
    ("GET", "/lookup/v2/topic/persistent/public/default/new{n}"),
    ("POST", "/admin/v2/namespaces/public/default/permissions/r{n}"),
)
BROKERS_QUESTIONS = (
    ("GET", "/admin/v2/persistent/public/default/parts/partitioned-stats"),
    ("GET", "/admin/v3/transactions/coordinatorStats"),
    ("GET", "/admin/v3/transactions/slowTransactions/1"),
    ("GET", "/admin/v2/persistent/public/default"),
    ("GET", "/lookup/v2/topic/persistent/public/default/new{n}"),
    ("PUT", "/admin/v2/persistent/public/default/parts/subscription/s{n}"),
)


def asking(broker: BrokerProcess, *questions: tuple[str, str], timeout_s: float) -> Callable[[], None]:
    """One question after the other; who does not get an answer in time leaves."""
    numbers = iter(range(1 << 40))

    def ask() -> None:
        number = next(numbers)
        method, path = questions[number % len(questions)]
        data = b'["produce"]' if method == "POST" else None
        request = urllib.request.Request(broker.web_url + path.format(n=number), data=data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            answer.read()

    return ask


def looking_up(port: int) -> Callable[[], None]:
    """A thousand lookups, partitions and lists on a connection that is left."""
    numbers = iter(range(1 << 40))

    def ask() -> None:
        with RawConnection(port, timeout_s=2) as raw:
            asked = bytearray()
            for _ in range(1000):
                number = next(numbers)
                command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP)
                command.lookupTopic.topic = f"persistent://public/default/new{number}"
                command.lookupTopic.request_id = number
                asked += frame(command)
                command = pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA)
                command.partitionMetadata.topic = f"persistent://public/default/new{number}"
                command.partitionMetadata.request_id = number
                asked += frame(command)
            raw.send(bytes(asked))
            for _ in range(2000):
                if raw.receive() is None:
                    raise ConnectionResetError

    return ask


# ---- brokers


@pytest.mark.long
def test_broker_that_another_one_calls_is_stopped(tmp_path: Path) -> None:
    """It hangs with its session alive for a minute, then its bundles go to the other one."""
    with cluster(tmp_path, brokers=2, session_ms=60_000, quorum=(3, 2, 2)) as world, ExitStack() as stack:
        first, second = world.brokers.values()
        first.request("PUT", "/admin/v2/persistent/public/default/parts/partitions", 8)
        topic = owned_topic(first)
        load = stack.enter_context(Publishing(first.service_url, tmp_path, [topic]))
        until_it_flows(load)
        stack.enter_context(stopped(second.pid))
        others = [
            Load(asking(first, *BROKERS_QUESTIONS, timeout_s=5), 20, pause_s=0.5),
            Load(looking_up(first.broker_port), 4, pause_s=1),
        ]
        for one in others:
            stack.enter_context(one)
        watched = {"broker": first.pid} | {name: one.pid for name, one in world.bookies.items()}
        seen = soak("a broker stopped that another one calls", watched, SECONDS, messages=load, others=others)
        first.kill()
    seen.check(flows=True)


def owner_of(web_url: str, topic: str) -> str:
    path = topic.replace("://", "/")
    with urllib.request.urlopen(f"{web_url}/lookup/v2/topic/{path}") as answer:
        return str(json.loads(answer.read())["brokerUrl"])


def owned_topic(broker: BrokerProcess) -> str:
    names = (f"persistent://public/default/load{number}" for number in range(1000))
    return next(name for name in names if owner_of(broker.web_url, name) == broker.service_url)


@pytest.mark.long
def test_child_of_a_standalone_with_brokers_is_stopped(tmp_path: Path) -> None:
    with standalone(tmp_path, "--brokers", "2") as process, ExitStack() as stack:
        children = sorted(children_of([process.pid]))
        topic = "persistent://public/default/load0"
        healthy_url = owner_of(process.web_url, topic)
        healthy = pid_of(healthy_url, children)
        (hung,) = set(children) - {healthy}
        load = stack.enter_context(Publishing(healthy_url, tmp_path, [topic]))
        until_it_flows(load)
        stack.enter_context(stopped(hung))
        other = stack.enter_context(Load(looking_up(int(healthy_url.rsplit(":", 1)[1])), 4, pause_s=1))
        watched = {"storage": process.pid, "broker": healthy}
        seen = soak("a child of --brokers stopped", watched, SECONDS, messages=load, others=[other])
        # Its parent ends it after a while; where the soak is shorter, it is not told to go on.
        with suppress(ProcessLookupError):
            os.kill(hung, signal.SIGKILL)
    seen.check(flows=True)


def pid_of(url: str, pids: list[int]) -> int:
    """Who listens there."""
    port = int(url.rsplit(":", 1)[1])
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    inodes = {line.split()[9] for line in lines if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"}
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.readlink(link).removeprefix("socket:[").removesuffix("]") in inodes:
                    return pid
    raise AssertionError(f"nobody of {pids} listens at {url}")


# ---- auto-recovery, and the lake


@pytest.mark.long
def test_auto_recovery_with_a_bookie_stopped(tmp_path: Path) -> None:
    """One bookie is killed, and its copies are made while another hangs."""
    with cluster(tmp_path, bookies=5, quorum=(2, 2, 2)) as world, ExitStack() as stack:
        world.broker.request("POST", "/admin/v2/namespaces/public/default/retention", {
            "retentionTimeInMinutes": -1, "retentionSizeInMB": -1})  # fmt: skip
        recovery = world.start_autorecovery({"openLedgerRereplicationGracePeriod": 500})
        load = stack.enter_context(Publishing(world.service_url, tmp_path, [TOPIC]))
        pause = threading.Event()
        while load.size_bytes < 400_000_000:
            pause.wait(0.5)
        world.bookies["bookie-0"].kill()
        stack.enter_context(stopped(world.bookies["bookie-1"].pid))
        names = [f"bookie-{number}" for number in range(2, 5)]
        watched = {"autorecovery": recovery.pid, "broker": world.broker.pid}
        watched |= {name: world.bookies[name].pid for name in names}
        seen = soak("auto-recovery, a bookie stopped", watched, SECONDS, messages=load)
    seen.check(flows=True)


LAKE = {"managedLedgerOffloadAutoTriggerSizeThresholdBytes": 0, "managedLedgerOffloadDeletionLagMs": 0}


@pytest.mark.long
def test_lake_in_a_bucket_that_hangs(tmp_path: Path) -> None:
    """Its server takes connections, and reads nothing."""
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as hung:
        broker = standalone(
            tmp_path,
            managedLedgerOffloadDriver="aws-s3",
            s3ManagedLedgerOffloadBucket="lake",
            s3ManagedLedgerOffloadServiceEndpoint=f"http://127.0.0.1:{hung.getsockname()[1]}",
            **LAKE,
        )
        broker.environment |= keys
        with broker:
            subscribe_first(broker, "s")
            with Publishing(broker.service_url, tmp_path, [TOPIC]) as load:
                seen = soak("a bucket that hangs", {"broker": broker.pid}, SECONDS, messages=load)
    seen.check(flows=True)


def subscribe_first(broker: StandaloneProcess, *names: str) -> None:
    """So that everything that is published is kept."""
    with blocking.connect(broker.service_url) as client:
        for name in names:
            client.subscribe(TOPIC, name).close()


@pytest.mark.long
def test_lake_on_a_mount_that_hangs(tmp_path: Path) -> None:
    """Its files become pipes that nobody writes to: whoever opens one waits for good."""
    lake = tmp_path / "lake"
    lake.mkdir()
    broker = standalone(tmp_path, managedLedgerOffloadDriver="filesystem", fileSystemURI=f"file://{lake}", **LAKE)
    names = [f"s{number}" for number in range(8)]
    with broker, ExitStack() as stack:
        subscribe_first(broker, *names)
        load = stack.enter_context(Publishing(broker.service_url, tmp_path, [TOPIC]))
        pause = threading.Event()
        while len(list(lake.rglob("*.parquet"))) < 4:
            pause.wait(0.1)
        for path in lake.rglob("*.parquet"):
            path.unlink()
            os.mkfifo(path)
        client = stack.enter_context(blocking.connect(broker.service_url))
        consumers = [client.subscribe(TOPIC, name) for name in names]

        def receive() -> None:
            for consumer in consumers:
                with suppress(gc.Timeout):
                    consumer.receive(100)

        other = stack.enter_context(Load(receive))
        seen = soak("a lake's mount that hangs", {"broker": broker.pid}, SECONDS, messages=load, others=[other])
        broker.kill()
    seen.check(flows=True)
