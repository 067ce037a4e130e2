"""Ownership by bundles: an ephemeral node says whose a bundle is. ``docs/formats/namespace-bundles.md``.

What this broker owns is what it made a node for, in the session that it has now, and did not let go of since. The end
of the session ends all of it at once, before anything else is done about it; topics are closed then. News of a node is
only ever a reason to read it, and what was not heard of is found by a round over all bundles (:data:`ROUND_MS`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from geminga.broker.core.departure import Departure
from geminga.broker.ownership.core.bundles import Bundle, BundleIndex, Bundles, whole
from geminga.broker.ownership.core.owner_data import OWNERS_PATH, OwnerData, owner_path
from geminga.broker.ownership.departures import Departures
from geminga.broker.ownership.endpoints import Endpoints
from geminga.broker.ownership.namespace_bundles import KeepCuts, NamespaceBundles, PoliciesOf
from geminga.broker.ownership.owner_nodes import ENDING_HERE, OwnerNodes, owner_in, owner_of_endpoints
from geminga.broker.ownership.ports import HERE, Elsewhere, Here, Owner, OwnershipListener, Topics, Unknown
from geminga.broker.ownership.questions import Questions
from geminga.metadata import cas
from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore, SessionEvent, Unsubscribe
from geminga.model.errors import (
    BadVersionError,
    GemingaError,
    MetadataError,
    NoSuchNodeError,
    PreconditionFailedError,
    StorageError,
    UnavailableError,
    UnknownOutcomeError,
)
from geminga.model.topic_name import TopicName
from geminga.runtime import Clock, Contained, Part, get_logger, spawn, wait_ms

#: Bundles that one broker owns.
OWN_BUNDLES_MAX: Final = 100_000
#: Nodes written at the same time while bundles are released.
WRITES_AT_ONCE: Final = 64
#: Cuts of one split.
SPLIT_KEYS_MAX: Final = 1_000
#: Nodes that are taken away later; others stay until the session ends.
LEFTOVER_MAX: Final = 10_000
#: Attempts to make a node whose outcome is unknown, or that goes as soon as it is met.
ACQUIRE_ATTEMPTS_MAX: Final = 8
#: Between two looks at every bundle that is owned, and between two attempts to take a node away.
ROUND_MS: Final = 10_000
RETRY_MS: Final = 500

#: Who is to take a bundle that nobody owns: ``Here``, ``Elsewhere`` (not its owner yet) or ``Unknown``. Raises
#: StorageError.
Placement = Callable[[Bundle], Awaitable[Owner]]

_AWAY: Final = Unknown("this broker has no session with the metadata store now")
_CLOSING: Final = Unknown("this broker is closing")
_FULL: Final = Unknown(f"this broker owns {OWN_BUNDLES_MAX} bundles, and no more")
_RESTLESS: Final = Unknown("its bundle changes hands")
_IN_DOUBT: Final = Unknown("another broker opened a log of its bundle, whose node can not be read now")

_log = get_logger(__name__)


class _Owned:
    """A bundle with a node of ours, or one whose topics are being closed."""

    __slots__ = ("bundle", "gone", "is_leaving", "unwatch")

    def __init__(self, bundle: Bundle, unwatch: Unsubscribe) -> None:
        self.bundle = bundle
        self.unwatch = unwatch
        #: It serves no more.
        self.is_leaving = False
        #: Nothing of it is left.
        self.gone = asyncio.Event()


class BundleOwnership:
    """See the module; implements ``ownership.ports.Ownership``."""

    def __init__(
        self,
        metadata: MetadataStore,
        clock: Clock,
        endpoints: Callable[[], Endpoints],
        policies_of: PoliciesOf,
        place: Placement,
        *,
        keep_cuts: KeepCuts | None = None,
        part: Part | None = None,
    ) -> None:
        """``endpoints``: this broker's listeners. ``keep_cuts`` of splits, in the policies; None: nowhere else.

        ``part`` hears of what was not expected.
        """
        self._metadata = metadata
        self._clock = clock
        self._endpoints = endpoints
        self._place = place
        self._keep_cuts = keep_cuts
        self._part = part
        self._listeners: list[OwnershipListener] = []
        self._due = asyncio.Event()
        self._bundles = NamespaceBundles(metadata, clock, policies_of, self._due.set)
        self._others = OwnerNodes(metadata, clock)
        #: Whose clients are told of the next owner.
        self.departures = Departures(place, self.owner_now, clock)
        self._own: dict[Bundle, _Owned] = {}
        #: Those whose nodes are to be looked at before the next round.
        self._doubted: set[Bundle] = set()
        #: Those of which another broker opened a log: they are nobody's here until their nodes were looked at.
        self._met_fence: set[Bundle] = set()
        self._splitting: set[Bundle] = set()
        #: Nodes that this session may have made, that go with nothing, and could not be taken away when they should.
        self._leftover: set[Bundle] = set()
        self._questions = Questions(part)
        #: Counts sessions: what began in another one is void.
        self._session = 0
        self._is_up = True
        self._is_closing = False
        self._round: asyncio.Task[None] | None = None
        self._unsubscribe: Unsubscribe | None = None

    # ---- life

    def start(self) -> None:
        """Begin to follow the session and the nodes; bundles are acquired from now on."""
        self._unsubscribe = self._metadata.on_session_event(self._session_changed)
        self._round = spawn(self._follow(), name="bundles of this broker", part=self._part)

    def begin_close(self) -> list[Bundle]:
        """Acquire nothing more; what is to be released now."""
        self._is_closing = True
        return self.owned

    async def close(self) -> None:
        """Let go of everything in good order; what can not be taken away ends with the session."""
        self._is_closing = True
        self._due.set()
        await self.release(list(self._own))
        if self._round is not None:
            await self._round
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._bundles.close()
        self._others.forget_all()

    @property
    def owned(self) -> list[Bundle]:
        """What this broker serves."""
        return sorted(bundle for bundle, one in self._own.items() if not one.is_leaving)

    # ---- the port

    async def owner_of(self, name: TopicName, *, is_authoritative: bool = False) -> Owner:
        """See ``Ownership.owner_of``; a bundle that nobody owns is acquired where it is to be served here."""
        bundles = await self._bundles.get(name.namespace)
        if bundles is None:
            return Unknown(f"there is no namespace {name.namespace}")
        return await self.owner_of_bundle(bundles.find(name), is_authoritative=is_authoritative)

    async def owner_of_bundle(self, bundle: Bundle, *, is_authoritative: bool = False) -> Owner:
        """The same for a bundle that its namespace is cut into."""
        if bundle in self._met_fence and bundle in self._own:
            await self._questions.once("doubt", bundle, lambda: self._look_at(bundle))
        owned = self._own.get(bundle)
        if owned is not None and owned.is_leaving:
            return await self._next_owner(bundle, is_authoritative=is_authoritative)
        if owned is not None:
            return _IN_DOUBT if bundle in self._met_fence else HERE
        known = self._others.known(bundle)
        if known is not None:
            return known
        found = await self._questions.once("owner", bundle, lambda: self._others.read(bundle, self._data()))
        if found is None and not is_authoritative:
            found = await self._place(bundle)
        if found is None or isinstance(found, Here):
            found = await self._questions.once("acquire", bundle, lambda: self._acquire(bundle))
        return found if found is not None else _RESTLESS

    async def _next_owner(self, bundle: Bundle, *, is_authoritative: bool) -> Owner:
        """Of what is lost, and still being closed here: that may wait for a topic which is in the bundle, too."""
        try:
            found = await self._questions.once("owner", bundle, lambda: self._others.read(bundle, self._data()))
        except StorageError:
            return ENDING_HERE
        if found is None and not is_authoritative:
            found = await self._place(bundle)
        return found if isinstance(found, Elsewhere) else ENDING_HERE

    async def owner_now(self, bundle: Bundle) -> Owner | None:
        """Who owns it; None: nobody, and it is not acquired. Raises StorageError."""
        owned = self._own.get(bundle)
        if owned is not None:
            return ENDING_HERE if owned.is_leaving else HERE
        return await self._questions.once("owner", bundle, lambda: self._others.read(bundle, self._data()))

    async def bundles_of(self, namespace: str) -> Bundles | None:
        """How ``tenant/namespace`` is cut; None if there is no such namespace. Raises StorageError."""
        return await self._bundles.get(namespace)

    def doubt(self, name: TopicName) -> None:
        """See ``Ownership.doubt``: the news of a node that went was lost, or has not come yet."""
        bundles = self._bundles.known(name.namespace)
        for bundle in [bundles.find(name)] if bundles is not None else [one for one in self._own if one.has(name)]:
            if bundle in self._own:
                self._met_fence.add(bundle)
                self._doubt(bundle)

    async def bundles_elsewhere(self, namespace: str) -> list[tuple[str, Elsewhere]]:
        """See ``Ownership.bundles_elsewhere``."""
        cut = await self.bundles_of(namespace)
        found = [(bundle, await self.owner_now(bundle)) for bundle in (cut.all() if cut is not None else ())]
        return [(bundle.range, owner) for bundle, owner in found if isinstance(owner, Elsewhere)]

    def departure_of(self, name: TopicName) -> Departure | None:
        """See ``Ownership.departure_of``."""
        return self.departures.of(name)

    def listen(self, listener: OwnershipListener) -> None:
        """See ``Ownership.listen``."""
        self._listeners.insert(0, listener)

    # ---- acquiring

    async def _acquire(self, bundle: Bundle) -> Owner:
        owned = self._own.get(bundle)
        if owned is not None:
            return ENDING_HERE if owned.is_leaving else HERE
        if self._is_closing or not self._is_up or len(self._own) >= OWN_BUNDLES_MAX:
            return _CLOSING if self._is_closing else _FULL if self._is_up else _AWAY
        session = self._session
        unwatch = self._watch_own(bundle)
        try:
            owner = await self._make_node(bundle, session)
            if not isinstance(owner, Here):
                return owner
            # Whoever cut the namespace otherwise did so before this node could be made, or will find it.
            bundles = await self._bundles.read(bundle.namespace)
            if bundles is None or not bundles.has(bundle):
                await self._remove_node(bundle, session)
                return _RESTLESS
            if self._is_closing:
                # Its session may live for minutes yet, and whoever looks the bundle up would be sent here.
                await self._remove_node(bundle, session)
            if session != self._session or self._is_closing:
                return _AWAY
            owned = self._own[bundle] = _Owned(bundle, unwatch)
            self._leftover.discard(bundle)
        except StorageError:
            self._leave_over([bundle], session)
            raise
        finally:
            if bundle not in self._own:
                unwatch()
        _log.info("bundle %s is this broker's", bundle)
        for listener in list(self._listeners):
            listener.given(bundle.has)
        return HERE

    async def _make_node(self, bundle: Bundle, session: int) -> Owner:
        """``Here`` when the node is there and of this session."""
        path, own = owner_path(bundle), self._data()
        value, version = own.encode(), MUST_NOT_EXIST
        for _ in range(ACQUIRE_ATTEMPTS_MAX):
            try:
                is_new = version == MUST_NOT_EXIST
                await self._metadata.put(path, value, expected_version=version, ephemeral=is_new)
            except (BadVersionError, UnknownOutcomeError, NoSuchNodeError):
                pass  # what is there now is read
            node = await self._metadata.get(path)
            if session != self._session:
                return _AWAY
            if node is None:
                version = MUST_NOT_EXIST
            elif not node.stat.is_own or node.value == value:
                return owner_in(bundle, node, own)
            else:
                # Left by a release that could not take it away.
                version = node.stat.version
        return _RESTLESS

    def _watch_own(self, bundle: Bundle) -> Unsubscribe:
        return self._metadata.watch_node(owner_path(bundle), lambda _: self._doubt(bundle))

    def _data(self) -> OwnerData:
        return owner_of_endpoints(self._endpoints())

    # ---- letting go

    async def release(self, bundles: Iterable[Bundle]) -> None:
        """Give them away in good order; nothing of those that are not this broker's.

        The next owners begin when this returned.
        """
        found = [self._own[bundle] for bundle in bundles if bundle in self._own]
        leaving = [one for one in found if not one.is_leaving]
        for one in leaving:
            one.is_leaving = True
        if leaving:
            # A task of its own: who asked may be called off, and others wait for the bundles to be gone.
            name = f"release {len(leaving)} bundles"
            await asyncio.wait([spawn(self._release(leaving), name=name, part=self._part)])
        for one in found:
            await one.gone.wait()

    async def _release(self, leaving: list[_Owned]) -> None:
        session = self._session
        groups = [leaving[at : at + WRITES_AT_ONCE] for at in range(0, len(leaving), WRITES_AT_ONCE)]
        for group in groups:
            await asyncio.gather(*(self._disable_node(one.bundle, session) for one in group))
        bundles = [one.bundle for one in leaving]
        departure, is_given = self.departures.begin(_topics_of(bundles)), False
        try:
            await self._taken(departure.topics)
            for group in groups:
                await asyncio.gather(*(self._take_away(one.bundle, session) for one in group))
                self._end(group)
            is_given = session == self._session
        finally:
            await self.departures.end(departure, bundles, is_given=is_given)

    async def _take_away(self, bundle: Bundle, session: int) -> None:
        """Its node, however long that takes in this session."""
        while session == self._session:
            try:
                await self._remove_node(bundle, session)
                break
            except StorageError as error:
                _log.warning("the node of bundle %s can not be taken away now: %s", bundle, error)
                if self._is_closing:
                    break
                await wait_ms(RETRY_MS)

    # ---- splitting

    async def split(self, bundle: Bundle, keys: Sequence[int]) -> list[Bundle]:
        """Cut an own bundle before each of ``keys``; its topics stay open, in the parts, which are returned.

        The parts are owned before anybody can see them in the local policies, and the bundle until then: there is no
        moment at which another broker could take either. Raises PreconditionFailedError for what can not be split,
        UnavailableError where this broker does not own the bundle, StorageError.
        """
        owned, session = self._own.get(bundle), self._session
        if owned is None or owned.is_leaving:
            raise UnavailableError(f"bundle {bundle} is not this broker's to split now")
        if len(keys) > SPLIT_KEYS_MAX:
            raise PreconditionFailedError(f"a bundle is split at {SPLIT_KEYS_MAX} keys at most, not at {len(keys)}")
        bundles = await self._bundles.read(bundle.namespace)
        cut = (bundles or whole(bundle.namespace)).with_split(bundle, keys)
        parts = [part for part in cut.all() if bundle.lower <= part.lower < bundle.upper]
        if len(self._own) + len(parts) > OWN_BUNDLES_MAX:
            raise UnavailableError(f"this broker would own more than {OWN_BUNDLES_MAX} bundles")
        if bundle in self._splitting:
            raise UnavailableError(f"bundle {bundle} is being split")
        self._splitting.add(bundle)
        try:
            for part in parts:
                # Nobody takes its node away any more; nobody begins to while the split is under way.
                await self._questions.settled("acquire", part)
                if not isinstance(await self._make_node(part, session), Here):
                    raise UnavailableError(f"bundle {part}, which is to be made, is another's")
            after = await self._bundles.split(bundle, keys)
            if session != self._session or owned.is_leaving or not all(after.has(part) for part in parts):
                raise UnavailableError(f"bundle {bundle} changed hands while it was split")
            for part in parts:
                self._own[part] = _Owned(part, self._watch_own(part))
            self._leftover.difference_update(parts)
            self._end([owned])
        except GemingaError:
            await self._give_back(bundle.namespace, parts, session)
            raise
        finally:
            self._splitting.discard(bundle)
            # What was heard of meanwhile was passed over.
            self._doubted.update(parts)
            self._due.set()
        _log.info("bundle %s was split into %s", bundle, ", ".join(part.range for part in parts))
        await self._take_away(bundle, session)
        if self._keep_cuts is not None:
            try:
                await self._keep_cuts(bundle.namespace, after)
            except GemingaError as error:
                # They say how other clusters begin; this one goes by its local policies.
                _log.warning("the policies of namespace %s do not say yet how it is cut: %s", bundle.namespace, error)
        return parts

    async def _give_back(self, namespace: str, parts: list[Bundle], session: int) -> None:
        """Nodes of parts that this broker made and does not serve."""
        try:
            for part in parts:
                if part not in self._own:
                    await self._remove_node(part, session)
        except StorageError as error:
            _log.warning("nodes of parts in namespace %s can not be taken away now: %s", namespace, error)
            self._leave_over(parts, session)

    # ---- nodes that go with nothing: others would wait for this broker to serve them, or fail to make them

    def _leave_over(self, bundles: Iterable[Bundle], session: int) -> None:
        for bundle in bundles:
            if session == self._session and bundle not in self._own and len(self._leftover) < LEFTOVER_MAX:
                self._leftover.add(bundle)

    async def _sweep(self, bundle: Bundle) -> None:
        """Take a leftover away; as if it were acquired, so that nobody makes a node of it meanwhile."""
        if any(bundle.overlaps(other) for other in self._splitting):
            return  # the split makes it, or the next round takes it away
        try:
            await self._questions.once("acquire", bundle, lambda: self._take_leftover(bundle))
        except GemingaError as error:
            _log.warning("the node of bundle %s, which is not served, can not be taken away now: %s", bundle, error)

    async def _take_leftover(self, bundle: Bundle) -> Owner | None:
        if bundle not in self._own:
            await self._remove_node(bundle, self._session)
        self._leftover.discard(bundle)
        return None

    async def _disable_node(self, bundle: Bundle, session: int) -> None:
        try:
            node = await self._metadata.get(owner_path(bundle))
            if node is not None and node.stat.is_own and session == self._session:
                value = self._data()._replace(is_disabled=True).encode()
                await self._metadata.put(owner_path(bundle), value, expected_version=node.stat.version)
        except StorageError as error:
            _log.warning("bundle %s can not be marked as being unloaded: %s", bundle, error)

    async def _remove_node(self, bundle: Bundle, session: int) -> None:
        """Take away what this session made, and nothing else."""
        node = await self._metadata.get(owner_path(bundle))
        if node is None or not node.stat.is_own or session != self._session:
            return
        try:
            await self._metadata.delete(owner_path(bundle), expected_version=node.stat.version)
        except NoSuchNodeError:
            pass

    async def _lose(self, lost: list[_Owned]) -> None:
        """Close what may be another's by now; it serves no more already."""
        await self._taken(_topics_of([one.bundle for one in lost]))
        self._end(lost)

    async def _taken(self, topics: Topics) -> None:
        for listener in list(self._listeners):
            # A bundle whose topics can not be closed in good order goes all the same: its ledgers are fenced.
            with Contained(self._part, "closing the topics of bundles", is_last=True):
                await listener.taken(topics)

    def _end(self, ended: Iterable[_Owned]) -> None:
        for one in ended:
            one.unwatch()
            if self._own.get(one.bundle) is one:
                del self._own[one.bundle]
                self._met_fence.discard(one.bundle)
            one.gone.set()

    # ---- following the session and the nodes

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._session += 1
            self._leftover.clear()
            lost = [one for one in self._own.values() if not one.is_leaving]
            for one in lost:
                one.is_leaving = True
            if lost:
                _log.warning("the session expired: %d bundles are this broker's no more", len(lost))
                spawn(self._lose(lost), name="bundles of a session that expired", part=self._part)
        self._is_up = event is SessionEvent.RECONNECTED
        if self._is_up:
            # What was not told meanwhile is looked for.
            self._doubted.update(self._own)
            self._due.set()
        self._others.forget_all()

    def _doubt(self, bundle: Bundle) -> None:
        if bundle in self._own:
            self._doubted.add(bundle)
            self._due.set()

    async def _follow(self) -> None:
        """Look at what there is news of at once, and at everything once in a round, however much news there is."""
        round_at_s = self._clock.monotonic() + ROUND_MS / 1000
        while not self._is_closing:
            try:
                async with asyncio.timeout(max(0, round_at_s - self._clock.monotonic())):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._due.clear()
            looked_at = sorted(self._doubted)
            self._doubted.clear()
            if self._clock.monotonic() >= round_at_s:
                looked_at = list(self._own)
                round_at_s = self._clock.monotonic() + ROUND_MS / 1000
            by_namespace: dict[str, list[Bundle]] = {}
            for bundle in sorted(self._own):
                by_namespace.setdefault(bundle.namespace, []).append(bundle)
            # What breaks for one of them is done again in the next round; the others do not wait for it.
            contained = Contained(self._part, "a round of bundles", is_last=True)
            for namespace, own in by_namespace.items():
                with contained:
                    await self._drop_former(namespace, own)
            for bundle in looked_at:
                with contained:
                    await self._look_at(bundle)
            for bundle in sorted(self._leftover):
                with contained:
                    await self._sweep(bundle)

    async def _drop_former(self, namespace: str, own: Sequence[Bundle]) -> None:
        """Let go of what the namespace is not cut into any more, of these which are this broker's."""
        try:
            bundles = await self._bundles.get(namespace)
        except StorageError as error:
            _log.warning("the bundles of namespace %s stay as they are now: %s", namespace, error)
            return
        former = [
            bundle
            for bundle in own
            if (bundles is None or not bundles.has(bundle)) and bundle not in self._splitting and self._serves(bundle)
        ]
        if former:
            releasing = self.release(former) if bundles is not None else self._release_gone(namespace, former)
            spawn(releasing, name=f"release former bundles of {namespace}", part=self._part)

    async def _release_gone(self, namespace: str, bundles: Sequence[Bundle]) -> None:
        """Of a namespace that was deleted: whoever lets go of the last bundle takes what they hung on with it."""
        await self.release(bundles)
        place = f"{OWNERS_PATH}/{namespace}"
        try:
            await cas.remove_empty_from(self._metadata, place, OWNERS_PATH)
        except StorageError as error:
            _log.warning("the empty metadata node %s stays: %s", place, error)

    def _serves(self, bundle: Bundle) -> bool:
        owned = self._own.get(bundle)
        return owned is not None and not owned.is_leaving

    async def _look_at(self, bundle: Bundle) -> None:
        owned, session = self._own.get(bundle), self._session
        if owned is None or owned.is_leaving:
            return
        try:
            node = await self._metadata.get(owner_path(bundle))
        except MetadataError:
            # Nobody can tell: what is served is served on, and the next round asks again.
            return
        if session != self._session or owned.is_leaving:
            return
        self._met_fence.discard(bundle)
        if node is None or not node.stat.is_own:
            _log.warning("bundle %s was taken from this broker", bundle)
            owned.is_leaving = True
            spawn(self._lose([owned]), name=f"bundle {bundle} that was taken", part=self._part)


def _topics_of(bundles: list[Bundle]) -> Topics:
    index = BundleIndex(bundles)
    return lambda name: index.find(name) is not None
