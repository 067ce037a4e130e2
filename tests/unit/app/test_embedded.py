"""``geminga.Standalone``: one thread for the broker, errors in the caller's."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import threading  # noqa: TID251 - which threads are left is what is tested
import urllib.request

import pulsar
import pytest

import geminga
from geminga.app.servers.embedded import Standalone
from geminga.app.servers.standalone import StandaloneServer
from geminga.client import InitialPosition, blocking
from geminga.client import NotAllowedError as ClientNotAllowedError
from geminga.model.errors import (
    ConfigurationError,
    ConflictError,
    DataDirectoryError,
    DiskIOError,
    GemingaError,
    LocalError,
    NotFoundError,
    UnavailableError,
)
from geminga.runtime import next_turn
from support.processes.official import quiet_client

TOPIC = "persistent://public/default/embedded"


@pytest.fixture(autouse=True)
def others() -> set[threading.Thread]:
    """Threads that were there before the test: those of a broker that serves the whole session."""
    _others.clear()
    _others.update(threading.enumerate())
    return _others


_others: set[threading.Thread] = set()


def broker_threads() -> list[str]:
    """Names of the broker threads this test left behind."""
    return [t.name for t in threading.enumerate() if t.name.startswith("geminga") and t not in _others]


def test_blocking_client_works_in_the_same_thread(tmp_path) -> None:
    with geminga.Standalone() as broker:
        assert broker.startup_seconds > 0
        assert broker.service_url == f"pulsar://127.0.0.1:{broker.broker_port}"
        client = quiet_client(broker.service_url, tmp_path)
        consumer = client.subscribe(TOPIC, "s")
        client.create_producer(TOPIC).send(b"hello")
        assert consumer.receive(10_000).data() == b"hello"
        client.close()
        with urllib.request.urlopen(f"{broker.web_service_url}/admin/v2/brokers/health") as answer:
            assert answer.read() == b"ok"
    assert broker_threads() == []


def test_messages_survive_on_a_directory(tmp_path) -> None:
    for attempt in range(2):
        with Standalone(tmp_path / "data") as broker:
            assert broker.data_dir == str(tmp_path / "data")
            client = quiet_client(broker.service_url, tmp_path)
            consumer = client.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)
            if attempt == 0:
                client.create_producer(TOPIC).send(b"kept")
            else:
                assert consumer.receive(10_000).data() == b"kept"
            client.close()


def test_whatever_lies_in_the_directory_is_the_users_alone(tmp_path) -> None:
    before = os.umask(0)
    try:
        with Standalone(tmp_path / "new" / "data", bookies=2):
            found = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
            modes = {path: stat.S_IMODE(path.stat().st_mode) for path in found}
    finally:
        os.umask(before)
    assert {path.name for path in found} >= {"metadata.sqlite", "metadata.sqlite-wal", "geminga.json", "cookie"}
    assert any(path.suffix == ".journal" for path in found)
    assert not {str(path): oct(mode) for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)}


def test_async_context_manager_runs_beside_the_callers_loop() -> None:
    async def main() -> str:
        async with Standalone() as broker:
            _, writer = await asyncio.open_connection("127.0.0.1", broker.broker_port)
            writer.close()
            await writer.wait_closed()
            return broker.service_url

    assert asyncio.run(main()).startswith("pulsar://127.0.0.1:")


def test_configuration_reaches_the_broker() -> None:
    with Standalone(config={"advertisedAddress": "broker.example", "clusterName": "east"}) as broker:
        assert broker.service_url.startswith("pulsar://broker.example:")
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.web_port}/admin/v2/clusters") as answer:
            assert answer.read() == b'["east"]'


def test_bad_configuration_is_raised_where_it_is_given() -> None:
    with pytest.raises(ConfigurationError, match="maxMessageSize=much"):
        Standalone(config={"maxMessageSize": "much"})


def test_errors_at_start_are_raised_in_the_caller(tmp_path) -> None:
    (tmp_path / "foreign").write_text("x")
    with pytest.raises(DataDirectoryError, match="belongs to something else"):
        Standalone(tmp_path).start()
    with Standalone() as broker, pytest.raises(UnavailableError, match="brokerServicePort: can not listen"):
        Standalone(broker_port=broker.broker_port).start()
    assert broker_threads() == []


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("bindAddress", "a..b", r"can not listen on a\.\.b"),
        ("advertisedAddress", "[x", r"advertisedAddress=\[x: expected a host name or an IP address"),
    ],
)
def test_a_host_that_is_none_is_told_and_leaves_nothing_behind(tmp_path, setting: str, value: str, told: str) -> None:
    """Its directory was in use until the program ended."""
    with pytest.raises(GemingaError, match=told):
        Standalone(tmp_path / "d", {setting: value, "gemingaAllowOpen": True}).start()
    assert broker_threads() == []
    with Standalone(tmp_path / "d"):
        pass


def test_directory_in_use_is_refused_and_free_again_after_the_stop(tmp_path) -> None:
    with Standalone(tmp_path / "d"), pytest.raises(DataDirectoryError, match="in use by process"):
        Standalone(tmp_path / "d").start()
    with Standalone(tmp_path / "d"):
        pass


@pytest.mark.parametrize("content", [None, b""])
def test_lost_metadata_beside_a_bookie_with_entries_is_refused(tmp_path, content) -> None:
    with Standalone(tmp_path / "d") as broker:
        client = quiet_client(broker.service_url, tmp_path)
        client.create_producer(TOPIC).send(b"precious")
        client.close()
    path = tmp_path / "d" / "metadata.sqlite"
    saved = path.read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(DataDirectoryError, match=r"was metadata\.sqlite removed"):
        Standalone(tmp_path / "d").start()
    path.write_bytes(saved)
    with Standalone(tmp_path / "d") as broker:
        client = quiet_client(broker.service_url, tmp_path)
        consumer = client.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)
        assert consumer.receive(10_000).data() == b"precious"
        client.close()


def test_several_run_at_once() -> None:
    with Standalone() as first, Standalone() as second:
        assert first.broker_port != second.broker_port


def test_misuse_is_told() -> None:
    broker = Standalone()
    with pytest.raises(LocalError, match="not running"):
        _ = broker.service_url
    broker.stop()
    with broker, pytest.raises(LocalError, match="started already"):
        broker.start()
    with pytest.raises(LocalError, match="not running"):
        _ = broker.web_service_url


def test_namespace_is_made_and_deleted_without_http() -> None:
    with Standalone() as broker:
        broker.create_namespace("acme/orders")
        with pytest.raises(ConflictError):
            broker.create_namespace("acme/orders")
        broker.delete_namespace("acme/orders")
        with pytest.raises(NotFoundError):
            broker.delete_namespace("acme/orders")


def test_fatal_error_cuts_clients_off_and_is_raised_by_stop() -> None:
    async def peer(port: int, fail) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        fail()
        data = await reader.read()
        writer.close()
        return data

    broker = Standalone().start()
    server, loop = broker._server, broker._loop
    assert server is not None
    assert server.runtime is not None
    on_fatal = server.runtime.on_fatal
    error = DiskIOError("fsync failed")

    def fail() -> None:
        loop.call_soon_threadsafe(on_fatal, "journal", error)

    try:
        received = asyncio.run(peer(broker.broker_port, fail))
    except ConnectionResetError:
        received = b""
    assert received == b""
    with pytest.raises(DiskIOError, match="fsync failed"):
        broker.stop()
    assert broker_threads() == []


@pytest.mark.parametrize("is_fatal", [True, False])
def test_a_call_that_the_broker_can_not_answer_any_more_ends_with_it(is_fatal: bool) -> None:
    """It waited for ever: nobody turned the loop any more that was to carry it out."""
    broker = Standalone().start()
    loop, error = broker._loop, DiskIOError("fsync failed")
    assert loop is not None
    begun, raised = threading.Event(), []

    async def unanswered() -> None:
        begun.set()
        await loop.create_future()

    def call() -> None:
        try:
            broker._call(unanswered())
        except GemingaError as failed:
            raised.append(failed)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    assert begun.wait(10)
    if is_fatal:
        loop.call_soon_threadsafe(broker._on_fatal, "journal", error)
        broker._thread.join(10)
    else:
        broker.stop()
    caller.join(10)
    assert not caller.is_alive()
    assert [str(failed) for failed in raised] == ["fsync failed" if is_fatal else "the broker stopped meanwhile"]
    with pytest.raises(GemingaError, match="fsync failed" if is_fatal else "not running"):
        broker.create_namespace("acme/orders")
    if is_fatal:
        with pytest.raises(DiskIOError):
            broker.stop()


def test_an_error_of_its_stop_that_nobody_expected_is_raised_there(tmp_path) -> None:
    """It was printed by the broker's thread, and the stop was told to have gone well."""

    async def breaks() -> None:
        raise KeyError("nobody thought of it")

    broker = Standalone(tmp_path / "d").start()
    assert broker._server is not None
    broker._server._closers.append(("part of a test", breaks))
    with pytest.raises(KeyError, match="nobody thought of it"):
        broker.stop()
    assert broker_threads() == []
    with Standalone(tmp_path / "d"):
        pass


