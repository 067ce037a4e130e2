"""``/namespace/TENANT/NAMESPACE/RANGE``: who owns a bundle, as Pulsar's ``NamespaceEphemeralData``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.broker.core.coercion import Document, Json, decode_document, encode_document
from geminga.broker.ownership.core.bundles import Bundle
from geminga.model.errors import CorruptionError

OWNERS_PATH: Final = "/namespace"


def owner_path(bundle: Bundle) -> str:
    """Its ephemeral node."""
    return f"{OWNERS_PATH}/{bundle}"


class OwnerListener(NamedTuple):
    """One advertised listener of an owner; empty text for what there is none of."""

    broker_url: str = ""
    broker_url_tls: str = ""
    web_url: str = ""
    web_url_tls: str = ""


class OwnerData(NamedTuple):
    """Who owns a bundle and how it is reached."""

    #: For clients that name no listener.
    default: OwnerListener
    #: By name.
    listeners: Mapping[str, OwnerListener]
    #: It is letting go of the bundle: nobody is sent there any more.
    is_disabled: bool = False

    def encode(self) -> bytes:
        """As Pulsar writes it: nothing of what is null."""
        document: Document = {**url_members(self.default, _OF_OWNER), "disabled": self.is_disabled}
        document["advertisedListeners"] = listener_members(self.listeners)
        return encode_document(document)


#: Members of the document and of a listener in it, in the order of :class:`OwnerListener`.
_OF_OWNER: Final = ("nativeUrl", "nativeUrlTls", "httpUrl", "httpUrlTls")
_OF_LISTENER: Final = ("brokerServiceUrl", "brokerServiceUrlTls", "brokerHttpUrl", "brokerHttpsUrl")


def url_members(listener: OwnerListener, names: tuple[str, ...]) -> Document:
    """Its URLs by ``names``, in the order of :class:`OwnerListener`."""
    return {name: url for name, url in zip(names, listener, strict=True) if url}


def listener_members(listeners: Mapping[str, OwnerListener]) -> Document:
    """What ``advertisedListeners`` are."""
    return {name: url_members(one, _OF_LISTENER) for name, one in listeners.items()}


def decode_owner(path: str, value: bytes) -> OwnerData:
    """Raises CorruptionError naming the path; what is not known is passed over, as Pulsar does."""
    document = decode_document(path, value)
    disabled = document.get("disabled", False)
    if not isinstance(disabled, bool):
        raise CorruptionError(f"metadata node {path}: disabled is true or false")
    found = listeners_in(path, document)
    default = urls_in(path, document, _OF_OWNER)
    if not (default.broker_url or default.broker_url_tls):
        raise CorruptionError(f"metadata node {path} does not say where its owner is: nativeUrl or nativeUrlTls")
    return OwnerData(default, found, disabled)


def listeners_in(path: str, document: Mapping[str, Json]) -> dict[str, OwnerListener]:
    """``advertisedListeners`` of the document at ``path``, by name. Raises CorruptionError naming it."""
    listeners = document.get("advertisedListeners") or {}
    if not isinstance(listeners, dict):
        raise CorruptionError(f"metadata node {path}: advertisedListeners are a JSON object")
    found: dict[str, OwnerListener] = {}
    for name, one in listeners.items():
        if not isinstance(one, dict):
            raise CorruptionError(f"metadata node {path}: the listener {name} is a JSON object")
        found[name] = urls_in(path, one, _OF_LISTENER)
    return found


def urls_in(path: str, document: Mapping[str, Json], names: tuple[str, ...]) -> OwnerListener:
    """The URLs of ``names``, in the order of :class:`OwnerListener`. Raises CorruptionError naming ``path``."""
    urls: list[str] = []
    for name in names:
        url = document.get(name)
        if url is not None and not isinstance(url, str):
            raise CorruptionError(f"metadata node {path}: {name} is a text")
        urls.append(url or "")
    return OwnerListener(*urls)
