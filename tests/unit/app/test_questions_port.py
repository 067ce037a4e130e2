"""The port where a bookie, or auto-recovery, answers HTTP: taken early, open late, and let go of."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from geminga.app.configuration.bookie_config import HttpListener
from geminga.app.configuration.bookie_http_tls import BookieHttpTlsConfig
from geminga.app.lifecycle.core.descriptors import plan_descriptors
from geminga.app.lifecycle.plain_http import PlainHttp
from geminga.app.servers.bookie_http import BookieHttp
from geminga.app.servers.questions_port import QuestionsPort
from geminga.bookie import BookieConfig
from geminga.bookie.serving import BookieServer
from geminga.bookie.spread import SpreadBookie
from geminga.model.errors import UnavailableError
from geminga.runtime import MemoryDisk, Runtime, real_runtime
from support.house.real_runtimes import close_runtime
from support.processes.certificates import Authority
from support.worlds.bookies import Listed

PLAN = plan_descriptors(None, open_logs=10, web_connections_max=64)


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def test_it_is_answered_over_tls_where_that_is_asked_for(tmp_path) -> None:
    authority = Authority(tmp_path, "authority")
    tls = BookieHttpTlsConfig(
        is_used=True, key_store=str(authority.store("own", "127.0.0.1")), trust_store=str(authority.certificate)
    )
    own = str(authority.store("client"))
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    known = ssl.create_default_context(cafile=str(authority.certificate))
    known.load_cert_chain(own)

    async def asked(port: int, context: ssl.SSLContext | None) -> bytes:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(b"GET /heartbeat HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            answer = await reader.read()
        except OSError:
            return b""
        writer.transport.abort()
        return answer

    async def main() -> None:
        runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
        http = await QuestionsPort.take(runtime, HttpListener("127.0.0.1", 0, "httpServerPort", tls), PLAN)
        port = await http.start(lambda: PlainHttp("a bookie", [], {}))
        assert b"200 OK" in await asked(port, known)
        # Nobody is answered plainly, or without a certificate.
        assert b"200 OK" not in await asked(port, None)
        assert await asked(port, trusting) == b""
        await http.close()
        await close_runtime(runtime)

    asyncio.run(main())


def test_port_is_taken_before_there_is_a_bookie_and_answers_once_there_is_one() -> None:
    async def main() -> None:
        real = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
        await real.disk.close()
        runtime = Runtime(real.clock, real.rng, MemoryDisk(), real.network, real.threads, real.on_fatal)
        http = await QuestionsPort.take(
            runtime, HttpListener("127.0.0.1", 0, "httpServerPort"), PLAN, ["bookie-7"], ["listed.example"]
        )
        bookie = await SpreadBookie.open(runtime, [("/j", "/l")], BookieConfig(), ledgers=Listed())
        server = await BookieServer.listen(runtime, bookie, "127.0.0.1", 0)
        port = await http.start(lambda: BookieHttp(bookie, runtime.clock.monotonic, (server.metrics,)))
        close = b"Host: localhost\r\nConnection: close\r\n\r\n"
        answer = await ask(port, b"GET /metrics HTTP/1.1\r\n" + close)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\ngeminga_bookie_connections 0\n" in answer
        assert (await ask(port, b"HEAD /heartbeat HTTP/1.1\r\n" + close)).endswith(b"\r\n\r\n")
        assert (await ask(port, b"DELETE /heartbeat HTTP/1.1\r\n" + close)).startswith(b"HTTP/1.1 405 ")
        # Not by a name that is none of its own.
        strange = await ask(port, b"GET /metrics HTTP/1.1\r\n" + close.replace(b"localhost", b"evil.example"))
        assert strange.startswith(b"HTTP/1.1 403 ")
        for name in (b"bookie-7", b"listed.example:80"):
            known = await ask(port, b"GET /heartbeat HTTP/1.1\r\n" + close.replace(b"localhost", name))
            assert known.startswith(b"HTTP/1.1 200 ")
        # A second one names its key, and does not get it.
        with pytest.raises(UnavailableError, match=f"prometheusStatsHttpPort: can not listen on 127.0.0.1:{port}: "):
            await QuestionsPort.take(runtime, HttpListener("127.0.0.1", port, "prometheusStatsHttpPort"), PLAN)
        await http.close()
        with pytest.raises(ConnectionRefusedError):
            await ask(port, b"")
        await server.close()
        await bookie.close()
        await runtime.threads.close()

    asyncio.run(main())
