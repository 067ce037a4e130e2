"""Ownership of bundles without a broker: who is told what, on any metadata store."""

from __future__ import annotations

from collections.abc import Mapping

from geminga.broker.core.coercion import Json
from geminga.broker.ownership.bundle_ownership import BundleOwnership
from geminga.broker.ownership.core.bundles import Bundle, Bundles
from geminga.broker.ownership.endpoints import Endpoints
from geminga.broker.ownership.ports import HERE, Owner, Topics
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.runtime import Runtime
from support.worlds.ownership import endpoints_of

NAMESPACE = "public/default"
ONE = TopicName.parse("one")


class Told:
    """A listener that keeps what it was told of one topic."""

    def __init__(self, name: TopicName = ONE) -> None:
        self.name = name
        self.words: list[str] = []

    def given(self, topics: Topics) -> None:
        self._add("given", topics)

    async def taken(self, topics: Topics) -> None:
        self._add("taken", topics)

    def _add(self, word: str, topics: Topics) -> None:
        if topics(self.name):
            self.words.append(word)


class Owning:
    """One broker's ownership and what it is told."""

    def __init__(self, runtime: Runtime, metadata: MetadataStore, me: str = "a") -> None:
        #: What was not expected, and raised to be so when policies are read.
        self.broken: list[str] = []
        self.policies_error: Exception | None = None
        #: Namespaces that there are, of four bundles.
        self.known = {NAMESPACE}
        #: Who takes what nobody owns.
        self.placed: Owner = HERE
        self.told = Told()
        #: What it told the policies of cuts, and why that can not be told.
        self.cuts: list[Bundles] = []
        self.cuts_error: GemingaError | None = None
        self.ownership = BundleOwnership(
            metadata,
            runtime.clock,
            lambda: Endpoints(endpoints_of(me)),
            self._policies_of,
            self._place,
            keep_cuts=self._keep_cuts,
            part=self,
        )
        self.ownership.listen(self.told)
        self.ownership.start()

    def broke(self, what: str, error: BaseException) -> None:
        """It goes on."""
        self.broken.append(f"{what}: {error}")

    async def _policies_of(self, namespace: str) -> Mapping[str, Json] | None:
        if self.policies_error is not None:
            raise self.policies_error
        return {"bundles": {"numBundles": 4}} if namespace in self.known else None

    async def _keep_cuts(self, _: str, bundles: Bundles) -> None:
        if self.cuts_error is not None:
            raise self.cuts_error
        self.cuts.append(bundles)

    async def _place(self, _: Bundle) -> Owner:
        return self.placed

    async def ask(self, name: TopicName = ONE, *, is_authoritative: bool = False) -> Owner:
        return await self.ownership.owner_of(name, is_authoritative=is_authoritative)
