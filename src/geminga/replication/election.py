"""Who of the candidates is the auditor: the one with the oldest vote (BookKeeper's election).

A vote is an ephemeral sequential node. Nothing but reading says who won: watches only say when to read.
Two auditors for a moment do no harm.
"""

from __future__ import annotations

from collections.abc import Callable

from geminga.metadata import cas
from geminga.metadata.ports import MetadataStore, Notification, Unsubscribe
from geminga.model.errors import MetadataError, UnknownOutcomeError
from geminga.replication import crash_points
from geminga.runtime import crash_point, get_logger
from geminga.wire.bookkeeper.under_replication import ELECTION_PATH, VOTE_PREFIX, encode_vote, vote_number

_log = get_logger(__name__)


class Election:
    """One candidate's part in it."""

    __slots__ = ("_candidate", "_store", "_vote", "_was_elected")

    def __init__(self, store: MetadataStore, candidate: str) -> None:
        self._store = store
        self._candidate = candidate
        #: Name of our vote's node, as far as known.
        self._vote: str | None = None
        self._was_elected = False

    async def is_elected(self) -> bool:
        """Vote, unless done, and tell whether ours is the oldest vote now. Raises MetadataError."""
        votes = await self._votes()
        if self._vote not in votes:
            self._was_elected = False
            self._vote = await self._find_own(votes) or await self._make_vote()
            votes = await self._votes()
        is_elected = bool(votes) and votes[0] == self._vote
        if is_elected and not self._was_elected:
            value = encode_vote(self._candidate)
            await cas.update(self._store, ELECTION_PATH, lambda found: None if found == value else value)
            _log.info("%s is the auditor", self._candidate)
        self._was_elected = is_elected
        return is_elected

    async def leave(self) -> None:
        """Take the vote back, so that the next one need not wait for the session's end."""
        if self._vote is not None:
            vote, self._vote = self._vote, None
            try:
                await cas.remove(self._store, f"{ELECTION_PATH}/{vote}")
            except MetadataError as error:
                _log.warning("the auditor's vote stays until the session ends: %s", error)

    def watch(self, callback: Callable[[Notification], None]) -> Unsubscribe:
        """Hear when votes come or go."""
        return self._store.watch_children(ELECTION_PATH, callback)

    async def _votes(self) -> list[str]:
        """Oldest first."""
        names = await self._store.children(ELECTION_PATH)
        numbered = [(number, name) for name in names if (number := vote_number(name)) is not None]
        return [name for _, name in sorted(numbered)]

    async def _find_own(self, votes: list[str]) -> str | None:
        """A vote whose making had an unknown outcome."""
        for name in votes:
            node = await self._store.get(f"{ELECTION_PATH}/{name}")
            if node is not None and node.stat.is_own and node.value == encode_vote(self._candidate):
                return name
        return None

    async def _make_vote(self) -> str | None:
        path = f"{ELECTION_PATH}/{VOTE_PREFIX}"
        try:
            made = await self._store.put(
                path, encode_vote(self._candidate), expected_version=None, ephemeral=True, sequential=True
            )
        except UnknownOutcomeError:
            return None  # found by the next look if it is there
        crash_point(crash_points.VOTED)
        return made.path.rpartition("/")[2]
