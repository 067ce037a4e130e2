"""Sessions over a metadata socket: who is let in, what a lost connection, silence and a version cost."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable

import pytest

from geminga.metadata import MUST_NOT_EXIST, MemoryMetadata, MemoryMetadataStore, SessionEvent
from geminga.metadata.core.socket_codec import encode
from geminga.metadata.core.socket_hot import TEXT_BYTES_MAX
from geminga.metadata.core.socket_messages import (
    SECRET_BYTES,
    VERSION,
    BrokenMessageError,
    SessionHello,
    StoreOperation,
    StoreRequest,
)
from geminga.metadata.socket import calls, link, served, server
from geminga.metadata.socket.server import MetadataServer
from geminga.metadata.socket.store import RETRY_MS_MAX, SocketMetadataStore
from geminga.model.errors import (
    MetadataError,
    MetadataUnavailableError,
    SessionExpiredError,
    UnknownOutcomeError,
)
from geminga.runtime import wait_ms
from support.worlds.metadata_stores import Inbox, SocketCase, SocketHarness


@pytest.fixture
def case(tmp_path):
    return SocketCase(tmp_path / "metadata.socket", simulated=True)


@pytest.fixture
def real(tmp_path):
    return SocketCase(tmp_path / "metadata.socket")


def cut(h: SocketHarness) -> None:
    """Reset the store's connection, as if the kernel had."""
    h.store._link.abort()


# ---- the connection goes, the session stays


def test_a_lost_connection_costs_no_ephemeral_node(case):
    async def main(h: SocketHarness):
        events = Inbox()
        h.store.on_session_event(events)
        session = h.store.session
        await h.store.put("/e", b"", expected_version=None, ephemeral=True)
        cut(h)
        assert await events.has(2) == [SessionEvent.CONNECTION_LOST, SessionEvent.RECONNECTED]
        node = await h.store.get("/e")
        assert node is not None
        assert node.stat.is_own
        assert h.store.session == session

    case.run(main)


def test_a_write_without_an_answer_is_unknown_and_done_before_the_next_read(case):
    """What the server had read of a lost connection is carried out before the session is taken up again."""

    async def main(h: SocketHarness):
        await h.store.exists("/")
        h.faults.delay_ms_max = 5_000
        writing = asyncio.ensure_future(h.store.put("/a", b"x", expected_version=MUST_NOT_EXIST))
        while not h.server._sessions[h.store.session].connection._under_way:
            await wait_ms(1)
        cut(h)
        with pytest.raises(UnknownOutcomeError):
            await writing
        assert await h.store.exists("/a")

    case.run(main)


def test_a_write_that_was_not_sent_waits_for_the_connection(case):
    async def main(h: SocketHarness):
        cut(h)
        await wait_ms(0)
        assert (await h.store.put("/a", b"x", expected_version=MUST_NOT_EXIST)).stat.version == 0

    case.run(main)


def test_a_read_is_asked_again_until_its_connection_was_lost_too_often(case):
    async def main(h: SocketHarness):
        await h.store.put("/a", b"x", expected_version=None)
        events = Inbox()
        h.store.on_session_event(events)
        h.faults.delay_ms_max = 1 << 40
        reading = asyncio.ensure_future(h.store.get("/a"))
        for attempt in range(1, calls.READ_ATTEMPTS_MAX + 1):
            working = h.server._sessions[h.store.session].working
            while not working:
                await wait_ms(1)
            working.clear()  # the store would be at it for years: nobody waits for that
            cut(h)
            await events.has(2 * attempt)
        with pytest.raises(MetadataUnavailableError, match="connection lost"):
            await reading

    case.run(main)


def test_watches_hear_of_what_may_have_happened_without_a_connection(case):
    async def main(h: SocketHarness):
        there, gone, children = Inbox(), Inbox(), Inbox()
        h.store.watch_node("/a", there)
        h.store.watch_node("/b", gone)
        h.store.watch_children("/c", children)
        await h.store.put("/a", b"", expected_version=None)
        await there.has(1)
        cut(h)
        await there.has(2)
        await gone.has(1)
        await children.has(1)
        assert there.kinds_and_paths() == [("created", "/a"), ("modified", "/a")]
        assert gone.kinds_and_paths() == [("deleted", "/b")]
        assert children.kinds_and_paths() == [("children_changed", "/c")]
        await h.store.put("/b", b"", expected_version=None)
        await h.store.put("/c/1", b"", expected_version=None)
        await gone.comes(gone.items[-1]._replace(kind=there.items[0].kind))
        await children.has(2)

    case.run(main)


