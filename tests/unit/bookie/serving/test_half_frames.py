"""Parts of large frames: what all clients of a bookie make it hold together is bounded, and whole ones get through."""

from __future__ import annotations

from struct import pack

from geminga.bookie.serving import BookieServer
from geminga.bookie.serving.limits import SERVER_BYTES_MAX
from geminga.bookkeeper import MemoryBookie
from geminga.runtime.frame_room import FRAME_S_MAX, HALF_FRAMES_BYTES_MAX, STALL_S
from geminga.wire.bookkeeper import v2, v3
from geminga.wire.bookkeeper.codes import StatusCode
from support.processes.served_bookies import KEY, Connect, Wire, pass_by, serve

SIZE = 4 * 1024 * 1024
#: More than there is room for.
CLIENTS = 2 * HALF_FRAMES_BYTES_MAX // SIZE
#: What one read of a socket may bring before it is known that there is no room.
READ_BYTES = 256 * 1024


def add(ledger_id: int) -> bytes:
    entry = pack(">qqqq", ledger_id, 0, -1, SIZE) + b"x" * SIZE
    return v3.encode_add(ledger_id, ledger_id, 0, KEY, entry, recovery=False)


def held_bytes(server: BookieServer) -> int:
    return sum(connection._decoder.buffered_bytes for connection in server.connections)


def test_parts_of_large_frames_are_bounded_together_and_those_who_wait_come_through():
    async def main(_: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        stalled = [await connect(3) for _ in range(CLIENTS)]
        for number, client in enumerate(stalled):
            client.transport.write(add(number)[:-100])
        await pass_by(1)
        assert HALF_FRAMES_BYTES_MAX // 2 < held_bytes(server) <= HALF_FRAMES_BYTES_MAX + CLIENTS * READ_BYTES
        other = await connect(3)
        (answer,) = await other.ask(add(1000))
        assert answer.status == StatusCode.EOK
        # As many as kept others waiting were closed, and no more.
        await pass_by(4 * STALL_S)
        lost = [client for client in stalled if client.is_lost]
        assert CLIENTS // 2 <= len(lost) < CLIENTS
        for number, client in enumerate(stalled):
            if not client.is_lost:
                client.transport.write(add(number)[-100:])
                assert (await client.answers(1))[0].status == StatusCode.EOK
        assert held_bytes(server) == 0
        assert server.frame_room.size_bytes == 0

    serve(main)


def test_all_who_send_on_have_their_large_entries_written_however_many_they_are():
    async def main(_: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        clients: list[Wire] = []
        for number in range(CLIENTS):
            client = await connect(2 if number % 2 else 3)
            entry = pack(">qqqq", number, 0, -1, SIZE) + b"x" * SIZE
            client.transport.write(v2.encode_add(KEY, entry, recovery=False) if number % 2 else add(number))
            clients.append(client)
        for client in clients:
            assert [answer.status for answer in await client.answers(1)] == [StatusCode.EOK]
        assert server.frame_room.size_bytes == 0

    serve(main)


def test_a_connection_that_is_not_read_is_not_closed_as_silent():
    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        begun = [await connect(3) for _ in range(HALF_FRAMES_BYTES_MAX // SIZE)]
        for number, client in enumerate(begun):
            client.transport.write(add(number)[:-100])
        await pass_by(1)
        waiting = await connect(3)
        waiting.transport.write(add(1000)[:-100])
        # The bookie has more to answer than it takes: it reads from nobody who has something unanswered.
        server.count(SERVER_BYTES_MAX)
        for connection in server.connections:
            connection._count(1)
            connection.update_flow()
        await pass_by(2 * STALL_S)
        assert not any(client.is_lost for client in begun)
        await pass_by(FRAME_S_MAX)
        assert any(client.is_lost for client in begun)

    serve(main)