class InterruptedStart(Standalone):
    """Ctrl-C comes while it starts."""

    def _new_server(self) -> StandaloneServer:
        interrupted = threading.main_thread().ident
        assert interrupted is not None
        signal.pthread_kill(interrupted, signal.SIGINT)
        return super()._new_server()


def test_a_start_that_is_interrupted_leaves_no_broker_behind(tmp_path) -> None:
    """It waited for a broker that nobody had told to stop; a second Ctrl-C left it running, on its directory."""
    # A Spark session, which another test of the process may have had, leaves a handler of its own.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(20)
    try:
        with pytest.raises(KeyboardInterrupt):
            InterruptedStart(tmp_path / "d").start()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGINT, former)
    assert broker_threads() == []
    with Standalone(tmp_path / "d"):
        pass


def _give_up(number: int, _: object) -> None:
    raise AssertionError(f"signal {number}: the start is still waited for")


def test_a_start_that_is_called_off_leaves_no_broker_behind(tmp_path) -> None:
    async def main() -> None:
        broker = Standalone(tmp_path / "d")
        entering = asyncio.ensure_future(broker.__aenter__())
        while broker._thread is None:
            await next_turn()
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering

    asyncio.run(main())
    assert broker_threads() == []
    with Standalone(tmp_path / "d"):
        pass