def test_calls_end_when_the_server_is_away_for_as_long_as_a_session_lives(case):
    async def main(h: SocketHarness):
        events = Inbox()
        h.store.on_session_event(events)
        await h.server._listener.close()
        cut(h)
        await events.has(1)
        with pytest.raises(MetadataUnavailableError, match="can not be reached now"):
            await h.store.get("/a")
        with pytest.raises(MetadataUnavailableError, match="can not be reached now"):
            await h.store.put("/a", b"", expected_version=None)
        assert events.items == [SessionEvent.CONNECTION_LOST]

    case.run(main)


# ---- the end of a session


def test_silence_ends_a_session_and_its_nodes(case):
    async def main(h: SocketHarness):
        other = await case.open(h.runtime, name="other")
        await h.store.put("/e", b"", expected_version=None, ephemeral=True)
        gone = Inbox()
        other.watch_node("/e", gone)
        assert await other.exists("/e")
        events = Inbox()
        h.store.on_session_event(events)
        h.store._link._ping.cancel()  # the process is paused: it says nothing any more
        begin = asyncio.get_running_loop().time()
        await gone.has(1)
        assert 29 < asyncio.get_running_loop().time() - begin < 31
        assert await events.has(2) == [SessionEvent.EXPIRED, SessionEvent.RECONNECTED]
        await other.close()

    case.run(main)


def test_calls_fail_from_the_end_of_a_session_until_the_next_one(case):
    async def main(h: SocketHarness):
        events = Inbox()
        h.store.on_session_event(events)
        await h.server._listener.close()
        await h.expire_session()
        assert await events.has(1) == [SessionEvent.EXPIRED]
        with pytest.raises(SessionExpiredError):
            await h.store.put("/a", b"", expected_version=None)
        with pytest.raises(SessionExpiredError):
            await h.store.get("/a")

    case.run(main)


def test_sessions_of_a_process_that_is_gone_end_at_once(case):
    async def main(h: SocketHarness):
        other = await case.open(h.runtime, name="broker-2")
        await h.store.put("/mine", b"", expected_version=None, ephemeral=True)
        await other.put("/other", b"", expected_version=None, ephemeral=True)
        await h.server.end_sessions_of("broker-2")
        assert await h.store.exists("/mine")
        assert not await h.store.exists("/other")
        other._give_up()

    case.run(main)


def test_a_session_that_can_not_be_ended_is_ended_later(case):
    async def main(h: SocketHarness):
        await h.store.put("/e", b"", expected_version=None, ephemeral=True)
        store, close, tries = h.behind, h.behind.close, []

        class FullOnce:
            """The store of the session, on a disk that is full at first."""

            async def close(self) -> None:
                tries.append(1)
                if len(tries) == 1:
                    raise MetadataError("no room")
                await close()

        h.server._sessions[h.store.session].store = FullOnce()
        await h.expire_session()
        events = Inbox()
        h.store.on_session_event(events)
        await events.comes(SessionEvent.RECONNECTED)
        assert not await h.store.exists("/e")
        assert len(tries) == 2
        assert store is not None

    case.run(main)


# ---- who is let in


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        ({"token": "another life"}, "another life of the standalone"),
        ({"version": VERSION - 1}, f"speaks version {VERSION - 1}"),
    ],
)
def test_a_client_of_another_life_or_version_is_refused_with_the_reason(case, hello, why, monkeypatch):
    async def main(h: SocketHarness):
        if "version" in hello:
            monkeypatch.setattr(link, "VERSION", hello["version"])
        with pytest.raises(MetadataError, match=why):
            await case.open(h.runtime, **{key: text for key, text in hello.items() if key == "token"})

    case.run(main)


def test_a_session_is_taken_up_only_by_who_knows_its_secret(case):
    async def main(h: SocketHarness):
        thief = await case.open(h.runtime, name="thief")
        thief._session = h.store._session._replace(secret=bytes(SECRET_BYTES))
        events = Inbox()
        thief.on_session_event(events)
        thief._link.abort()
        assert await events.has(3) == [SessionEvent.CONNECTION_LOST, SessionEvent.EXPIRED, SessionEvent.RECONNECTED]
        assert thief.session != h.store.session
        await thief.close()

    case.run(main)


def test_no_more_sessions_than_the_limit(case, monkeypatch):
    monkeypatch.setattr(server, "SESSIONS_MAX", 2)

    async def main(h: SocketHarness):
        second = await case.open(h.runtime, name="second")
        with pytest.raises(MetadataUnavailableError, match=r"not reached within 3 s \(2 sessions are open\)"):
            await case.open(h.runtime, name="third", connect_timeout_s=3)
        await second.close()
        third = await case.open(h.runtime, name="third", connect_timeout_s=3)
        await third.close()

    case.run(main)


