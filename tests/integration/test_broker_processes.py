"""``geminga standalone --brokers N`` as processes under the official client: who serves, what a kill costs, the end."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import threading
import urllib.request
from pathlib import Path

import pulsar
import pytest
from tools.standalone_process import StandaloneProcess, StartError

from geminga.client import blocking
from support.processes.official import check_each_reaches_the_next, quiet_client
from support.stories.crash_load import Consuming, Publishing, drain

pytestmark = pytest.mark.integration

#: Topics under load, which are bundles of both processes as a rule.
TOPICS = 2
#: Of one round of load, seconds.
LOAD_S = 0.4
ROUNDS = 2
#: Longer than a session lives.
PAUSE_S = 36.0
#: A session's time-out, as long as a process may be silent behind it, and time to start.
HUNG_S_MAX = 150.0
ROUNDS_LONG = int(os.environ.get("CRASH_ROUNDS", "100")) // 5


def standalone(tmp_path: Path, *arguments: str, **settings: object) -> StandaloneProcess:
    return StandaloneProcess(
        tmp_path / "data", log=tmp_path / "broker.log", arguments=list(arguments), settings=settings
    )


def children_of(process: StandaloneProcess) -> list[int]:
    """Pids of its broker processes, oldest first."""
    found: list[int] = []
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        found += map(int, (task / "children").read_text(encoding="ascii").split())
    return sorted(found)


def wait_gone(pids: list[int], timeout_s: float = 20.0) -> None:
    """Until all of these have ended, whoever their parent is."""
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ended, _, _ = select.select([handle], [], [], timeout_s)
            assert ended, f"process {pid} lives on"
        finally:
            os.close(handle)


def topic(name: str, number: int) -> str:
    return f"persistent://public/default/{name}-{number}"


def owner_of(process: StandaloneProcess, name: str) -> str:
    found = json.loads(process.request("GET", f"/lookup/v2/topic/{name.replace('://', '/')}"))
    return str(found["brokerUrl"])


def runtime_value(web_url: str, key: str) -> str:
    with urllib.request.urlopen(f"{web_url}/admin/v2/brokers/configuration/runtime", timeout=20) as answer:
        return str(json.loads(answer.read())[key])


def test_a_setting_that_is_changed_at_one_process_is_followed_by_the_other(tmp_path: Path) -> None:
    with standalone(tmp_path, "--brokers", "2") as process:
        urls = [f"http://{one}" for one in json.loads(process.request("GET", "/admin/v2/brokers"))]
        assert len(urls) == 2
        for value in ("17", "18"):
            process.request("POST", f"/admin/v2/brokers/configuration/maxTopicsPerNamespace/{value}")
            while any(runtime_value(url, "maxTopicsPerNamespace") != value for url in urls):
                pass  # the time limit of the test ends it
        process.request("DELETE", "/admin/v2/brokers/configuration/maxTopicsPerNamespace")
        while any(runtime_value(url, "maxTopicsPerNamespace") != "0" for url in urls):
            pass


def load_of(web_url: str) -> dict[str, object]:
    with urllib.request.urlopen(f"{web_url}/admin/v2/broker-stats/load-report", timeout=20) as answer:
        report = json.loads(answer.read())
    assert isinstance(report, dict)
    return report


def test_processes_report_their_own_load_and_one_of_them_balances_it(tmp_path: Path) -> None:
    with standalone(tmp_path, "--brokers", "2", loadBalancerReportUpdateMinIntervalMillis=100) as process:
        urls = [f"http://{one}" for one in json.loads(process.request("GET", "/admin/v2/brokers"))]
        client = quiet_client(process.service_url, tmp_path)
        producers = [client.create_producer(topic("reported", number)) for number in range(8)]
        # A bundle is reported once it has topics, by who has it.
        while not all(load_of(url).get("bundles") for url in urls):
            pass  # the time limit of the test ends it
        reports = [load_of(url) for url in urls]
        held = [set(report["bundles"]) for report in reports]  # type: ignore[call-overload]
        assert not held[0] & held[1]
        for report in reports:
            # One core, however many the machine has.
            assert report["cpu"]["limit"] == 100  # type: ignore[index]
        assert "serviceUrl" in json.loads(process.request("GET", "/admin/v2/brokers/leaderBroker"))
        assert b"pulsar_lb_unload_bundle_total{" in process.request("GET", "/metrics")
        for producer in producers:
            producer.close()
        client.close()


def test_settings_of_load_that_are_none_refuse_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="loadBalancerLoadSheddingStrategy"):
        standalone(tmp_path, "--brokers", "2", loadBalancerLoadSheddingStrategy="Nobody").__enter__()


def test_two_processes_share_topics_and_each_sends_clients_to_the_other(tmp_path: Path) -> None:
    with standalone(tmp_path, "--brokers", "2") as process:
        assert len(children_of(process)) == 2
        owners = {name: owner_of(process, name) for name in (topic("both", i) for i in range(8))}
        assert len(set(owners.values())) == 2
        assert process.service_url in owners.values()
        clients = [quiet_client(url, tmp_path) for url in sorted(set(owners.values()))]
        check_each_reaches_the_next(clients, owners)
        for client in clients:
            client.close()
        # The bookie is in none of both processes, and its metrics are where a standalone has them.
        page = process.request("GET", "/metrics").decode()
        assert 'bookie_SERVER_STATUS{cluster="standalone"} 1' in page
        assert 'geminga_bookie_connections{cluster="standalone"} ' in page
        assert page.count("\nprocess_cpu_seconds_total{") == 2
        _check_transaction(process, list(owners))
        assert process.stop() == 0
    log = process.log.read_text(encoding="utf-8")
    assert " ERROR " not in log
    assert "Traceback" not in log
    assert sorted(path.name for path in process.data.iterdir() if path.is_socket()) == []


def _check_transaction(process: StandaloneProcess, names: list[str]) -> None:
    """One over topics of both processes, as a standalone has them without being told."""
    with blocking.connect(process.service_url) as client:
        consumers = [client.subscribe(name, "transaction") for name in names]
        producers = [client.create_producer(name) for name in names]
        with client.transaction() as txn:
            for producer in producers:
                producer.send(b"together", txn=txn)
        assert [consumer.receive(20_000).data() for consumer in consumers] == [b"together"] * len(names)


class Load:
    """Publishers and live consumers of some topics, and what is held against them at the end."""

    def __init__(self, process: StandaloneProcess, tmp_path: Path) -> None:
        self.client = quiet_client(process.service_url, tmp_path)
        self.names = [topic("load", number) for number in range(TOPICS)]
        for name in self.names:
            self.client.subscribe(name, "audit").close()
        self.publishing = [Publishing(self.client, name, batching=bool(i % 2)) for i, name in enumerate(self.names)]
        self.consuming = [Consuming(self.client, name, "live") for name in self.names]
        for one in (*self.consuming, *self.publishing):
            one.start()

    def check(self) -> int:
        """Nothing acknowledged is lost, order is kept; how many were acknowledged."""
        for publishing in self.publishing:
            publishing.stop()
        total = 0
        for name, publishing, consuming in zip(self.names, self.publishing, self.consuming, strict=True):
            consuming.wait_for(publishing.acknowledged, timeout_s=30)
            consuming.stop()
            audit = drain(self.client, name, "audit", publishing.acknowledged)
            assert publishing.errors == []
            assert publishing.acknowledged - audit.first == set(), f"{name}: acknowledged and lost"
            assert audit.out_of_order == []
            assert consuming.missing(publishing.acknowledged) == set(), f"{name}: not delivered"
            assert consuming.deliveries.out_of_order == []
            total += len(publishing.acknowledged)
        self.client.close()
        return total


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(ROUNDS_LONG, marks=pytest.mark.long)])
def test_kills_of_broker_processes_and_of_their_parent_lose_nothing_acknowledged(tmp_path: Path, rounds: int) -> None:
    """In turns: a broker process, which is started again, and the parent, which takes its processes along."""
    killed = 0
    with standalone(tmp_path, "--brokers", "2") as process:
        load = Load(process, tmp_path)
        for number in range(rounds):
            threading.Event().wait(LOAD_S)
            children = children_of(process)
            if number % 2:
                process.kill()
                wait_gone(children)
                process.start()
            else:
                victim = children[number // 2 % 2]
                os.kill(victim, signal.SIGKILL)
                killed += 1
                wait_gone([victim])
                _wait_served_again(process, killed)
        assert load.check() > 0
        assert len(children_of(process)) == 2
        assert process.stop() == 0
    assert process.log.read_text(encoding="utf-8").count("was ended by SIGKILL: another is started in") == killed


@pytest.mark.long
@pytest.mark.parametrize("who", ["broker process", "parent"])
def test_pause_that_outlives_a_session_loses_nothing_acknowledged(tmp_path: Path, who: str) -> None:
    """A paused broker's bundles go to the other, and it finds itself fenced; a paused parent stops everybody's time."""
    with standalone(tmp_path, "--brokers", "2") as process:
        load = Load(process, tmp_path)
        threading.Event().wait(LOAD_S)
        paused = children_of(process)[1] if who == "broker process" else process.pid
        os.kill(paused, signal.SIGSTOP)
        threading.Event().wait(PAUSE_S)
        os.kill(paused, signal.SIGCONT)
        threading.Event().wait(LOAD_S)
        assert load.check() > 0
        assert process.stop() == 0
    log = process.log.read_text(encoding="utf-8")
    expired = "is over: nothing was heard of it for 30000 ms" in log
    assert expired == (who == "broker process")
    assert "was ended by" not in log


@pytest.mark.long
def test_process_that_hangs_is_replaced_and_loses_nothing_acknowledged(tmp_path: Path) -> None:
    with standalone(tmp_path, "--brokers", "2") as process:
        load = Load(process, tmp_path)
        threading.Event().wait(LOAD_S)
        hung = children_of(process)[0]
        os.kill(hung, signal.SIGSTOP)
        _wait_served_again(process, 1, HUNG_S_MAX)
        assert hung not in children_of(process)
        threading.Event().wait(LOAD_S)
        assert load.check() > 0
        assert process.stop() == 0
    log = process.log.read_text(encoding="utf-8")
    assert "lives and is not heard of: it is ended unless it is within 60 s" in log
    assert log.count("was ended by SIGKILL") == 1


def _wait_served_again(process: StandaloneProcess, times: int, patience_s: float = 20.0) -> None:
    for _ in range(int(patience_s / 0.05)):
        if process.log.read_text(encoding="utf-8").count(" serves again ") >= times:
            return
        threading.Event().wait(0.05)
    raise AssertionError(process.log_tail())


def test_directory_is_served_with_any_number_of_processes_and_with_none(tmp_path: Path) -> None:
    names = [topic("grown", number) for number in range(TOPICS)]
    sent: list[bytes] = []
    for turn, arguments in enumerate(([], ["--brokers", "2"], ["--brokers", "1"], [])):
        process = standalone(tmp_path, *arguments)
        with process:
            client = quiet_client(process.service_url, tmp_path)
            for name in names:
                consumer = client.subscribe(name, "sub", initial_position=pulsar.InitialPosition.Earliest)
                client.create_producer(name).send(b"turn %d" % turn)
                sent = [b"turn %d" % each for each in range(turn + 1)]
                messages = [consumer.receive(timeout_millis=20_000) for _ in sent]
                assert [message.data() for message in messages] == sent
            client.close()
            assert process.stop() == 0
    assert len(sent) == 4


def test_signal_of_the_terminal_ends_all_in_good_order(tmp_path: Path) -> None:
    with standalone(tmp_path, "--brokers", "2") as process:
        children = children_of(process)
        assert process.process is not None
        process.process.send_signal(signal.SIGINT)
        assert process.process.wait(30) == 0
        wait_gone(children, 0.0)
    log = process.log.read_text(encoding="utf-8")
    assert log.count("process_life: stopping\n") == 3
    assert " ERROR " not in log


def test_second_signal_ends_all_at_once(tmp_path: Path) -> None:
    with standalone(tmp_path, "--brokers", "2") as process:
        children = children_of(process)
        for pid in children:
            os.kill(pid, signal.SIGSTOP)  # so that an orderly stop would wait
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGCONT)
        assert process.process is not None
        assert process.process.wait(30) in (128 + signal.SIGTERM, 128 + signal.SIGINT)
        for pid in children:
            os.kill(pid, signal.SIGCONT)
        wait_gone(children)


def test_port_that_is_taken_ends_the_start_and_leaves_no_process(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = StandaloneProcess(
            tmp_path / "data", log=tmp_path / "broker.log", arguments=["--brokers", "2"], broker_port=port
        )
        with pytest.raises(StartError, match="exit code 1"):
            process.start()
    log = process.log.read_text(encoding="utf-8")
    assert f"brokerServicePort: can not listen on 127.0.0.1:{port}" in log
    assert "broker process 0 (pid" in log
    assert "before it served" in log
    # The lock of the directory is free, and so is every socket: it starts.
    with standalone(tmp_path, "--brokers", "1") as again:
        assert again.stop() == 0
