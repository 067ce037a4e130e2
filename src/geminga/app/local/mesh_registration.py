"""Clusters are made known to each other over their administration: a full mesh, and a namespace that lives in all."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from geminga.model.errors import UnavailableError

TENANT: Final = "public"
NAMESPACE: Final = "public/default"
_ANSWER_S: Final = 30.0
_GOOD: Final = (HTTPStatus.OK, HTTPStatus.NO_CONTENT)


class ClusterUrls(NamedTuple):
    """Where a cluster is reached; hosts are separated by commas."""

    service_url: str
    broker_service_url: str
    #: Of its brokers' advertised listeners, that others are to be told; empty: the usual one.
    listener_name: str = ""

    def document(self) -> dict[str, str]:
        """Its ``ClusterData``."""
        urls = {"serviceUrl": self.service_url, "brokerServiceUrl": self.broker_service_url}
        return {**urls, "listenerName": self.listener_name} if self.listener_name else urls


def introduce(asked: str, name: str, others: Mapping[str, ClusterUrls]) -> None:
    """Tell cluster ``name``, whose administration is at the URL ``asked``, where the others are.

    What it knew of them before is replaced. Raises UnavailableError.
    """
    for other, urls in others.items():
        path = f"/admin/v2/clusters/{other}"
        status, reason = _ask(asked, "PUT", path, urls.document())
        if status == HTTPStatus.CONFLICT:
            status, reason = _ask(asked, "POST", path, urls.document())
        _check(status, reason, f"cluster {name} does not take cluster {other}")


def share(asked: str, name: str, clusters: tuple[str, ...]) -> None:
    """The tenant may use all these clusters, and its default namespace lives in them. Raises UnavailableError."""
    path = f"/admin/v2/tenants/{TENANT}"
    status, text = _ask(asked, "GET", path)
    _check(status, text, f"cluster {name} does not tell of tenant {TENANT}")
    tenant = json.loads(text)
    allowed = sorted({*tenant.get("allowedClusters", ()), *clusters})
    status, reason = _ask(asked, "POST", path, {**tenant, "allowedClusters": allowed})
    _check(status, reason, f"cluster {name} does not let tenant {TENANT} use {', '.join(clusters)}")


def replicate(asked: str, name: str, clusters: tuple[str, ...]) -> None:
    """The tenant's default namespace lives in all these clusters from now on. Raises UnavailableError."""
    status, reason = _ask(asked, "POST", f"/admin/v2/namespaces/{NAMESPACE}/replication", list(clusters))
    _check(status, reason, f"cluster {name} does not have {NAMESPACE} in {', '.join(clusters)}")


def connect_all(clusters: Mapping[str, ClusterUrls]) -> None:
    """All of it, between clusters that reach each other where these URLs say. Raises UnavailableError."""
    for name, urls in clusters.items():
        introduce(urls.service_url, name, {other: found for other, found in clusters.items() if other != name})
    share_all({name: urls.service_url for name, urls in clusters.items()})


def share_all(administrations: Mapping[str, str]) -> None:
    """By name of the cluster, where it is administered; each knows the others already. Raises UnavailableError."""
    names = tuple(administrations)
    for name, url in administrations.items():
        share(url, name, names)
    # Behind all of the former: a cluster that is copied to must let the tenant be there.
    for name, url in administrations.items():
        replicate(url, name, names)


def _check(status: int, reason: str, what: str) -> None:
    if status not in _GOOD:
        raise UnavailableError(f"{what}: it answers {status}, {_reason_in(reason)}")


def _reason_in(text: str) -> str:
    try:
        found = json.loads(text)
    except ValueError:
        return text.strip() or "without a reason"
    return str(found["reason"]) if isinstance(found, dict) and "reason" in found else text.strip()


def _ask(url: str, method: str, path: str, body: object = None) -> tuple[int, str]:
    """The answer of the first broker of several. Without the proxies that the environment names."""
    address = urlsplit(url.split(",", 1)[0])
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_ANSWER_S)
    data = None if body is None else json.dumps(body).encode()
    try:
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(
            f"{url} does not answer {method} {path}: {str(error) or type(error).__name__}"
        ) from error
    finally:
        connection.close()
