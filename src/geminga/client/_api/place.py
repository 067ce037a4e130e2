"""``Place``: where a client may be used: in the process that made it, on the loop it was first used on.

What it holds (sockets, timers, futures) belongs to that loop. Used elsewhere it would hang, or change what another
thread is changing; so it says so.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from typing import Final

from geminga.client._api.errors import ForkedProcess, WrongLoop
from geminga.runtime.fork import fork_generation

#: The loop that runs in this thread, None if none does: no exception, unlike its public relative. It asks the system
#: for the process's id, 0.2 us: for each entry, not for each message of a batch.
running_loop: Final = events._get_running_loop


class Place:
    """Of one client."""

    __slots__ = ("_generation", "loop")

    def __init__(self) -> None:
        self._generation = fork_generation()
        #: The loop it was first used on; None: none so far.
        self.loop: asyncio.AbstractEventLoop | None = None

    def check_process(self) -> None:
        """Raise ForkedProcess in a child of the process that made it."""
        if self._generation != fork_generation():
            raise ForkedProcess(
                "this client was made before the process forked: its connections belong to the parent; "
                "make another client in the child"
            )

    def check(self) -> None:
        """Raise ForkedProcess or WrongLoop in another place; the first loop it is called on is the right one."""
        self.check_process()
        running = running_loop()
        if running is self.loop:
            return
        if self.loop is None:
            self.loop = running
        elif self.loop.is_closed():
            raise WrongLoop(
                "the loop this client was used on is closed, and its connections with it: make another client, in the "
                "coroutine that uses it"
            )
        elif running is not None:
            raise WrongLoop(
                "this client belongs to another loop, the one it was first used on: make a client for each loop, or "
                "take geminga.client.blocking, which any thread may use"
            )
        elif self.loop.is_running():
            raise WrongLoop(
                "this client belongs to a loop that runs in another thread: call it there "
                "(asyncio.run_coroutine_threadsafe), or take geminga.client.blocking, which any thread may use"
            )
