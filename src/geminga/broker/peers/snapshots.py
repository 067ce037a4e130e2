"""Snapshots of transaction buffers that another broker keeps: it owns their topic, and has read it.

A broker of another make is not asked: its topic is read and written as by any client
(:mod:`geminga.broker.peers.client_tables`). What two of this make say to each other is Geminga's own:
``/admin/v3/transactions/bufferSnapshot/TENANT/NAMESPACE/TOPIC``, a JSON object with the position (``ledgerId``,
``entryId``) and ``aborts``: lists of the two numbers of a transaction and the two of the position of its abort.
"""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote

from geminga.broker.core.coercion import LONG_MAX, Document, Json, number_of
from geminga.broker.peers.http_client import PeerAnswer
from geminga.broker.peers.topics import PeerTopics, require_good
from geminga.model.errors import RemoteError, UnavailableError
from geminga.model.position import Position
from geminga.model.topic_name import TRANSACTION_SNAPSHOTS, TopicName
from geminga.model.txn_id import TxnId
from geminga.transaction.ports import BufferSnapshot, BufferSnapshots

PATH: Final = "/admin/v3/transactions/bufferSnapshot"


def snapshots_topic(topic: TopicName) -> TopicName:
    """Whose owner keeps the snapshots of a topic's namespace."""
    return TopicName.parse(f"persistent://{topic.namespace}/{TRANSACTION_SNAPSHOTS}")


def snapshot_json(snapshot: BufferSnapshot) -> Document:
    """As brokers tell each other."""
    aborts: list[Json] = [[*txn_id, *position] for txn_id, position in snapshot.aborts]
    return {"ledgerId": snapshot.position.ledger_id, "entryId": snapshot.position.entry_id, "aborts": aborts}


def snapshot_of(document: Json) -> BufferSnapshot:
    """The inverse. Raises RemoteError for what is none."""
    aborts = document.get("aborts") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(aborts, list):
        raise RemoteError("a snapshot is a JSON object with ledgerId, entryId and aborts")
    found: list[tuple[TxnId, Position]] = []
    for one in aborts:
        if not isinstance(one, list) or len(one) != 4:
            raise RemoteError("an aborted transaction is a list of four numbers")
        most, least, ledger_id, entry_id = (number_of(number, "a number of an abort", LONG_MAX) for number in one)
        found.append((TxnId(most, least), Position(ledger_id, entry_id)))
    place = (number_of(document.get(key), key, LONG_MAX) for key in ("ledgerId", "entryId"))
    return BufferSnapshot(Position(*place), tuple(found))


class PeerSnapshots:
    """See the module; :class:`geminga.transaction.ports.BufferSnapshots`, wherever they are kept."""

    __slots__ = ("_local", "_peers")

    def __init__(self, local: BufferSnapshots, peers: PeerTopics) -> None:
        self._local = local
        self._peers = peers

    async def find(self, topic: str) -> BufferSnapshot | None:
        """As the port says."""
        name = TopicName.parse(topic)
        if await self._is_read_here(name):
            return await self._local.find(topic)
        answer = await self._ask(name, "GET")
        if answer.status == 204:
            return None
        require_good(answer)
        try:
            return snapshot_of(answer.json())
        except RemoteError as error:
            raise UnavailableError(f"the broker at {answer.url} answered no snapshot: {error}") from error

    async def put(self, topic: str, snapshot: BufferSnapshot) -> None:
        """As the port says."""
        name = TopicName.parse(topic)
        if await self._is_read_here(name):
            await self._local.put(topic, snapshot)
        else:
            require_good(await self._ask(name, "PUT", json.dumps(snapshot_json(snapshot)).encode()))

    async def remove(self, topic: str) -> None:
        """As the port says."""
        name = TopicName.parse(topic)
        if await self._is_read_here(name):
            await self._local.remove(topic)
        else:
            require_good(await self._ask(name, "DELETE"))

    async def _is_read_here(self, name: TopicName) -> bool:
        topic = snapshots_topic(name)
        return await self._peers.is_here(topic) or await self._peers.is_at_another_make(topic)

    async def _ask(self, name: TopicName, method: str, body: bytes = b"") -> PeerAnswer:
        path = f"{PATH}/{name.namespace}/{quote(name.local_name, safe='')}"
        answer = await self._peers.ask_owner(snapshots_topic(name), method, path, body=body)
        if answer.status == 404:
            # Of another make, and about to leave.
            raise UnavailableError(f"the broker at {answer.url} keeps no snapshots of {name} that it tells of")
        return answer
