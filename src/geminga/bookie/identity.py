"""A bookie's directories and its cookies: opened if they belong together, made if all of them are new.

Nothing is written before everything was read and found to fit (``core/identity.py``); a bookie that is refused has lost
nothing. The directories are locked from before the first look until the end of the process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from geminga.bookie.core.checkpoint_format import decode_cookie
from geminga.bookie.core.identity import DirectoryState, Stamping, judge
from geminga.bookie.recovery import COOKIE_NAME, VERSION_NAME
from geminga.model.errors import DataDirectoryError
from geminga.runtime import Runtime, crash_point, get_logger
from geminga.runtime.local_file import reason_at
from geminga.wire.bookkeeper.bookie_cookie import BookieCookie, decode_bookie_cookie, encode_bookie_cookie

#: Crash points: behind each VERSION file, and behind the node.
STAMPED: Final = "bookie.identity.stamped"
REMEMBERED: Final = "bookie.identity.remembered"

_log = get_logger(__name__)


class Opened(Protocol):
    """A bookie, of one pair of directories or of several."""

    @property
    def has_ledgers(self) -> bool:
        """Whether it ever stored anything."""
        ...

    async def close(self) -> None:
        """Close it."""
        ...


#: Opened in directories that were found to be its own.
SomeBookie = TypeVar("SomeBookie", bound=Opened)
#: Writes the cookie into the metadata store.
Remember = Callable[[BookieCookie], Awaitable[None]]


async def open_identified(
    runtime: Runtime,
    cookie: BookieCookie,
    open_bookie: Callable[[], Awaitable[SomeBookie]],
    *,
    remembered: BookieCookie | None = None,
    remember: Remember | None = None,
) -> SomeBookie:
    """The bookie that ``cookie`` tells of, opened; ``remember`` where there is a metadata store.

    Raises DataDirectoryError for directories of somebody else, in use, emptied or not accessible, CorruptionError for
    a damaged cookie, and what ``open_bookie`` and ``remember`` raise; the bookie is closed again then.
    """
    directories = list(dict.fromkeys((*cookie.journal_directories, *cookie.ledger_directories)))
    states = [await _state_of(runtime, path) for path in directories]
    stamping = judge(cookie, remembered, states, has_store=remember is not None)
    bookie = await open_bookie()
    try:
        await _stamp(runtime, cookie, stamping, bookie, remember)
    except BaseException:
        await bookie.close()
        raise
    return bookie


async def _stamp(
    runtime: Runtime, cookie: BookieCookie, stamping: Stamping, bookie: Opened, remember: Remember | None
) -> None:
    if stamping.must_be_empty and bookie.has_ledgers:
        # Ledgers name a bookie by its id: under another one nobody would find them, or find something else.
        where = stamping.directories[0] if stamping.directories else "the metadata store"
        raise DataDirectoryError(
            f"{','.join(cookie.ledger_directories)} holds entries of ledgers, but {where} has no cookie of bookie "
            f"{cookie.bookie_id}: are they those of a standalone, or was a {VERSION_NAME} file removed, or the "
            "metadata store emptied? Bring it back, or begin with other directories"
        )
    for warning in stamping.warnings:
        _log.warning("%s", warning)
    for path in stamping.directories:
        await runtime.disk.write_file(f"{path}/{VERSION_NAME}", encode_bookie_cookie(cookie))
        crash_point(STAMPED)
    if stamping.is_remembered and remember is not None:
        await remember(cookie)
        crash_point(REMEMBERED)


async def _state_of(runtime: Runtime, path: str) -> DirectoryState:
    disk = runtime.disk
    try:
        await disk.make_dirs(path)
        await disk.lock_dir(path)
        names: Sequence[str] = await disk.list_dir(path)
        version = await disk.read_file(f"{path}/{VERSION_NAME}") if VERSION_NAME in names else None
        # One that is damaged is told of when the bookie is opened.
        own = decode_cookie(await disk.read_file(f"{path}/{COOKIE_NAME}")) if COOKIE_NAME in names else None
    except BlockingIOError as error:
        raise DataDirectoryError(f"{path} is in use by another bookie") from error
    except OSError as error:
        raise DataDirectoryError(f"{path}: {reason_at(error, path)}") from error
    cookie = None if version is None else decode_bookie_cookie(version, f"{path}/{VERSION_NAME}")
    return DirectoryState(path, cookie, COOKIE_NAME in names, own.instance_id.hex() if own is not None else "")
