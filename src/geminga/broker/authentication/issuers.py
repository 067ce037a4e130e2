"""Keys of OpenID Connect issuers: read when a token first needs them, kept, and read again.

They are read again in the background when they get old, and at once where they are too old or a token names a key that
is not among them: at most once for each :attr:`IssuerTimes.miss_s` and issuer, so that nobody can make this broker ask
an issuer as often as it likes. An issuer that did not answer is asked again after some seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from geminga.model.errors import GemingaError, UnavailableError
from geminga.runtime import Clock, get_logger, spawn
from geminga.security.openid import IssuerKey, discovery_url, keys_url_of, parse_keys

_log = get_logger(__name__)

#: Seconds until an issuer that did not answer is asked again.
RETRY_S: Final = 10.0

Get = Callable[[str], Awaitable[bytes]]


class IssuerTimes(NamedTuple):
    """How old keys may be, seconds."""

    #: From then on they are read again in the background.
    refresh_s: float = 64_800.0
    #: From then on they do not hold any more.
    expire_s: float = 86_400.0
    #: Between two readings because of a key that is not there.
    miss_s: float = 300.0


class Issuer:
    """One of them, and its keys."""

    def __init__(self, name: str, get: Get, clock: Clock, times: IssuerTimes, *, needs_https: bool) -> None:
        self._name = name
        self._get = get
        self._clock = clock
        self._times = times
        self._needs_https = needs_https
        self._keys: tuple[IssuerKey, ...] = ()
        #: When the keys were read; None: they were not.
        self._read_s: float | None = None
        #: When it was asked last, and whether it answered.
        self._asked_s = float("-inf")
        self._has_failed = False
        self._asking: asyncio.Task[None] | None = None

    def known(self, key_id: str) -> tuple[IssuerKey, ...] | None:
        """The keys, if they hold and may have the one of ``key_id``; None: :meth:`read` may find it."""
        if self._read_s is None:
            return None
        now_s = self._clock.monotonic()
        age_s = now_s - self._read_s
        if age_s >= self._times.expire_s:
            return None
        if age_s >= self._times.refresh_s and self._may_ask(now_s):
            self._ask()
        has_it = not key_id or any(key.key_id == key_id for key in self._keys)
        return self._keys if has_it or age_s < self._times.miss_s else None

    async def read(self) -> tuple[IssuerKey, ...]:
        """The keys, read just now. Raises UnavailableError."""
        if self._asking is None and not self._may_ask(self._clock.monotonic()):
            raise UnavailableError(f"the issuer {self._name} did not answer a moment ago")
        task = self._asking or self._ask()
        await asyncio.wait([task])  # who gives up does not end it for the others
        if self._has_failed or task.cancelled():
            raise UnavailableError(f"the keys of the issuer {self._name} can not be read now")
        return self._keys

    def read_again(self) -> None:
        """In the background, because an operator says so; not where nobody needed the keys until now."""
        if self._read_s is not None and self._asking is None:
            self._ask()

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    def _may_ask(self, now_s: float) -> bool:
        holds = self._read_s is not None and now_s - self._read_s < self._times.expire_s
        pause_s = max(RETRY_S, self._times.miss_s) if holds else RETRY_S
        return self._asking is None and not (self._has_failed and now_s - self._asked_s < pause_s)

    def _ask(self) -> asyncio.Task[None]:
        self._asked_s = self._clock.monotonic()
        self._asking = spawn(self._read_now(), name=f"keys of {self._name}")
        self._asking.add_done_callback(self._asked)
        return self._asking

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking = None

    async def _read_now(self) -> None:
        try:
            url = keys_url_of(await self._get(discovery_url(self._name)), self._name)
            if self._needs_https and not url.startswith("https://"):
                raise ValueError(f"jwks_uri {url}: expected https://")
            self._keys = parse_keys(await self._get(url))
        except (GemingaError, ValueError) as error:
            self._has_failed = True
            _log.warning("keys of the issuer %s were not read: %s", self._name, error)
            return
        self._has_failed = False
        self._read_s = self._clock.monotonic()