def test_a_parent_that_restarts_is_fatal_to_children_of_its_earlier_life(case):
    async def main(h: SocketHarness):
        fatal = Inbox()
        runtime = h.runtime.__class__(
            **{name: getattr(h.runtime, name) for name in ("clock", "rng", "disk", "network", "threads")},
            on_fatal=lambda part, error: fatal((part, str(error))),
        )
        orphan = await case.open(runtime, name="orphan")
        h.server._token = "the next life"
        orphan._link.abort()
        ((part, sentence),) = await fatal.has(1)
        assert part == "metadata store"
        assert "another life" in sentence
        h.server._token = case.TOKEN

    case.run(main)


# ---- strange clients


class Stranger(asyncio.Protocol):
    """Says what it is told to, and waits until it is cut off."""

    def __init__(self, said: bytes) -> None:
        self._said = said
        self.gone = asyncio.get_running_loop().create_future()

    def connection_made(self, transport) -> None:
        transport.write(self._said)

    def connection_lost(self, error) -> None:
        self.gone.set_result(None)


HELLO = encode(SessionHello(VERSION, 0, bytes(SECRET_BYTES), 30_000, SocketCase.TOKEN, "stranger"))


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        encode(StoreRequest(1, StoreOperation.GET, "/a")),
        HELLO + HELLO,
        HELLO + b"\0\0\0\1\7",
    ],
    ids=["silent", "http", "oversized", "before hello", "two hellos", "unknown kind"],
)
def test_who_breaks_the_protocol_is_cut_off_and_others_are_served(case, said):
    async def main(h: SocketHarness):
        _, stranger = await h.runtime.network.connect_local(lambda: Stranger(said), h.server.path)
        async with asyncio.timeout(12):  # less than a session lives
            await stranger.gone
        await h.store.put("/a", b"", expected_version=None)

    case.run(main)


def test_requests_beyond_what_is_carried_out_at_once_wait_in_order(case, monkeypatch):
    monkeypatch.setattr(served, "UNDER_WAY_MAX", 4)

    async def main(h: SocketHarness):
        writes = (h.store.put(f"/n/{i}", bytes(100), expected_version=MUST_NOT_EXIST) for i in range(500))
        await asyncio.gather(*writes)
        assert len(await h.store.children("/n")) == 500

    case.run(main)


def test_a_list_that_no_frame_holds_is_a_failed_call(case, monkeypatch):
    monkeypatch.setattr("geminga.metadata.core.socket_codec.SERVER_FRAME_BYTES_MAX", 200)

    async def main(h: SocketHarness):
        for i in range(20):
            await h.store.put(f"/n/{i:010d}", b"", expected_version=None)
        with pytest.raises(MetadataError, match="at most 200 are sent"):
            await h.store.children("/n")
        assert await h.store.exists("/n/0000000001")

    case.run(main)


# ---- cut at every byte


def test_connection_that_is_cut_at_every_byte_loses_no_increment(tmp_path):
    """Each life of the connection lets one byte more through, in either direction; the counter is exact."""

    def counted(limits):
        async def main(h: SocketHarness):
            for direction in ("in", "out"):
                for limit in limits:
                    await _count_with_cut(h, direction, limit)
            node = await h.store.get("/counter")
            assert node is not None
            tokens = node.value.split()
            assert len(tokens) == len(set(tokens)) == 2 * len(limits)

        SocketCase(tmp_path / "metadata.socket", simulated=True, seed=len(limits)).run(main)

    counted(range(140))


async def _count_with_cut(h: SocketHarness, direction: str, limit: int) -> None:
    from geminga.metadata import cas

    if h.store._link is not None:
        _cut_after(h.store._link, direction, limit)
    mine = f"{direction}{limit}".encode()

    def change(value: bytes | None) -> bytes | None:
        seen = value.split() if value else []
        return None if mine in seen else b" ".join([*seen, mine])

    await cas.update(h.store, "/counter", change)


def _cut_after(connection, direction: str, limit: int) -> None:
    """Let so many bytes through, then reset the connection."""
    left = [limit]
    transport = connection._transport

    def cutting(through: Callable[[bytes], None]) -> Callable[[bytes], None]:
        def cut(data: bytes) -> None:
            through(data[: left[0]])
            left[0] -= len(data)
            if left[0] <= 0:
                transport.abort()

        return cut

    if direction == "out":
        connection.write = cutting(connection.write)
        # The closures of the calls hold the bound method.
        its_calls = connection._on_answer.__self__
        its_calls._write = connection.write
    else:
        connection.data_received = cutting(connection.data_received)


# ---- the socket itself


def test_only_the_user_may_connect_and_a_left_socket_is_replaced(real, tmp_path):
    path = tmp_path / "metadata.socket"

    async def main(h: SocketHarness):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600

    real.run(main)
    assert not path.exists()

    async def left_behind(h: SocketHarness):
        # A crash takes no name away.
        os.link(path, tmp_path / "left")

    real.run(left_behind)
    os.rename(tmp_path / "left", path)
    real.run(main)


