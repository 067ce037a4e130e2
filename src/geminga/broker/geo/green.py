"""What a topic that moves needs in the other cluster, made there over REST before anybody is sent.

Tenant, namespace, topic with as many partitions, and each durable subscription, which begins with the first message.
What is there already stays as it is; another number of partitions ends the try, with both counts.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

from geminga.broker.core.coercion import Document, Json
from geminga.broker.peers.http_client import PeerAnswer, PeerHttp, addresses_of
from geminga.broker.peers.topics import topic_path
from geminga.broker.subscription.seek import is_replicated
from geminga.broker.subscription.subscription import Subscription
from geminga.model.errors import UnavailableError

if TYPE_CHECKING:
    from geminga.broker.resources import Resources
    from geminga.broker.topic.base import Topic
    from geminga.broker.topic.parts import OtherPlace, PartTopic


async def prepare(http: PeerHttp, resources: Resources, topic: PartTopic | Topic, place: OtherPlace) -> None:
    """See the module. Raises UnavailableError that says what could not be made; a later call goes on."""
    addresses = addresses_of(place.service_url_tls if http.links.uses_tls else place.service_url)
    if not addresses:
        kind = "serviceUrlTls" if http.links.uses_tls else "serviceUrl"
        raise UnavailableError(f"the other cluster has no {kind}, over which its subscriptions are made")
    name = topic.name

    async def ask(method: str, path: str, body: Json = None) -> PeerAnswer:
        return await http.first_answer(addresses, method, path, b"" if body is None else json.dumps(body).encode())

    async def make(what: str, path: str, body: Json = None, method: str = "PUT") -> bool:
        """Whether it was made now."""
        answer = await ask(method, path, body)
        if not answer.is_good and answer.status != HTTPStatus.CONFLICT:
            raise UnavailableError(f"the other cluster does not make {what}: {answer.reason}")
        return answer.is_good

    if (await ask("GET", f"/admin/v2/namespaces/{name.namespace}")).status == HTTPStatus.NOT_FOUND:
        clusters = await ask("GET", "/admin/v2/clusters")
        roles = (await resources.tenants.get(name.tenant)).get("adminRoles", [])
        await make(
            f"tenant {name.tenant}",
            f"/admin/v2/tenants/{name.tenant}",
            {"adminRoles": roles, "allowedClusters": clusters.json()},
        )
        await make(f"namespace {name.namespace}", f"/admin/v2/namespaces/{name.namespace}")
    found = await resources.partitioned_topics.find(name.partitioned_topic) if name.is_partition else None
    count = 0 if found is None else found.partitions
    whole = name.partitioned_topic if count else name
    if count:
        is_made = await make(f"{whole}", f"{topic_path(whole)}/partitions", count)
        answer = await ask("GET", f"{topic_path(whole)}/partitions?checkAllowAutoCreation=false")
        there = answer.json() if answer.is_good else None
        if not isinstance(there, dict) or there.get("partitions") != count:
            raise UnavailableError(f"{whole} has {count} partitions here and not there: {answer.reason} {there}")
        if not is_made and name.is_persistent:
            # Whoever made it may have died before its partitions were.
            await make(f"partitions of {whole}", f"{topic_path(whole)}/createMissedPartitions", method="POST")
    elif not (name.is_persistent and await make(f"{whole}", topic_path(whole))) and not name.is_partition:
        answer = await ask("GET", f"{topic_path(whole)}/partitions?checkAllowAutoCreation=false")
        if not answer.is_good and answer.status != HTTPStatus.NOT_FOUND:
            raise UnavailableError(f"the other cluster does not tell partitions of {whole}: {answer.reason}")
        there = answer.json() if answer.is_good else None
        if isinstance(there, dict) and there.get("partitions"):
            # Its name would take no clients.
            raise UnavailableError(f"{whole} has no partitions here and others there: {there}")
    if not name.is_persistent:
        return  # what nobody stores is made by who uses it
    for subscription in [*topic.subscriptions.values()]:
        if not isinstance(subscription, Subscription) or not subscription.is_durable:
            continue
        path = f"{topic_path(name)}/subscription/{quote(quote(subscription.name, safe=''), safe='')}"
        if is_replicated(subscription):
            path += "?replicated=true"
        # What it gets may depend on them.
        properties: Document = {**subscription.cursor.cursor_properties}
        start: Json = {"ledgerId": -1, "entryId": -1, "properties": properties} if properties else "earliest"
        await make(f"subscription {subscription.name} of {name}", path, start)
