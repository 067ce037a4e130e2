"""Topics and bundles that other brokers serve: what is asked of their owners."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from geminga.broker.ownership.endpoints import Endpoint, Endpoints
from geminga.broker.ownership.lookup import no_owner
from geminga.broker.ownership.ports import Elsewhere, Here, Ownership, Unknown
from geminga.broker.peers.http_client import PeerAnswer, PeerHttp
from geminga.model.errors import (
    ConflictError,
    GemingaError,
    NotAllowedError,
    PreconditionFailedError,
    TopicNotFoundError,
    UnavailableError,
)
from geminga.model.topic_name import CHANGE_EVENTS, TopicName

if TYPE_CHECKING:
    from geminga.broker.core.coercion import Json
    from geminga.broker.core.new_subscription import NewSubscription
    from geminga.client import Client
    from geminga.transaction.ports import BufferSnapshots, Participants, StandingsElsewhere

#: What an owner's refusal is here; everything else is that it can not be done now.
_REFUSALS: Final[dict[int, type[GemingaError]]] = {
    404: TopicNotFoundError,
    405: NotAllowedError,
    409: ConflictError,
    412: PreconditionFailedError,
}


class PeerTopics:
    """See the module."""

    __slots__ = ("_client", "_http", "_is_of_another_make", "_own", "_ownership")

    def __init__(
        self,
        http: PeerHttp,
        client: Callable[[], Client],
        is_of_another_make: Callable[[str], bool],
        ownership: Ownership,
        own: Callable[[], Endpoints],
    ) -> None:
        """``client`` of the cluster. ``is_of_another_make``: whether a broker, by its id, is there and not Geminga's.

        ``own``: this broker's listeners.
        """
        self._is_of_another_make = is_of_another_make
        self._http = http
        self._client = client
        self._ownership = ownership
        self._own = own

    async def is_here(self, name: TopicName) -> bool:
        """Whether this broker serves it. Raises StorageError."""
        return isinstance(await self._ownership.owner_of(name), Here)

    async def is_at_another_make(self, name: TopicName) -> bool:
        """Whether only what Pulsar's protocol has can be asked of who serves it, or is to. Raises StorageError.

        Where nobody can tell, it is not: who asks is told so at once, and waits for no client.
        """
        owner = await self._ownership.owner_of(name)
        return isinstance(owner, Elsewhere) and self.is_another_make(owner)

    def is_another_make(self, owner: Elsewhere) -> bool:
        """The same of who is known to serve it."""
        from geminga.broker.ownership.core.broker_data import broker_id_of

        default = owner.endpoints.default
        return self._is_of_another_make(broker_id_of(default.web_url or default.web_url_tls))

    async def ask(self, name: TopicName, method: str, rest: str, *, query: str = "", body: bytes = b"") -> PeerAnswer:
        """What the owner of the topic answers at the topic's path with ``rest`` behind it; raises as below."""
        return await self.ask_owner(name, method, f"{topic_path(name)}{rest}", query=query, body=body)

    async def ask_owner(
        self, name: TopicName, method: str, path: str, *, query: str = "", body: bytes = b""
    ) -> PeerAnswer:
        """What the owner of the topic, who may be this broker, answers at a path.

        Raises UnavailableError where there is no owner, or it does not answer in time; StorageError.
        """
        owner = await self._ownership.owner_of(name)
        if isinstance(owner, Unknown):
            raise no_owner(name, owner)
        endpoints = owner.endpoints if isinstance(owner, Elsewhere) else self._own()
        return await self.ask_at(endpoints.default, method, path, query=query, body=body)

    async def ask_at(
        self, endpoint: Endpoint, method: str, path: str, *, query: str = "", body: bytes = b""
    ) -> PeerAnswer:
        """The same of a broker, at any path."""
        url = f"{self._http.links.web_url(endpoint)}{path}"
        return await self._http.request(method, f"{url}?{query}" if query else url, body)

    # ---- policies of topics, written by who owns their events

    async def keeps_policies_here(self, name: TopicName) -> bool:
        """Whether this broker writes the policies of a topic: they are here, or at a broker of another make.

        That one is told by messages alone. Raises StorageError.
        """
        events = policies_topic(name)
        return await self.is_here(events) or await self.is_at_another_make(events)

    async def forget_policies(self, name: TopicName) -> None:
        """The topic is being deleted: so are its policies, by who keeps them. Raises UnavailableError, StorageError."""
        require_good(await self.ask_owner(policies_topic(name), "DELETE", f"{topic_path(name)}/policies"))

    # ---- of transactions, loaded with the first

    def snapshots(self, own: BufferSnapshots) -> BufferSnapshots:
        """Those of the whole cluster, given this broker's own."""
        from geminga.broker.peers.snapshots import PeerSnapshots

        return PeerSnapshots(own, self)

    def participants(self, own: Participants) -> Participants:
        """Those of the whole cluster, given this broker's own."""
        from geminga.broker.peers.participants import PeerParticipants

        return PeerParticipants(own, self, self._client)

    def standings(self) -> StandingsElsewhere:
        """What coordinators of other brokers know."""
        from geminga.broker.peers.standings import PeerStandings

        return PeerStandings(self)

    # ---- ``registry.ports.TopicsElsewhere``

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Delete it at its owner; nothing if it is not there. Raises PreconditionFailedError, UnavailableError, ..."""
        answer = await self.ask(name, "DELETE", "", query=f"force={'true' if force else 'false'}")
        if answer.status != 404:
            require_good(answer)

    async def non_persistent(self, namespace: str) -> set[str]:
        """Names of the non-persistent topics that others have loaded. Raises UnavailableError, StorageError.

        Asked of the owner of each bundle: half a list would make consumers of a pattern leave topics that are there.
        """
        bundles = await self._ownership.bundles_elsewhere(namespace)
        path = f"/admin/v2/non-persistent/{namespace}"
        answers = await asyncio.gather(
            *(self.ask_at(owner.endpoints.default, "GET", f"{path}/{bundle}") for bundle, owner in bundles)
        )
        found: set[str] = set()
        for answer in answers:
            if not answer.is_good:  # its bundle was split or moved in this moment, say
                raise UnavailableError(f"{answer.reason} (the broker at {answer.url})")
            names = answer.json() if answer.body else []
            if not isinstance(names, list):
                raise UnavailableError(f"the broker at {answer.url} answered a list of topics that is none")
            found.update(name for name in names if isinstance(name, str))
        return found

    async def is_in_use(self, name: TopicName) -> bool:
        """Whether producers or consumers are connected to it at its owner. Raises UnavailableError, ..."""
        answer = await self.ask(name, "GET", "/stats")
        if answer.status == 404:
            return False
        require_good(answer)
        stats = answer.json()
        if not isinstance(stats, dict):
            raise UnavailableError(f"the broker at {answer.url} answered statistics that are no JSON object")
        subscriptions = stats.get("subscriptions")
        each = subscriptions.values() if isinstance(subscriptions, dict) else ()
        return bool(stats.get("publishers")) or any(isinstance(one, dict) and one.get("consumers") for one in each)

    async def subscribe(self, name: TopicName, subscriptions: Sequence[NewSubscription]) -> None:
        """Durable subscriptions that begin with its first message. Raises UnavailableError, or the owner's refusal."""
        for subscription in subscriptions:
            rest = f"/subscription/{quote(quote(subscription.name, safe=''), safe='')}"
            start: Json = "earliest"
            if subscription.properties:
                start = {"ledgerId": -1, "entryId": -1, "properties": {**subscription.properties}}
            query = "replicated=true" if subscription.is_replicated else ""
            answer = await self.ask(name, "PUT", rest, query=query, body=json.dumps(start).encode())
            if answer.status != 409:
                require_good(answer)


def require_good(answer: PeerAnswer) -> None:
    """Raise what the owner said against it."""
    if not answer.is_good:
        error = _REFUSALS.get(answer.status, UnavailableError)
        raise error(f"{answer.reason} (the broker at {answer.url})" if error is UnavailableError else answer.reason)


def policies_topic(name: TopicName) -> TopicName:
    """Whose owner writes the policies of a topic."""
    return TopicName.parse(f"persistent://{name.namespace}/{CHANGE_EVENTS}")


def topic_path(name: TopicName) -> str:
    """In the admin REST."""
    return f"/admin/v2/{name.domain}/{name.namespace}/{quote(name.local_name, safe='')}"
