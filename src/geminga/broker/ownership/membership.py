"""One broker's part in a cluster of several: registered, electing, owning bundles; from joining to leaving.

Made before the broker, which gets :attr:`ownership`; joined when its ports are bound. Leaving is the reverse of what
brings clients here: nobody is sent here any more, then this broker leads no more, then its bundles are given away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from geminga.broker.core.coercion import Document, encode_document
from geminga.broker.ownership.bundle_ownership import BundleOwnership
from geminga.broker.ownership.core.broker_data import Leader, broker_id_of, registration
from geminga.broker.ownership.core.bundles import Bundle
from geminga.broker.ownership.core.choosing import Chooser, FewestBundles
from geminga.broker.ownership.endpoints import Endpoint, Endpoints
from geminga.broker.ownership.leader_election import LeaderElection
from geminga.broker.ownership.live_brokers import LiveBrokers
from geminga.broker.ownership.namespace_bundles import KeepCuts, PoliciesOf
from geminga.broker.ownership.owner_nodes import owner_of_endpoints
from geminga.broker.ownership.placement import LeaderPlacement
from geminga.broker.ownership.ports import Owner, Unknown
from geminga.broker.ownership.registration import BrokerRegistration
from geminga.broker.ownership.silent_brokers import SilentBrokers
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import UnavailableError
from geminga.runtime import Part, Runtime, wait_ms

#: Bundles that are given away together when the broker leaves: who waits for one of them waits for these.
LEAVING_AT_ONCE: Final = 64

_NOT_JOINED: Final = Unknown("this broker is starting")


class Membership:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        policies_of: PoliciesOf,
        *,
        session_timeout_ms: int,
        version: str,
        keep_cuts: KeepCuts | None = None,
        chooser: Chooser | None = None,
        part: Part | None = None,
    ) -> None:
        """``keep_cuts``: see :class:`BundleOwnership`.

        ``chooser``: the rule by which this broker chooses who takes a bundle, where it leads.
        """
        self._runtime = runtime
        self._metadata = metadata
        self._session_timeout_ms = session_timeout_ms
        self._version = version
        self._chooser = chooser if chooser is not None else FewestBundles()
        self._part = part
        self._endpoints: Endpoints | None = None
        self._is_leaving = False
        self._left = asyncio.Event()
        self.brokers = LiveBrokers(metadata, part=part)
        self.silent = SilentBrokers(runtime, self.brokers, part=part)
        self.ownership = BundleOwnership(
            metadata,
            runtime.clock,
            lambda: self.endpoints,
            policies_of,
            self._place,
            keep_cuts=keep_cuts,
            part=part,
        )
        #: The rest is made when it is known where this broker is.
        self.registration: BrokerRegistration | None = None
        self.election: LeaderElection | None = None
        self.placement: LeaderPlacement | None = None
        #: What this broker says of itself; whoever knows more of it adds to a copy, and hands that to the registration.
        self.document: Document = {}

    @property
    def endpoints(self) -> Endpoints:
        """Where this broker is; raises UnavailableError before it joined."""
        if self._endpoints is None:
            raise UnavailableError("the broker is starting")
        return self._endpoints

    @property
    def broker_id(self) -> str:
        """What this broker is called in its cluster; raises UnavailableError before it joined."""
        return broker_id_of(self.endpoints.default.web_url or self.endpoints.default.web_url_tls)

    @property
    def is_member(self) -> bool:
        """Whether the others see it, as far as it knows: not before it joined, after its session, while it leaves."""
        return self.registration is not None and self.registration.is_registered and not self._is_leaving

    def metrics(self) -> Mapping[str, float]:
        """Of its part in the cluster, under names of our own."""
        election = self.election
        return {
            "geminga_cluster_brokers": len(self.brokers.all),
            "geminga_cluster_is_leader": float(election is not None and election.is_leader),
            "geminga_owned_bundles": len(self.ownership.owned),
            "geminga_lookups_waiting": self.silent.waiting,
        }

    async def join(self, endpoints: Sequence[Endpoint]) -> None:
        """Register, and own from now on what is asked for here. Raises ConflictError, StorageError.

        The broker's listeners of ownership were told to listen before.
        """
        self._endpoints = found = Endpoints(endpoints)
        document = registration(
            self.broker_id,
            owner_of_endpoints(found),
            version=self._version,
            started_ms=self._runtime.clock.wall_ms(),
        )
        self.document = document
        self.registration = BrokerRegistration(
            self._metadata, self._session_timeout_ms, self.broker_id, part=self._part
        )
        own = Leader(self.broker_id, found.default.web_url or found.default.web_url_tls)
        self.election = LeaderElection(self._metadata, own, part=self._part)
        self.placement = LeaderPlacement(
            self.broker_id, self.brokers, self.election, self._chooser, self._runtime.clock
        )
        await self.registration.begin(encode_document(document))
        await self.brokers.start()
        self.silent.start()
        self.ownership.start()

    def stand_for_election(self) -> None:
        """Lead, where nobody does; once whoever is sent here is answered."""
        assert self.election is not None
        self.election.start()

    async def leave(self, *, bundles_per_s: int = 0) -> None:
        """See the module; raises nothing. What can not be taken away ends with the session.

        ``bundles_per_s``: so many are handed over in a second at most; 0 and less: as fast as it goes. Who comes second
        waits for the first.
        """
        if self._is_leaving:
            await self._left.wait()
            return
        self._is_leaving = True
        if self.registration is not None:
            await self.registration.end()
        if self.election is not None:
            await self.election.close()
        owned = self.ownership.begin_close()
        at_once = min(bundles_per_s, LEAVING_AT_ONCE) if bundles_per_s > 0 else LEAVING_AT_ONCE
        for start in range(0, len(owned), at_once):
            release = self.ownership.release(owned[start : start + at_once])
            if bundles_per_s > 0 and start + at_once < len(owned):
                await asyncio.gather(release, wait_ms(1000 * at_once // bundles_per_s))
            else:
                await release
        await self.ownership.close()
        await self.silent.close()
        await self.brokers.close()
        self._left.set()

    async def _place(self, bundle: Bundle) -> Owner:
        return _NOT_JOINED if self.placement is None else await self.placement(bundle)
