"""One client per process and configuration, made on first use.

Spark forks its Python workers and reuses them: a client with a loop must be made after the fork, is kept in a global
of the module under the process id, and goes with the process. Nothing here is pickled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from geminga.client import (
    Authentication,
    Client,
    InvalidConfiguration,
    authentication_from,
    blocking,
    connect,
)
from geminga.runtime.loop_thread import LoopThread, loop_thread
from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.rules.option_values import OptionError

R = TypeVar("R")

#: Clients of one process; one more closes that which nobody asked for the longest, one without producers and consumers
#: before others.
CLIENTS_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class ClientSession:
    """A client on the process's loop thread. ``blocking`` is the same client for threads that may block."""

    client: Client
    thread: LoopThread
    blocking: blocking.Client

    def run(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Carry out a coroutine on the loop and wait for it."""
        return self.thread.run(make)


_sessions: dict[tuple[int, ClientConfiguration], ClientSession] = {}


def session_for(configuration: ClientConfiguration) -> ClientSession:
    """The process's client of that configuration; raises InvalidUrl, InvalidConfiguration, OptionError."""
    key = (os.getpid(), configuration)
    session = _sessions.get(key)
    if session is not None and session.thread.is_alive and not session.client.is_closed:
        _sessions[key] = _sessions.pop(key)
        return session
    for old in [old for old in _sessions if old[0] != key[0]]:
        del _sessions[old]  # the parent's: nothing of it works here
    while len(_sessions) >= CLIENTS_MAX:
        idle = (old for old, kept in _sessions.items() if not kept.client.is_in_use)
        _sessions.pop(next(idle, next(iter(_sessions)))).blocking.close()
    thread = loop_thread()
    arguments: dict[str, Any] = dict(configuration.arguments)
    authentication = authentication_of(configuration)
    client = thread.call(lambda: connect(configuration.service_url, authentication=authentication, **arguments))
    session = _sessions[key] = ClientSession(client, thread, blocking.Client(client, thread))
    return session


def authentication_of(configuration: ClientConfiguration) -> Authentication | None:
    """What ``pulsar.client.authPluginClassName`` and its parameters say; None: nothing. Raises OptionError."""
    try:
        return authentication_from(configuration.auth_plugin, configuration.auth_params)
    except InvalidConfiguration as error:
        raise OptionError(f"pulsar.client.authPluginClassName, pulsar.client.authParams: {error}") from None
