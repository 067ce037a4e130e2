"""``geminga.Standalone``: a whole broker inside a program or a test.

::

    with geminga.Standalone() as broker:                 # in memory, on free ports
        client = pulsar.Client(broker.service_url)

    async with geminga.Standalone("/var/lib/app") as broker:   # on a directory
        ...

It runs on a loop and a thread of its own, so that a blocking client works in the thread that started it. Errors at
start are raised in the caller. After a fatal error (failed fsync, corrupt state) every connection is cut, nothing is
acknowledged any more, and :meth:`Standalone.stop` raises that error.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Self

from geminga.app.configuration.config import config_from
from geminga.app.configuration.config_sources import from_mapping
from geminga.app.lifecycle.event_loop import loop_factory
from geminga.app.servers.listeners import Addresses
from geminga.app.servers.standalone import StandaloneServer
from geminga.broker.composition.service import Broker
from geminga.broker.resources import Json
from geminga.model.errors import ConfigurationError, GemingaError, LocalError
from geminga.runtime import get_logger

#: Seconds that :meth:`Standalone.stop` waits beyond ``brokerShutdownTimeoutMs`` for the thread to end.
STOP_GRACE_S: Final = 10.0

_log = get_logger(__name__)


class Standalone:
    """A standalone in this process. ``data_dir`` None: in memory.

    ``config`` takes Pulsar's keys (``{"maxMessageSize": 1_024_000}``); ports are free ones unless it names them.
    ``bookies``: that many in this process (1), each with a directory of its own; with several an entry has two copies.
    Raises ConfigurationError for a bad value. An object can be started once.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        config: Mapping[str, object] | None = None,
        *,
        broker_port: int = 0,
        web_port: int = 0,
        bookies: int | None = None,
    ) -> None:
        given = {"brokerServicePort": broker_port, "webServicePort": web_port, **(config or {})}
        if bookies is not None:
            given["gemingaBookies"] = bookies
        self._config = config_from(from_mapping(given, "config"))
        if self._config.server.brokers:
            raise ConfigurationError(
                f"gemingaBrokers={self._config.server.brokers}: broker processes are started by geminga standalone "
                "--brokers; expected 0 here, or nothing"
            )
        for warning in self._config.warnings:
            _log.warning("%s", warning)
        self._data_dir = os.fspath(data_dir) if data_dir is not None else None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._server: StandaloneServer | None = None
        self._started: Future[Addresses] = Future()
        self._addresses: Addresses | None = None
        self._startup_seconds = 0.0
        #: The fatal error, once there was one.
        self._fatal: BaseException | None = None
        #: It is to stop as soon as it has started.
        self._is_called_off = False
        #: What callers wait for that the broker's loop carries out; None: nobody turns it any more.
        self._asked: set[Future[None]] | None = set()
        self._asking = threading.Lock()

    # ---- where it is

    @property
    def service_url(self) -> str:
        """``pulsar://host:port`` for clients."""
        return self._running().broker_service_url

    @property
    def service_url_tls(self) -> str:
        """``pulsar+ssl://host:port``; empty: ``brokerServicePortTls`` is not configured."""
        return self._running().broker_service_url_tls

    @property
    def web_service_url_tls(self) -> str:
        """``https://host:port`` of the admin REST; empty: ``webServicePortTls`` is not configured."""
        return self._running().web_service_url_tls

    @property
    def web_service_url(self) -> str:
        """``http://host:port`` of the admin REST."""
        return self._running().web_service_url

    @property
    def broker_port(self) -> int:
        """The port of the binary protocol that was bound."""
        return self._running().broker_port

    @property
    def web_port(self) -> int:
        """The HTTP port that was bound."""
        return self._running().web_port

    @property
    def startup_seconds(self) -> float:
        """How long :meth:`start` took, in seconds."""
        return self._startup_seconds

    @property
    def data_dir(self) -> str | None:
        """The data directory, or None in memory."""
        return self._data_dir

    # ---- what tests need of the administration, without HTTP

    def create_namespace(self, namespace: str) -> None:
        """Create ``tenant/namespace``, and the tenant if need be; raises ConflictError if it exists."""
        self._call(_create_namespace(self._broker(), namespace))

    def delete_namespace(self, namespace: str) -> None:
        """Delete ``tenant/namespace`` with its topics, also while clients are connected; raises NotFoundError."""
        from geminga.broker.rest.namespace_routes.deletion import delete_namespace_and_topics

        self._call(delete_namespace_and_topics(self._broker().administered, namespace))

    # ---- life

    def start(self) -> Self:
        """Start, wait until ready, return self; raises what went wrong: OSError, GemingaError (LocalError: twice).

        Interrupted (Ctrl-C), it raises that once what had been started has stopped again.
        """
        if self._thread is not None:
            raise LocalError("this Standalone was started already; make another one")
        begin = time.perf_counter()
        self._thread = threading.Thread(target=self._run, name="geminga-standalone", daemon=True)
        try:
            self._thread.start()
            self._addresses = self._started.result()
        except BaseException:
            self._call_off()
            if self._thread.is_alive():
                self._thread.join()
            raise
        self._startup_seconds = time.perf_counter() - begin
        return self

    def stop(self) -> None:
        """Stop cleanly and wait for it; raises the fatal error if there was one. Harmless when it is not running.

        Raises LocalError if it takes longer than ``brokerShutdownTimeoutMs`` and 10 seconds.
        """
        thread = self._thread
        if thread is None:
            return
        self._call_off()
        thread.join(self._config.server.shutdown_timeout_ms / 1000 + STOP_GRACE_S)
        if thread.is_alive():
            raise LocalError(f"the broker did not stop within {self._config.server.shutdown_timeout_ms} ms")
        self._addresses = None
        if self._fatal is not None:
            fatal, self._fatal = self._fatal, None
            raise fatal

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Nobody leaves what was never entered.
            self._call_off()
            await asyncio.wait((starting,))
            if not starting.cancelled() and starting.exception() is None:
                await asyncio.to_thread(self.stop)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    # ---- the broker's thread

    def _run(self) -> None:
        try:
            loop = self._new_loop()
        except GemingaError as error:
            self._started.set_exception(error)
            return
        self._loop = loop
        asyncio.set_event_loop(loop)
        try:
            self._serve_until_stopped(loop)
        finally:
            asyncio.set_event_loop(None)
            loop.close()
            self._refuse_asked()

    def _serve_until_stopped(self, loop: asyncio.AbstractEventLoop) -> None:
        serving = loop.create_task(self._serve(), name="standalone")
        try:
            loop.run_until_complete(serving)
        except BaseException as error:
            if self._fatal is None:
                if self._started.done():
                    self._fatal = error  # of its stop
                else:
                    self._started.set_exception(error)
                return
        if self._fatal is not None:
            serving.cancel()
            loop.run_until_complete(self._abandon())
            if not self._started.done():
                self._started.set_exception(self._fatal)

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = self._server = self._new_server()
        addresses = await server.start()
        self._started.set_result(addresses)
        if not self._is_called_off:
            await self._stop.wait()
        await server.stop()

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        return loop_factory(self._config.server.event_loop)()

    def _new_server(self) -> StandaloneServer:
        return StandaloneServer(self._config, self._data_dir, on_fatal=self._on_fatal, pid=os.getpid())

    async def _abandon(self) -> None:
        assert self._server is not None
        try:
            async with asyncio.timeout(STOP_GRACE_S / 2):
                await self._server.abandon()
        except TimeoutError:
            _log.error("threads or files did not close after the fatal error")

    def _on_fatal(self, part: str, error: BaseException) -> None:
        if self._fatal is not None:
            return
        _log.critical("fatal error in %s, stopping: %s", part, error)
        self._fatal = error
        # From here on no client can hear anything; the loop ends with this turn.
        if self._server is not None:
            self._server.cut_connections()
        assert self._loop is not None
        self._loop.stop()

    def _broker(self) -> Broker:
        self._running()
        assert self._server is not None
        assert self._server.broker is not None
        return self._server.broker

    def _call(self, coro: Coroutine[object, object, None]) -> None:
        """Carry out ``coro`` on the broker's loop and wait for it; raises what it raises, or why there is no end."""
        with self._asking:
            asked = self._asked
            if asked is not None:
                assert self._loop is not None
                answer = asyncio.run_coroutine_threadsafe(coro, self._loop)
                asked.add(answer)
        if asked is None:
            coro.close()
            raise self._why_over()
        try:
            answer.result()
        finally:
            with self._asking:
                asked.discard(answer)
            if inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
                coro.close()

    def _refuse_asked(self) -> None:
        """The loop turns no more: what it was to carry out would be waited for, for ever."""
        with self._asking:
            asked, self._asked = self._asked or set(), None
        for answer in list(asked):
            if not answer.done():
                answer.set_exception(self._why_over())

    def _why_over(self) -> BaseException:
        return self._fatal or LocalError("the broker stopped meanwhile")

    def _call_off(self) -> None:
        """Have it stop: now, or as soon as it has started."""
        self._is_called_off = True
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            try:
                loop.call_soon_threadsafe(stop.set)
            except RuntimeError:
                pass  # the loop ended by itself meanwhile

    def _running(self) -> Addresses:
        if self._addresses is None:
            raise LocalError("the broker is not running: use 'with Standalone() as broker' or call start()")
        return self._addresses


async def _create_namespace(broker: Broker, namespace: str) -> None:
    tenants = broker.resources.tenants
    tenant = namespace.partition("/")[0]
    if not await tenants.exists(tenant):
        clusters: list[Json] = [broker.config.cluster_name]
        await tenants.create(tenant, {"adminRoles": [], "allowedClusters": clusters})
    await broker.resources.namespaces.create(namespace)
