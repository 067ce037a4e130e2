"""The requests of ``metadata.zookeeper`` in kazoo's words; with ``kazoo_thread``, all that knows kazoo's insides.

Requests are made and queued here, not by kazoo's methods: those cost the loop four times as much.
kazoo has no request that ends a watch, so that one is written here, to ZooKeeper's protocol (``removeWatches``, 3.5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from kazoo import exceptions as zk
from kazoo.client import KazooClient
from kazoo.protocol.serialization import (
    Create,
    Create2,
    Delete,
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    SetData,
    Sync,
    Transaction,
    int_struct,
    write_string,
)
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.metadata.core.zookeeper_credentials import Scheme, ZooKeeperCredentials
from geminga.metadata.zookeeper.kazoo_thread import AsyncResult, Inbox, Kazoo, KazooHandler
from geminga.metadata.zookeeper.tls import followed_tls
from geminga.runtime import get_logger

#: Between two attempts to reach the ensemble, seconds: at first, and at most.
RETRY_FIRST_S: Final = 0.05
RETRY_MOST_S: Final = 2.0
#: What a server may take to let this client in, seconds, however short the session is.
ANSWER_LEAST_S: Final = 1.0

_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2
#: Kinds of watches in requests that end one.
_CHILDREN: Final = 1
_NODE: Final = 2
#: States in which kazoo takes no request.
_REFUSALS: Final[Mapping[str, type[Exception]]] = {
    KeeperState.AUTH_FAILED: zk.AuthFailedError,
    KeeperState.CLOSED: zk.ConnectionClosedError,
    KeeperState.EXPIRED_SESSION: zk.SessionExpiredError,
}

#: Told on the loop's thread: kazoo's state, the session's id (None: not connected).
OnState = Callable[[str, int | None], None]
#: Told on the loop's thread: the path without the chroot, whether children were watched.
OnEvent = Callable[[str, bool], None]

#: kazoo warns of each attempt to connect; the store tells once.
_kazoo_log = get_logger(f"{__name__}.kazoo")
_kazoo_log.setLevel("ERROR")


def answer_within_s(session_s: float, hosts: int) -> float:
    """Seconds that one of ``hosts`` servers may take to let this client in.

    Silence is noticed after two thirds of a session: the last third has to reach each server. kazoo waits a whole
    session for one, and a server that is starting may forget a connection that it has begun to read.
    """
    return max(ANSWER_LEAST_S, session_s / 3 / hosts)


def _said(credentials: ZooKeeperCredentials | None) -> dict[str, Kazoo]:
    """Who this client is, as kazoo takes it."""
    if credentials is None:
        return {}
    password = credentials.password.reveal()
    if credentials.scheme is Scheme.DIGEST:
        return {"auth_data": [(credentials.scheme.value, f"{credentials.user}:{password}")]}
    # Nothing is signed or encrypted by it: that is what TLS is for.
    return {
        "sasl_options": {
            "mechanism": "DIGEST-MD5",
            "username": credentials.user,
            "password": password,
            "qops": ("auth",),
        }
    }


class _RemoveWatches:
    """ZooKeeper's request 18: end the watch on children (1) or on a node (2)."""

    __slots__ = ("kind", "path")
    type = 18

    def __init__(self, path: str, kind: int) -> None:
        self.path = path
        self.kind = kind

    def serialize(self) -> bytearray:
        """Path and kind, as kazoo asks for it."""
        written = bytearray(write_string(self.path))
        written += int_struct.pack(self.kind)
        return written

    def deserialize(self, _data: bytes, _offset: int) -> bool:
        """The answer holds nothing."""
        return True


