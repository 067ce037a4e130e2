"""Row groups that were read lately, as entries; who asks for one that is being read waits for that read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from geminga.model.errors import LedgerClosedError, StorageError
from geminga.runtime import again

#: What an entry takes beside its bytes: the object and its place in the list.
ENTRY_BYTES: Final = 41

_Key = tuple[str, int]


class GroupCache:
    """The one used longest ago goes first; a group that is larger than all the room is not kept."""

    __slots__ = ("_groups", "_loading", "bytes_max", "hits", "misses", "size_bytes")

    def __init__(self, bytes_max: int) -> None:
        """``bytes_max``: of entries, with what Python takes for each of them."""
        self.bytes_max = bytes_max
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self._groups: dict[_Key, tuple[Sequence[bytes], int]] = {}
        self._loading: dict[_Key, asyncio.Future[Sequence[bytes] | StorageError | None]] = {}

    def get(self, uid: str, group: int) -> Sequence[bytes] | None:
        """The entries, if they are here."""
        found = self._groups.pop((uid, group), None)
        if found is None:
            return None
        self._groups[uid, group] = found
        self.hits += 1
        return found[0]

    async def load(self, uid: str, group: int, read: Callable[[], Awaitable[Sequence[bytes]]]) -> Sequence[bytes]:
        """The entries, read if they are not here. Raises StorageError."""
        key = (uid, group)
        while True:
            kept = self.get(uid, group)
            if kept is not None:
                return kept
            loading = self._loading.get(key)
            if loading is None:
                return await self._read(key, read)
            result = await asyncio.shield(loading)
            del loading  # see runtime's value_of
            if isinstance(result, StorageError):
                # Others are told of it, too.
                raise again(result)
            if result is not None:
                return result
            # Who read it was called off, or stopped by what it works for: whoever still wants it reads it.

    async def _read(self, key: _Key, read: Callable[[], Awaitable[Sequence[bytes]]]) -> Sequence[bytes]:
        self.misses += 1
        loading = self._loading[key] = asyncio.get_running_loop().create_future()
        outcome: Sequence[bytes] | StorageError | None = None
        try:
            outcome = await read()
            self._keep(key, outcome)
            return outcome
        except LedgerClosedError:
            raise
        except StorageError as error:
            outcome = error
            raise
        finally:
            del self._loading[key]
            loading.set_result(again(outcome) if isinstance(outcome, StorageError) else outcome)
            del outcome, loading  # see runtime's value_of

    def _keep(self, key: _Key, entries: Sequence[bytes]) -> None:
        size = sum(map(len, entries)) + len(entries) * ENTRY_BYTES
        if size > self.bytes_max:
            return
        self._groups[key] = entries, size
        self.size_bytes += size
        while self.size_bytes > self.bytes_max:
            oldest = next(iter(self._groups))
            self.size_bytes -= self._groups.pop(oldest)[1]

    def forget(self, uid: str) -> None:
        """A file is gone, with all that was made of it: names of that begin with ``uid``."""
        for key in [key for key in self._groups if key[0].startswith(uid)]:
            self.size_bytes -= self._groups.pop(key)[1]