def test_transactions_work_on_a_directory_from_before_there_were_any(tmp_path) -> None:
    with Standalone(tmp_path / "data", {"transactionCoordinatorEnabled": False}) as broker:
        with blocking.connect(broker.service_url) as client:
            client.create_producer(TOPIC).send(b"old")
            with pytest.raises(ClientNotAllowedError, match="transactionCoordinatorEnabled"):
                client.transaction()
        assert partitions(broker) == 0
    for attempt in range(2):
        with Standalone(tmp_path / "data") as broker, blocking.connect(broker.service_url) as client:
            assert partitions(broker) == 16
            with client.transaction() as txn:
                client.create_producer(TOPIC).send(b"%d" % attempt, txn=txn)
    with Standalone(tmp_path / "data") as broker, blocking.connect(broker.service_url) as client:
        consumer = client.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
        assert [consumer.receive(10_000).data() for _ in range(3)] == [b"old", b"0", b"1"]


def partitions(broker: Standalone) -> int:
    """Coordinators of transactions."""

    def get(path: str):
        with urllib.request.urlopen(f"{broker.web_service_url}/admin/v2/persistent/pulsar/system/{path}") as answer:
            return json.load(answer)

    if not get("partitioned?includeSystemTopic=true"):
        return 0
    return get("transaction_coordinator_assign/partitions")["partitions"]
