"""``/loadbalance/brokers/HOST:PORT`` and ``/loadbalance/leader``: who is there and who leads, as Pulsar's JSON. Pure.

``docs/formats/broker-registration.md`` has the facts. What a broker says of its load is in the same document and
passed on as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from geminga.broker.core.coercion import Document, Json, decode_document, encode_document
from geminga.broker.ownership.core.owner_data import OwnerData, listener_members, listeners_in, url_members, urls_in
from geminga.model.errors import CorruptionError

BROKERS_PATH: Final = "/loadbalance/brokers"
LEADER_PATH: Final = "/loadbalance/leader"
#: The only load manager that there is; brokers of one cluster must have the same.
MODULAR_LOAD_MANAGER: Final = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"

#: Members of a registration, in the order of ``OwnerListener``.
_OF_BROKER: Final = ("pulsarServiceUrl", "pulsarServiceUrlTls", "webServiceUrl", "webServiceUrlTls")


def broker_path(broker_id: str) -> str:
    """Its ephemeral node."""
    return f"{BROKERS_PATH}/{broker_id}"


def broker_id_of(web_service_url: str) -> str:
    """``host:port`` of a web service: what a broker is called in its cluster; empty for what is no URL."""
    try:
        return urlsplit(web_service_url).netloc
    except ValueError:
        return ""


class RegisteredBroker(NamedTuple):
    """A broker that is there."""

    broker_id: str
    #: Where it is: what it writes of a bundle that it owns.
    owner: OwnerData
    #: All that it says of itself.
    document: Mapping[str, Json]


#: Begins the version that a broker of Geminga's says it is.
_MAKE: Final = "geminga-"


def is_gemingas(document: Mapping[str, Json]) -> bool:
    """Whether who says this of itself is a broker of this make; others answer no requests that Pulsar does not have."""
    version = document.get("brokerVersionString")
    return isinstance(version, str) and version.startswith(_MAKE)


def registration(broker_id: str, owner: OwnerData, *, version: str, started_ms: int) -> Document:
    """Pulsar's ``LocalBrokerData``, without what is measured."""
    return {
        "brokerId": broker_id,
        **url_members(owner.default, _OF_BROKER),
        "brokerVersionString": f"{_MAKE}{version}",
        "startTimestamp": started_ms,
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        "protocols": {},
        "advertisedListeners": listener_members(owner.listeners),
        "loadManagerClassName": MODULAR_LOAD_MANAGER,
    }


def decode_broker(broker_id: str, value: bytes) -> RegisteredBroker:
    """Raises CorruptionError naming the path; what is not known is kept in the document."""
    path = broker_path(broker_id)
    document = decode_document(path, value)
    default = urls_in(path, document, _OF_BROKER)
    if not (default.broker_url or default.broker_url_tls):
        raise CorruptionError(
            f"metadata node {path} does not say where its broker is: pulsarServiceUrl or pulsarServiceUrlTls"
        )
    found = listeners_in(path, document)
    for name, listener in found.items():
        # As Pulsar does: a listener without a web service has that of the broker.
        web_url, web_url_tls = listener.web_url or default.web_url, listener.web_url_tls or default.web_url_tls
        found[name] = listener._replace(web_url=web_url, web_url_tls=web_url_tls)
    return RegisteredBroker(broker_id, OwnerData(default, found), document)


class Leader(NamedTuple):
    """Pulsar's ``LeaderBroker``: who decides which broker takes a bundle."""

    broker_id: str
    #: Its web service.
    service_url: str

    def encode(self) -> bytes:
        """As Pulsar writes it."""
        return encode_document({"brokerId": self.broker_id, "serviceUrl": self.service_url})


def decode_leader(value: bytes) -> Leader:
    """Raises CorruptionError. Brokers before Pulsar 3.3 write no id: it is that of their web service."""
    document = decode_document(LEADER_PATH, value)
    broker_id, url = document.get("brokerId"), document.get("serviceUrl")
    for member, found in (("brokerId", broker_id), ("serviceUrl", url)):
        if found is not None and not isinstance(found, str):
            raise CorruptionError(f"metadata node {LEADER_PATH}: {member} is a text")
    service_url = url if isinstance(url, str) else ""
    name = broker_id if isinstance(broker_id, str) and broker_id else broker_id_of(service_url)
    if not name:
        raise CorruptionError(f"metadata node {LEADER_PATH} does not say who leads: brokerId or serviceUrl")
    return Leader(name, service_url)