class ZooKeeperConnection:
    """One kazoo client: its session and requests. Paths are without the chroot unless they are said to be full."""

    def __init__(
        self, address: ZooKeeperAddress, session_timeout_ms: int, inbox: Inbox, *, on_state: OnState, on_event: OnEvent
    ) -> None:
        self._inbox = inbox
        self._chroot = address.chroot
        self._on_state = on_state
        self._on_event = on_event
        self._within_s = answer_within_s(session_timeout_ms / 1000, len(address.hosts))
        self._handler = KazooHandler(None if address.tls is None else followed_tls(address.tls).context, self._within_s)
        self._client = KazooClient(
            ",".join(address.hosts),
            timeout=session_timeout_ms / 1000,
            handler=self._handler,
            connection_retry=KazooRetry(
                max_tries=-1, delay=RETRY_FIRST_S, max_delay=RETRY_MOST_S, sleep_func=self._handler.sleep_func
            ),
            logger=_kazoo_log,
            **_said(address.credentials),
        )
        self._client.add_listener(self._state_changed)
        #: The servers do not take what this client says of who it is.
        self.is_refused = False
        self._authenticate = self._client._connection._authenticate_with_sasl
        self._client._connection._authenticate_with_sasl = self._authenticate_or_fail
        self._invoke = self._client._connection._invoke
        self._client._connection._invoke = self._invoke_in_time
        self._resolve = self._client._connection._expand_client_hosts
        self._client._connection._expand_client_hosts = self._resolve_or_tell
        # kazoo keeps callbacks in sets: the same ones for all paths.
        self._node_watcher = self._node_fired
        self._children_watcher = self._children_fired

    def start(self) -> None:
        """Begin to connect, and go on for ever."""
        self._client.start_async()

    def stop(self, done: Callable[[], None]) -> None:
        """End the session, on a thread: an ensemble that does not answer takes up to a session's time."""

        def on_thread() -> None:
            try:
                self._client.stop()
                self._client.close()
            finally:
                self._inbox.put(done)

        self._handler.spawn(on_thread)

    @property
    def last_failure(self) -> str:
        """Why the last attempt to connect failed; empty: none did."""
        return self._handler.last_failure

    @property
    def is_ended(self) -> bool:
        """kazoo gave up: nothing will come any more."""
        return self._client.client_state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED)

    # ---- requests

    def full(self, path: str) -> str:
        """With the chroot."""
        return path if not self._chroot else self._chroot if path == "/" else self._chroot + path

    def stripped(self, path: str) -> str:
        """Without the chroot."""
        return path[len(self._chroot) :] or "/"

    def get(self, path: str) -> Kazoo:
        """Value and stat."""
        return GetData(self.full(path), None)

    def look(self, path: str) -> Kazoo:
        """The stat, or None."""
        return Exists(self.full(path), None)

    def list(self, path: str) -> Kazoo:
        """Names of the children."""
        return GetChildren(self.full(path), None)

    def create(self, path: str, value: bytes, *, ephemeral: bool = False, sequential: bool = False) -> Kazoo:
        """Full path and stat."""
        flags = (_EPHEMERAL if ephemeral else 0) | (_SEQUENTIAL if sequential else 0)
        return Create2(self.full(path), value, OPEN_ACL_UNSAFE, flags)

    def create_full(self, full: str) -> Kazoo:
        """An empty node, at a path with the chroot."""
        return Create2(full, b"", OPEN_ACL_UNSAFE, 0)

    def create_sequences(self, path: str, count: int) -> Kazoo:
        """Ephemeral sequential nodes in one transaction: their full paths, or what went wrong with each."""
        create = Create(self.full(path), b"", OPEN_ACL_UNSAFE, _EPHEMERAL | _SEQUENTIAL)
        return Transaction((create,) * count)

    def delete_all(self, paths: Sequence[str]) -> Kazoo:
        """Delete in one transaction."""
        return Transaction(tuple(Delete(self.full(path), -1) for path in paths))

    def set(self, path: str, value: bytes, version: int) -> Kazoo:
        """The new stat."""
        return SetData(self.full(path), value, version)

    def delete(self, path: str, version: int) -> Kazoo:
        """Delete."""
        return Delete(self.full(path), version)

    def sync(self) -> Kazoo:
        """What is read on this connection from now on is not older than now."""
        return Sync("/")

    # ---- watches: see ``armed_watches.Arming``

    def exists(self, path: str) -> Kazoo:
        """The stat, or None; watched."""
        return Exists(self.full(path), self._node_watcher)

    def children(self, path: str) -> Kazoo:
        """Names and stat; watched."""
        return GetChildren2(self.full(path), self._children_watcher)

    def disarm(self, path: str, *, of_children: bool) -> Kazoo:
        """End a watch."""
        return _RemoveWatches(self.full(path), _CHILDREN if of_children else _NODE)

    # ---- to kazoo

    def submit(self, group: Sequence[tuple[Kazoo, AsyncResult]]) -> None:
        """Hand requests over, with one call of the kernel; kazoo's own way takes one each, and waits for the GIL."""
        client = self._client
        for request, answer in group:
            if isinstance(request, _RemoveWatches):
                # On kazoo's thread, before it reads the answer of what is armed after this.
                answer.rawlink(partial(self._disarmed, request))
        refusal = _REFUSALS.get(client.client_state)
        if refusal is None:
            client._queue.extend(group)
            try:
                # It reads one byte for each request.
                client._connection._write_sock.send(bytes(len(group)))
                return
            except (OSError, AttributeError):
                refusal = zk.ConnectionClosedError
        for _, answer in group:
            answer.set_exception(refusal())

    def _disarmed(self, request: _RemoveWatches, _: AsyncResult) -> None:
        client = self._client
        (client._child_watchers if request.kind == _CHILDREN else client._data_watchers).pop(request.path, None)

    # ---- on kazoo's thread

    def _invoke_in_time(self, timeout: float, request: Kazoo, xid: int | None = None) -> Kazoo:
        """What is said before the session stands, and its answer."""
        return self._invoke(min(timeout, self._within_s), request, xid)

    def _resolve_or_tell(self) -> Sequence[Kazoo]:
        """Hosts with their addresses. Where no name has one kazoo connects to nothing, and says so in its own log."""
        found: Sequence[Kazoo] = []
        # As of a name that can be none: kazoo's thread would end by it.
        with suppress(UnicodeError):
            found = self._resolve()
        if not found:
            names = ", ".join(host for host, _ in self._client.hosts)
            self._handler.last_failure = f"{names}: no address is known of this name"
        return found

    def _authenticate_or_fail(self, host: str, timeout: float) -> None:
        """SASL. kazoo ends for good where it fails, and must not where the connection was lost meanwhile."""
        try:
            self._authenticate(host, min(timeout, self._within_s))
        except zk.SessionClosedRequireSaslError as error:
            # So a server that wants nobody without it answers to a wrong password, too.
            self.is_refused = True
            raise zk.AuthFailedError("refused by the server") from error
        except zk.AuthFailedError as error:
            if isinstance(error.__cause__, zk.ConnectionDropped):
                self._handler.last_failure = f"{host}: the connection was lost while this client said who it is"
                raise error.__cause__ from None
            self.is_refused = True
            raise

    def _state_changed(self, state: str) -> None:
        client_id = self._client.client_id if state == KazooState.CONNECTED else None
        self._inbox.put(self._on_state, state, None if client_id is None else client_id[0])

    def _node_fired(self, event: Kazoo) -> None:
        self._fired(event, of_children=False)

    def _children_fired(self, event: Kazoo) -> None:
        self._fired(event, of_children=True)

    def _fired(self, event: Kazoo, *, of_children: bool) -> None:
        # Without a path: the connection was lost, which is told by the state.
        if event.path is not None:
            self._inbox.put(self._on_event, self.stripped(event.path), of_children)
