"""A server under a service manager: its sockets are made before it, it says when it serves and when it stops."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request

import pulsar
import pytest

pytestmark = pytest.mark.integration

#: As systemd does it: the descriptors from 3 on, and the variables for this very process. The first argument names
#: the descriptors, the second is the program.
_EXEC = """
import fcntl, os, sys
given = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 500) for number in sys.argv[1].split(",")]
for number, descriptor in enumerate(given, 3):
    os.dup2(descriptor, number)
    os.close(descriptor)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(given)))
os.execv(sys.argv[2], sys.argv[2:])
"""


def started(descriptors: list[int], *words: str, **options) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _EXEC, ",".join(map(str, descriptors))]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*command, sys.executable, "-m", "geminga", "standalone", *words],
        pass_fds=descriptors,
        stdout=pipe,
        stderr=pipe,
        text=True,
        **options,
    )


def test_sockets_of_the_manager_are_served_and_it_hears_of_start_and_stop(tmp_path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as binary,
        socket.create_server(("127.0.0.1", 0)) as web,
        socket.create_server(("127.0.0.1", 0)) as another,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        ports = [sock.getsockname()[1] for sock in (binary, web, another)]
        process = started(
            [sock.fileno() for sock in (binary, web, another)],
            *("--data", str(tmp_path / "data"), "--broker-port", f"{ports[0]}", "--web-port", f"{ports[1]}"),
            env={"NOTIFY_SOCKET": str(tmp_path / "notify")},
        )
        try:
            # Who comes before it serves waits in the kernel, and is served.
            early = f"http://127.0.0.1:{ports[1]}/admin/v2/brokers/ready"
            assert urllib.request.urlopen(early, timeout=60).read() == b"ok"
            assert manager.recv(10_000).startswith(b"READY=1\nSTATUS=Geminga ")
            client = pulsar.Client(f"pulsar://127.0.0.1:{ports[0]}")
            client.create_producer("t").send(b"x")
            client.close()
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            assert manager.recv(10_000) == b"STOPPING=1\nSTATUS=stopping"
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == 0, errors
        assert f"systemd listens on 127.0.0.1 port {ports[2]} for this service" in errors
        assert "SIGHUP: there is no file to look at again" in errors


def test_what_was_passed_on_is_no_socket(tmp_path) -> None:
    with open("/dev/null", "rb") as file:
        process = started([file.fileno()], "--data", str(tmp_path / "data"), "--broker-port", "0")
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "LISTEN_FDS=1: descriptor 3: expected a listening TCP socket" in errors
    assert "Traceback" not in errors
