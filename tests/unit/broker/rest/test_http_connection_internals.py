"""What of uvicorn's and h11's insides the HTTP connection uses: both are pinned, and a new version must keep this."""

from __future__ import annotations

import asyncio
import inspect
import tomllib
from importlib.metadata import version

import h11
import pytest
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from geminga.broker.rest.http.http_connection import HttpConnection
from support.house.source_tree import ROOT


@pytest.mark.parametrize("package", ["uvicorn", "h11", "websockets"])
def test_version_is_of_the_range_whose_ends_were_read(package: str) -> None:
    """``make package`` runs these tests with the lowest and with the highest one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (line,) = [line for line in project["optional-dependencies"]["server"] if line.startswith(package)]
    low, high = ([int(part) for part in bound.split(".")] for bound in line.removeprefix(f"{package}>=").split(",<"))
    assert low <= [int(part) for part in version(package).split(".")] < high


def test_protocol_is_made_and_overridden_as_here() -> None:
    assert list(inspect.signature(H11Protocol.__init__).parameters)[:4] == [
        "self",
        "config",
        "server_state",
        "app_state",
    ]
    for name in ("connection_lost", "data_received", "on_response_complete", "shutdown"):
        assert callable(getattr(H11Protocol, name)), name
    for name in ("connection_lost", "data_received"):
        assert inspect.signature(getattr(HttpConnection, name)) == inspect.signature(getattr(H11Protocol, name)), name


def test_protocol_has_the_members_that_are_read() -> None:
    source = inspect.getsource(H11Protocol.__init__)
    for member in ("self.transport", "self.cycle", "self.conn", "self.flow"):
        assert f"{member}:" in source or f"{member} =" in source, member
    assert "self.logger = logging.getLogger(" in source
    assert inspect.getsource(H11Protocol.handle_events).count("self.logger.warning(") == 2
    source = inspect.getsource(RequestResponseCycle.__init__)
    for member in (
        "self.response_started = False",
        "self.response_complete = False",
        "self.on_response =",
        "self.waiting_for_100_continue = ",
    ):
        assert member in source, member
    assert "self.read_paused = False" in inspect.getsource(FlowControl.__init__)
    assert "self.conn = h11.Connection(" in inspect.getsource(H11Protocol.__init__)
    assert "self.flow = FlowControl(transport)" in inspect.getsource(H11Protocol.connection_made)
    assert callable(H11Protocol._unset_keepalive_if_required)
    assert set(vars(FlowControl(asyncio.Transport()))) >= {"read_paused", "write_paused"}
    state = ServerState()
    assert state.connections == set()
    assert state.tasks == set()


def test_parser_tells_what_it_waits_for() -> None:
    connection = h11.Connection(h11.SERVER)
    assert connection.their_state is h11.IDLE
    connection.receive_data(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Le")
    assert connection.next_event() is h11.NEED_DATA
    assert connection.trailing_data[0]
    connection.receive_data(b"ngth: 1\r\n\r\n")
    assert isinstance(connection.next_event(), h11.Request)
    assert connection.their_state is h11.SEND_BODY


def test_connection_that_is_given_away_leaves_no_word_of_uvicorns() -> None:
    source = inspect.getsource(RequestResponseCycle.run_asgi)
    # What ends without an answer is told, unless whoever asked is gone: so a cycle says that was given away.
    assert source.count("not self.disconnected") == 2
    assert "self.disconnected = False" in inspect.getsource(RequestResponseCycle.__init__)
    assert "self.message_event = message_event" in inspect.getsource(RequestResponseCycle.__init__)
    assert "self.access_log = " in inspect.getsource(H11Protocol.__init__)
    assert "if self._should_upgrade():" in inspect.getsource(H11Protocol.handle_events)
    assert inspect.signature(HttpConnection._should_upgrade) == inspect.signature(H11Protocol._should_upgrade)
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nearly")
    assert isinstance(connection.next_event(), h11.Request)
    assert isinstance(connection.next_event(), h11.EndOfMessage)
    assert connection.next_event() is h11.PAUSED
    assert connection.trailing_data == (b"early", False)


def test_frames_of_the_library_are_read_as_here() -> None:
    protocol = ServerProtocol(state=State.OPEN)
    assert isinstance(protocol.reader.buffer, bytearray)
    protocol.receive_data(b"\x81\x85\0\0\0\0hel")
    assert protocol.events_received() == []
    assert len(protocol.reader.buffer) == 3
    protocol.receive_data(b"lo")
    (frame,) = protocol.events_received()
    assert isinstance(frame, Frame)
    assert (frame.opcode, bytes(frame.data), frame.fin) == (Opcode.TEXT, b"hello", True)
    protocol.fail(1000)
    # The end of the stream is an empty text.
    assert protocol.data_to_send()[-1] == b""
    waiting = ServerProtocol()
    waiting.receive_data(Request("/", Headers(Host="x")).serialize())
    assert isinstance(waiting.events_received()[0], Request)


def test_configuration_takes_the_limits_that_are_set() -> None:
    taken = inspect.signature(Config.__init__).parameters
    for name in ("http", "ws", "lifespan", "timeout_keep_alive", "h11_max_incomplete_event_size"):
        assert name in taken, name
