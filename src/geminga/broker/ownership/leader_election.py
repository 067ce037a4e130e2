"""Who leads the cluster: whoever made the ephemeral node ``/loadbalance/leader``, as Pulsar's brokers do.

The leader decides which broker takes a bundle, and what is moved. That is a matter of order, not of safety: what two
that think to lead decide are two decisions, and who owns a bundle is told by the bundle's node alone.
"""

from __future__ import annotations

from collections.abc import Callable

from geminga.broker.ownership.core.broker_data import LEADER_PATH, Leader, decode_leader
from geminga.broker.ownership.rounds import Rounds
from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore, SessionEvent, Unsubscribe
from geminga.model.errors import BadVersionError, CorruptionError, MetadataError, NoSuchNodeError
from geminga.runtime import Part, get_logger

_log = get_logger(__name__)


class LeaderElection:
    """See the module."""

    def __init__(self, metadata: MetadataStore, own: Leader, *, part: Part | None = None) -> None:
        """``own``: what this broker writes when it leads."""
        self._metadata = metadata
        self._own = own
        self._rounds = Rounds(self._look, "leader of the cluster", part=part)
        self._leader: Leader | None = None
        self._is_leader = False
        #: Counts sessions: what was made in another one is void.
        self._session = 0
        self._ends: list[Unsubscribe] = []
        self._listeners: list[Callable[[bool], None]] = []

    def start(self) -> None:
        """Stand for election, and follow who leads."""
        self._ends.append(self._metadata.watch_node(LEADER_PATH, lambda _: self._rounds.look_soon()))
        self._ends.append(self._metadata.on_session_event(self._session_changed))
        self._rounds.start()

    async def close(self) -> None:
        """Lead no more, at once; what can not be taken away ends with the session."""
        for end in self._ends:
            end()
        # What a look that is under way finds is void.
        self._session += 1
        self._lead(False)
        await self._rounds.end()
        try:
            await self._take_away()
        except MetadataError as error:
            _log.warning("this broker's node as the leader stays until its session ends: %s", error)

    @property
    def leader(self) -> Leader | None:
        """Who was seen to lead last; None: nobody, or one that can not be told."""
        return self._leader

    @property
    def is_leader(self) -> bool:
        """Whether it is this broker."""
        return self._is_leader

    def listen(self, changed: Callable[[bool], None]) -> None:
        """``changed`` is called with whether this broker leads, when that changes, until the end."""
        self._listeners.append(changed)

    # ---- private

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._session += 1
            self._leader = None
            self._lead(False)
        elif event is SessionEvent.RECONNECTED:
            self._rounds.look_soon()

    def _lead(self, is_leader: bool) -> None:
        if is_leader == self._is_leader:
            return
        self._is_leader = is_leader
        _log.info("this broker %s", "leads the cluster" if is_leader else "leads the cluster no more")
        for changed in list(self._listeners):
            changed(is_leader)

    async def _look(self) -> bool:
        session = self._session
        try:
            leader, is_own = await self._elect()
        except CorruptionError as error:
            _log.warning("%s", error)
            leader, is_own = None, False
        except MetadataError:
            # Who was seen last is believed to lead: to be asked in vain costs a client one attempt.
            return False
        if session != self._session:
            return False
        self._leader = leader
        self._lead(is_own)
        return leader is not None

    async def _elect(self) -> tuple[Leader | None, bool]:
        """Who leads, and whether by a node of this session. Raises MetadataError, CorruptionError."""
        value = self._own.encode()
        node = await self._metadata.get(LEADER_PATH)
        if node is None:
            await self._metadata.put(LEADER_PATH, value, expected_version=MUST_NOT_EXIST, ephemeral=True)
            node = await self._metadata.get(LEADER_PATH)
            if node is None:
                return None, False
        leader = decode_leader(node.value)
        if leader.broker_id == self._own.broker_id and not node.stat.is_own:
            # Of a session of this broker that is over: until it ends nobody leads.
            return None, False
        return leader, node.stat.is_own

    async def _take_away(self) -> None:
        node = await self._metadata.get(LEADER_PATH)
        if node is None or not node.stat.is_own:
            return
        try:
            await self._metadata.delete(LEADER_PATH, expected_version=node.stat.version)
        except (NoSuchNodeError, BadVersionError):
            pass
