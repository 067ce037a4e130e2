"""What sockets that do nothing cost a broker, and that nothing of them stays: by thousands, so in long tests."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest
from tools.standalone_process import StandaloneProcess
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from support.house.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

SOCKETS = 5_000
#: KiB of each; 22 were measured for consumers, 7 for those that are only pinged.
CONSUMER_KIB_MAX = 40
PING_KIB_MAX = 16
PATHS = {
    "consumer": "/ws/v2/consumer/persistent/public/default/idle/s?subscriptionType=Shared",
    "ping": "/ws/v2/pingpong",
}


def opened(port: int, path: str) -> socket.socket:
    protocol = ClientProtocol(parse_uri(f"ws://127.0.0.1:{port}{path}"))
    protocol.send_request(protocol.connect())
    made = socket.create_connection(("127.0.0.1", port), timeout=60)
    made.sendall(b"".join(protocol.data_to_send()))
    answer = made.recv(4096)
    assert answer.startswith(b"HTTP/1.1 101 "), answer
    return made


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("kind", "kib_max"), [("consumer", CONSUMER_KIB_MAX), ("ping", PING_KIB_MAX)])
def test_idle_sockets_take_little_memory_and_leave_nothing_open(kind: str, kib_max: int, tmp_path: Path) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < 3 * SOCKETS:
        pytest.skip(f"the process may open {most} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    settings = {"maxHttpServerConnections": 2 * SOCKETS}
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "log", settings=settings) as process:
        sockets = [opened(process.web_port, PATHS[kind])]
        before = process.rss_bytes()
        sockets += [opened(process.web_port, PATHS[kind]) for _ in range(SOCKETS)]
        each_kib = (process.rss_bytes() - before) / SOCKETS / 1024
        print(f"{kind}: {each_kib:.1f} KiB each")
        for one in sockets:
            one.close()
        until(lambda: open_files(process.pid) < SOCKETS // 10, "the sockets are closed", 60)
        # And the next one is served.
        opened(process.web_port, PATHS[kind]).close()
    assert each_kib <= kib_max


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
