"""``geminga standalone`` as an operator runs it: start, signals, refusals, the fatal end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from geminga.app.storage.data_directory import DIRECTORY_FORMAT, FORMAT_FILE
from support.house.python_programs import run_python
from support.processes.killing import end_now

pytestmark = pytest.mark.integration


class Running:
    """A process with its ready line."""

    def __init__(self, data, *arguments: str, cwd=None) -> None:
        directory = [] if data is None else ["--data", str(data)]
        command = [sys.executable, "-m", "geminga", "standalone", *directory, *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*command, "--broker-port", "0", "--web-port", "0"], stdout=pipe, stderr=pipe, text=True, cwd=cwd
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Signal it, wait; its exit code and what it wrote to standard error."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


@pytest.fixture
def start():
    running: list[Running] = []

    def make(data, *arguments: str, cwd=None) -> Running:
        running.append(Running(data, *arguments, cwd=cwd))
        return running[-1]

    yield make
    for item in running:
        end_now(item.process)


def run_to_its_end(data, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "geminga", "standalone", "--data", str(data), *arguments]
    ports = ["--broker-port", "0", "--web-port", "0"]
    return subprocess.run([*command, *ports], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_it_cleanly(start, tmp_path, number: int) -> None:
    running = start(tmp_path / "d", "--json")
    ready = json.loads(running.line)
    assert ready["pid"] == running.process.pid
    assert ready["dataDir"] == str(tmp_path / "d")
    with urllib.request.urlopen(f"{ready['webServiceUrl']}/admin/v2/namespaces/public") as answer:
        assert json.load(answer) == ["public/default"]
    code, errors = running.end(number)
    assert code == 0
    assert "Traceback" not in errors
    assert "ERROR" not in errors


def test_without_a_directory_it_takes_one_here_and_says_so(start, tmp_path) -> None:
    here = tmp_path / "geminga-data"
    for _ in range(2):  # made, and found again
        running = start(None, "--json", cwd=tmp_path)
        assert json.loads(running.line)["dataDir"] == str(here)
        code, errors = running.end()
        assert code == 0
        assert f"geminga: no --data: everything is kept in {here}\n" in errors
    assert (here / FORMAT_FILE).exists()


def test_the_directory_here_that_is_another_s_is_refused(start, tmp_path) -> None:
    here = tmp_path / "geminga-data"
    here.mkdir()
    (here / "thesis.tex").write_text("mine")
    running = start(None, cwd=tmp_path)
    _, errors = running.process.communicate(timeout=30)
    assert running.process.returncode == 1
    assert f"data directory {here} is not empty and holds no geminga.json" in errors.splitlines()[-1]
    assert [path.name for path in here.iterdir()] == ["thesis.tex"]


def test_it_stops_while_clients_are_connected(start, tmp_path) -> None:
    ready = json.loads((running := start(tmp_path / "d", "--json")).line)
    port = int(ready["brokerServiceUrl"].rpartition(":")[2])
    web_port = int(ready["webServiceUrl"].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", web_port)) as idle:
        idle.sendall(b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(100).startswith(b"HTTP/1.1 200")
        assert running.end()[0] == 0


def test_ready_line_is_readable_and_printed_once(start, tmp_path) -> None:
    running = start(tmp_path / "d")
    assert running.line.startswith("Geminga ")
    assert "pulsar://127.0.0.1:" in running.line
    running.process.send_signal(signal.SIGTERM)
    rest, _ = running.process.communicate(timeout=30)
    assert rest == ""


def test_second_process_refuses_with_the_holders_pid(start, tmp_path) -> None:
    running = start(tmp_path / "d")
    second = run_to_its_end(tmp_path / "d")
    assert second.returncode == 1
    assert f"in use by process {running.process.pid}" in " ".join(second.stderr.split())
    assert "Traceback" not in second.stderr
    assert running.end()[0] == 0


def test_directory_is_free_after_a_kill(start, tmp_path) -> None:
    first = start(tmp_path / "d")
    first.end(signal.SIGKILL)
    assert start(tmp_path / "d").line.startswith("Geminga ")


def test_newer_directory_is_refused(tmp_path) -> None:
    (tmp_path / FORMAT_FILE).write_text(json.dumps({"format": DIRECTORY_FORMAT + 1, "createdBy": "geminga 9.0.0"}))
    result = run_to_its_end(tmp_path)
    assert result.returncode == 1
    assert "written by geminga 9.0.0" in " ".join(result.stderr.split())


def test_foreign_directory_is_refused(tmp_path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    result = run_to_its_end(tmp_path)
    assert result.returncode == 1
    assert "belongs to something else" in " ".join(result.stderr.split())


def test_wiped_bookie_is_refused(start, tmp_path) -> None:
    import shutil

    start(tmp_path / "d").end()
    shutil.rmtree(tmp_path / "d" / "bookie")
    result = run_to_its_end(tmp_path / "d")
    assert result.returncode == 1
    assert "bookie" in result.stderr
    assert "Traceback" not in result.stderr


def test_port_in_use_is_a_sentence(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "geminga", "standalone", "--data", str(tmp_path / "d"), "--web-port", "0"]
        result = subprocess.run(
            [*command, "--broker-port", str(port)], capture_output=True, text=True, timeout=60, check=False
        )
    assert result.returncode == 1
    assert f"brokerServicePort: can not listen on 127.0.0.1:{port}" in " ".join(result.stderr.split())


def test_it_warns_outside_loopback_and_names_unknown_keys(start, tmp_path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "bindAddress=0.0.0.0\ngemingaAllowOpen=true\nadvertisedAddress=127.0.0.1\nnobodyKnows=1\nzookeeperServers=zk:2181\n"
    )
    running = start(tmp_path / "d", "--config", str(conf))
    code, errors = running.end()
    assert code == 0
    assert "without authentication" in errors
    assert "unknown configuration key nobodyKnows" in errors
    assert "zookeeperServers=zk:2181 (" in errors
    assert "has no effect (Other metadata and bookies): this process keeps its own in its data directory" in errors


def test_fatal_error_ends_the_process_at_once_with_a_paragraph() -> None:
    code = (
        "from geminga.app.lifecycle.process_life import end_at_once\n"
        "from geminga.model.errors import DiskIOError\n"
        "import atexit; atexit.register(lambda: print('went on'))\n"
        "end_at_once('the journal', DiskIOError('fsync of journal/1 failed: Input/output error'))\n"
    )
    result = run_python(code, check=False)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "fatal error in the journal: fsync of journal/1 failed" in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
