"""A bookie in the metadata store: its cookie there, the cluster's id, and that it is up.

While it takes entries its ephemeral node lies in ``/ledgers/available``, while its disk is full in ``.../readonly``.
The node of the new state is made before that of the old one goes, as by BookKeeper's bookies: one is always there.
What is there is looked at before each write and after each that failed: a write may have happened or not, a session may
have expired, and its nodes with it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.metadata import cas
from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore, SessionEvent
from geminga.model.bookie_port import Availability
from geminga.model.errors import (
    BadVersionError,
    CorruptionError,
    DataDirectoryError,
    GemingaError,
    MetadataError,
    NoSuchNodeError,
)
from geminga.runtime import Runtime, SparseWarnings, again, get_logger, spawn, wait_ms
from geminga.wire.bookkeeper.bookie_cookie import BookieCookie, decode_bookie_cookie, encode_bookie_cookie
from geminga.wire.bookkeeper.bookie_registration import (
    AVAILABLE_PATH,
    BOOKIE_MARKS_PATH,
    COOKIES_PATH,
    INSTANCE_ID_PATH,
    READ_ONLY_NAME,
    READ_ONLY_PATH,
    decode_mark,
)
from geminga.wire.bookkeeper.ledger_path import HIERARCHICAL_LAYOUT, LAYOUT_PATH

#: How long a start waits at least for the node of an earlier session to go: that lives on for ``zkTimeout``.
STALE_WAIT_S: Final = 15.0
#: Between two looks while it waits, and between two attempts to register.
RETRY_MS: Final = 500
#: What taking the nodes away may take, seconds: they go with the session, which ends next.
END_S: Final = 2.0
_UUID_DIGITS: Final = 16
#: Where bookies that are up are looked for: one that goes from one list to the other meanwhile is in one of these.
_PLACES: Final = (AVAILABLE_PATH, READ_ONLY_PATH, AVAILABLE_PATH)

_log = get_logger(__name__)


async def prepare_cluster(metadata: MetadataStore) -> None:
    """Make what BookKeeper looks for in a cluster, but for the id, where it is missing. Raises MetadataError."""
    for path in (AVAILABLE_PATH, READ_ONLY_PATH):
        await cas.put_if_absent(metadata, path, b"")
    await cas.put_if_absent(metadata, LAYOUT_PATH, HIERARCHICAL_LAYOUT)


async def cluster_id(metadata: MetadataStore, runtime: Runtime) -> str:
    """The cluster's id; drawn where there is neither one nor any bookie. Empty: a cluster that never had one.

    Raises MetadataError, CorruptionError.
    """
    node = await metadata.get(INSTANCE_ID_PATH)
    if node is None and await metadata.children(COOKIES_PATH):
        # They may be of a bookie that began the cluster just now: the id is there before its cookie.
        node = await metadata.get(INSTANCE_ID_PATH)
        if node is None:
            # Its bookies' cookies have none, and would not fit any more.
            return ""
    value = node.value if node is not None else await draw_cluster_id(metadata, runtime)
    try:
        return value.decode("ascii")
    except UnicodeDecodeError as error:
        raise CorruptionError(f"metadata node {INSTANCE_ID_PATH} holds no id of a cluster") from error


async def draw_cluster_id(metadata: MetadataStore, runtime: Runtime) -> bytes:
    """Give the cluster an id where it has none; the one it has then. Raises MetadataError."""
    drawn = runtime.rng.token(_UUID_DIGITS)
    text = "-".join((drawn[:8], drawn[8:12], drawn[12:16], drawn[16:20], drawn[20:]))
    written = await cas.update(metadata, INSTANCE_ID_PATH, lambda found: None if found else text.encode())
    return b"" if written is None else written.value


async def remembered_cookie(metadata: MetadataStore, bookie_id: str) -> BookieCookie | None:
    """What the store has under this id. Raises MetadataError, CorruptionError."""
    path = f"{COOKIES_PATH}/{bookie_id}"
    node = await metadata.get(path)
    return None if node is None else decode_bookie_cookie(node.value, f"metadata node {path}")


async def remember_cookie(metadata: MetadataStore, cookie: BookieCookie, before: BookieCookie | None) -> None:
    """Write the cookie in the place of ``before``. Raises DataDirectoryError if another one came there meanwhile."""
    path = f"{COOKIES_PATH}/{cookie.bookie_id}"

    def change(value: bytes | None) -> bytes | None:
        found = None if value is None else decode_bookie_cookie(value, f"metadata node {path}")
        if found == cookie:
            return None
        if found != before:
            raise DataDirectoryError(f"another bookie was registered as {cookie.bookie_id} meanwhile")
        return encode_bookie_cookie(cookie)

    await cas.update(metadata, path, change)


async def registered_ids(metadata: MetadataStore) -> set[str]:
    """Ids of the bookies that are up. Raises MetadataError."""
    found: set[str] = set()
    for place in _PLACES:
        found.update(await metadata.children(place))
    return found - {READ_ONLY_NAME}


async def forget_cookie(metadata: MetadataStore, cookie: BookieCookie) -> bool:
    """Remove the node of a bookie that will be emptied; False: there is none.

    Raises DataDirectoryError if the node is another bookie's, or the bookie is registered as up; MetadataError.
    """
    for place in _PLACES:
        if await metadata.exists(f"{place}/{cookie.bookie_id}"):
            raise DataDirectoryError(f"a bookie is registered as {cookie.bookie_id}: does it run elsewhere?")
    path = f"{COOKIES_PATH}/{cookie.bookie_id}"
    node = await metadata.get(path)
    if node is None:
        return False
    found = decode_bookie_cookie(node.value, f"metadata node {path}")
    if found.instance_id != cookie.instance_id:
        raise DataDirectoryError(f"metadata node {path} belongs to a bookie of another cluster")
    # The marks first: without a cookie nobody would come back for them.
    await _forget_marks(metadata, cookie.bookie_id)
    await cas.remove_read(metadata, path, node)
    return True


async def _forget_marks(metadata: MetadataStore, bookie_id: str) -> None:
    for instance in await metadata.children(BOOKIE_MARKS_PATH):
        path = f"{BOOKIE_MARKS_PATH}/{instance}"
        node = await metadata.get(path)
        if node is not None and decode_mark(node.value, f"metadata node {path}").bookie_id == bookie_id:
            await cas.remove(metadata, path)


class Registration:
    """One bookie's nodes. Made by :meth:`begin`; follows what :meth:`set` says until :meth:`end`."""

    def __init__(
        self, metadata: MetadataStore, bookie_id: str, info: bytes, *, stale_wait_s: float = STALE_WAIT_S
    ) -> None:
        self._metadata = metadata
        self._id = bookie_id
        self._info = info
        self._stale_wait_s = stale_wait_s
        self._wanted: Availability | None = None
        #: Something is to be done, or may be.
        self._due = asyncio.Event()
        self._is_ending = False
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe = metadata.on_session_event(self._session_changed)

    async def begin(self, availability: Availability) -> None:
        """Register, waiting for the node of an earlier session to go.

        Raises DataDirectoryError if it stays, MetadataError.
        """
        self._wanted = availability
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._stale_wait_s
        failure: GemingaError | None = None
        while True:
            try:
                if await self._apply():
                    break
                failure = DataDirectoryError(
                    f"a bookie is registered as {self._id} already: does it run elsewhere, or did it end just now?"
                )
            except MetadataError as error:
                failure = again(error)
            if clock() >= deadline:
                self._unsubscribe()
                raise again(failure)
            await wait_ms(RETRY_MS)
        self._task = spawn(self._follow(), name=f"bookie-registration-{self._id}")

    def set(self, availability: Availability) -> None:
        """Tell the cluster, soon. (A listener of the bookie.)"""
        if availability is not Availability.DOWN:
            self._wanted = availability
            self._due.set()

    async def end(self) -> None:
        """Take the nodes away; what can not be, or not in :data:`END_S`, is left to the end of the session."""
        self._is_ending = True
        self._unsubscribe()
        try:
            async with asyncio.timeout(END_S):
                if self._task is not None:
                    self._due.set()
                    await self._task
                for path in (AVAILABLE_PATH, READ_ONLY_PATH):
                    await self._remove(f"{path}/{self._id}")
        except (MetadataError, TimeoutError) as error:
            why = str(error) or "the metadata store does not answer"
            _log.warning("bookie %s: its registration stays until its session ends: %s", self._id, why)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is not SessionEvent.CONNECTION_LOST:
            self._due.set()

    async def _follow(self) -> None:
        warnings = SparseWarnings(_log, asyncio.get_running_loop().time)
        while True:
            await self._due.wait()
            self._due.clear()
            if self._is_ending:
                return
            try:
                story = "" if await self._apply() else "another session is registered under its id"
            except MetadataError as error:
                story = str(error)
            if story:
                warnings.warn(f"bookie {self._id}: not registered as it should be, trying again: {story}")
                await wait_ms(RETRY_MS)
                self._due.set()

    async def _apply(self) -> bool:
        """Make the nodes say what is wanted; False: another session holds the id. Raises MetadataError."""
        places = (AVAILABLE_PATH, READ_ONLY_PATH)
        wanted, other = places if self._wanted is Availability.WRITABLE else places[::-1]
        for place in places:
            node = await self._metadata.get(f"{place}/{self._id}")
            if node is not None and not node.stat.is_own:
                return False
        path = f"{wanted}/{self._id}"
        if await self._metadata.get(path) is None:
            try:
                await self._metadata.put(path, self._info, expected_version=MUST_NOT_EXIST, ephemeral=True)
            except BadVersionError:
                return False
        await self._remove(f"{other}/{self._id}")
        return True

    async def _remove(self, path: str) -> None:
        node = await self._metadata.get(path)
        if node is not None and node.stat.is_own:
            try:
                await self._metadata.delete(path)
            except NoSuchNodeError:
                pass