def test_a_path_that_is_longer_than_an_address_is_reached(tmp_path):
    deep = tmp_path
    while len(str(deep)) < 300:
        deep = deep / "a-rather-long-name-of-a-directory"
    deep.mkdir(parents=True)

    async def main(h: SocketHarness):
        await h.store.put("/a", b"", expected_version=None)
        assert (deep / "metadata.socket").is_socket()

    SocketCase(deep / "metadata.socket").run(main)


def test_what_is_no_socket_is_not_replaced(real, tmp_path):
    (tmp_path / "metadata.socket").write_bytes(b"precious")

    async def main(h: SocketHarness):
        raise AssertionError("served")

    with pytest.raises(OSError, match="is no socket"):
        real.run(main)
    assert (tmp_path / "metadata.socket").read_bytes() == b"precious"


def test_a_closed_server_leaves_no_session(case):
    async def main(h: SocketHarness):
        state = MemoryMetadata()

        async def open_session() -> MemoryMetadataStore:
            return MemoryMetadataStore(h.runtime, state)

        second = await MetadataServer.listen(h.runtime, "/elsewhere", open_session, token="t")
        store = await SocketMetadataStore.open(h.runtime, "/elsewhere", token="t", name="n")
        await store.put("/e", b"", expected_version=None, ephemeral=True)
        assert state.tree.exists("/e")
        await second.close()
        assert not state.tree.exists("/e")
        store._give_up()

    case.run(main)


# ---- who opens or closes a store is cut off


def test_a_store_whose_opener_is_cut_off_tries_no_more(case):
    async def main(h: SocketHarness):
        state = MemoryMetadata()

        async def open_session() -> MemoryMetadataStore:
            return MemoryMetadataStore(h.runtime, state)

        opening = asyncio.ensure_future(SocketMetadataStore.open(h.runtime, "/later", token="t", name="n"))
        await wait_ms(100)
        opening.cancel()
        await asyncio.wait([opening])
        late = await MetadataServer.listen(h.runtime, "/later", open_session, token="t")
        await wait_ms(10 * RETRY_MS_MAX)
        assert late.sessions() == []
        await late.close()

    case.run(main)


def test_a_store_whose_closer_is_cut_off_is_closed(case, monkeypatch):
    async def main(h: SocketHarness):
        store = await case.open(h.runtime, name="cut off")
        # Others are ahead of it.
        monkeypatch.setattr(calls, "IN_FLIGHT_MAX", 0)
        closing = asyncio.ensure_future(store.close())
        await wait_ms(100)
        closing.cancel()
        await asyncio.wait([closing])
        await wait_ms(2 * store._timeout_ms)
        assert [name for _, name in h.server.sessions()] == [case.NAME]
        assert store._link is None

    case.run(main)


# ---- clients that do not read


async def unreading(h: SocketHarness) -> None:
    """A client that says hello, asks for more than a connection holds, and reads nothing."""
    await h.store.put("/large", b"x" * 100_000, expected_version=None)
    transport, _ = await h.runtime.network.connect_local(asyncio.Protocol, h.server.path)
    transport.pause_reading()
    transport.write(
        encode(SessionHello(VERSION, 0, bytes(SECRET_BYTES), server.SESSION_MS_MAX, SocketCase.TOKEN, "unread"))
    )
    for number in range(1, 20):
        transport.write(encode(StoreRequest(number, StoreOperation.GET, "/large")))
    await wait_ms(1000)


def test_a_client_that_reads_nothing_is_cut_off_before_its_session_is_over(case):
    async def main(h: SocketHarness):
        await unreading(h)
        await wait_ms(int(served.UNREAD_S_MAX * 900))
        assert len(h.server._connections) == 2
        await wait_ms(int(served.UNREAD_S_MAX * 200))
        assert len(h.server._connections) == 1
        assert len(h.server.sessions()) == 2
        assert (await h.store.get("/large")) is not None

    case.run(main)


def test_a_connection_that_is_closed_does_not_wait_for_its_client_for_ever(case):
    async def main(h: SocketHarness):
        await unreading(h)
        await h.server.end_sessions_of("unread")
        assert len(h.server._connections) == 2
        await wait_ms(int(served.CLOSE_GRACE_S * 1100))
        assert len(h.server._connections) == 1

    case.run(main)


def test_a_text_is_sent_up_to_its_limit_and_no_further() -> None:
    def hello(size_bytes: int) -> bytes:
        return encode(SessionHello(1, 0, bytes(SECRET_BYTES), 1000, "t", "n" * size_bytes))

    assert b"n" * TEXT_BYTES_MAX in hello(TEXT_BYTES_MAX)
    with pytest.raises(BrokenMessageError, match=f"a text of {TEXT_BYTES_MAX + 1} bytes, at most {TEXT_BYTES_MAX}"):
        hello(TEXT_BYTES_MAX + 1)
