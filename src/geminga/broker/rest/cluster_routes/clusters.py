"""``/admin/v2/clusters``."""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import ClusterOperation
from geminga.broker.core.coercion import boolean_of, object_of, text_of, texts_of
from geminga.broker.resources.documents import Document
from geminga.broker.rest.calls.requests import RestError, context_of, json_body, json_response, no_content, path_text
from geminga.broker.rest.calls.routing import Route

#: Members of Pulsar's ``ClusterData``.
_FLAGS: Final = ("brokerClientTlsEnabled", "tlsAllowInsecureConnection", "brokerClientTlsEnabledWithKeyStore")
_TEXTS: Final = (
    *("serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls", "proxyServiceUrl"),
    *("authenticationPlugin", "authenticationParameters", "proxyProtocol", "listenerName"),
    *("brokerClientTlsTrustStoreType", "brokerClientTlsTrustStore", "brokerClientTlsTrustStorePassword"),
    *("brokerClientTlsKeyStoreType", "brokerClientTlsKeyStore", "brokerClientTlsKeyStorePassword"),
    *("brokerClientTrustCertsFilePath", "brokerClientKeyFilePath", "brokerClientCertificateFilePath"),
    *("brokerClientSslFactoryPlugin", "brokerClientSslFactoryPluginParams"),
)
_PROXY_EXAMPLES: Final = "pulsar+ssl://ats-proxy.example.com:4443 or pulsar://ats-proxy.example.com:4080"
#: URL -> its schemes, how a refusal calls it, and an example.
_URLS: Final = {
    "serviceUrl": ("http", "service", "http://pulsar.example.com:8080"),
    "serviceUrlTls": ("https", "service tls", "https://pulsar.example.com:8443"),
    "brokerServiceUrl": ("pulsar", "broker service", "pulsar://pulsar.example.com:6650"),
    "brokerServiceUrlTls": (r"pulsar\+ssl", "broker service tls", "pulsar+ssl://pulsar.example.com:6651"),
    "proxyServiceUrl": (r"pulsar(?:\+ssl)?", "proxy service", _PROXY_EXAMPLES),
}
#: One or more addresses, and perhaps a path.
_ADDRESSES: Final = r"://[^\s/]+(?:/\S*)?"


async def list_clusters(request: Request) -> Response:
    """Names of all clusters."""
    return json_response([*await context_of(request).resources.clusters.list()])


async def get_cluster(request: Request) -> Response:
    """A cluster's data."""
    data = await context_of(request).resources.clusters.get(path_text(request, "cluster"))
    return json_response({**dict.fromkeys(_FLAGS, False), **data})


async def create_cluster(request: Request) -> Response:
    """Create."""
    clusters, data = context_of(request).resources.clusters, await _data(request)
    await clusters.create(path_text(request, "cluster"), data)
    return _done()


async def update_cluster(request: Request) -> Response:
    """Replace a cluster's data."""
    clusters, cluster = context_of(request).resources.clusters, path_text(request, "cluster")
    data = await _data(request)
    await clusters.get(cluster)
    await clusters.update(cluster, data)
    return _done()


async def delete_cluster(request: Request) -> Response:
    """Delete another cluster than this one, in which everything lives."""
    context, cluster = context_of(request), path_text(request, "cluster")
    if cluster == context.cluster:
        raise RestError(412, "Cluster not empty")
    if await context.resources.clusters.find(cluster) is not None:
        # As in Pulsar: with isolation policies it stays, failure domains go with it.
        await context.resources.isolation.forget(cluster)
        await context.resources.failure_domains.forget(cluster)
    await context.resources.clusters.delete(cluster)
    return no_content()


def _done() -> Response:
    return Response(status_code=200)


async def _data(request: Request) -> Document:
    body = await json_body(request)
    if body is None:
        raise RestError(400, "cluster data is required")
    given = object_of(body, "the body")
    data: Document = {key: text_of(given[key], key) for key in _TEXTS if given.get(key) is not None}
    data |= {key: boolean_of(given[key], key) for key in _FLAGS if given.get(key) is not None}
    if given.get("peerClusterNames") is not None:
        # Some tools write [""] for an empty list.
        data["peerClusterNames"] = [
            one for one in texts_of(given["peerClusterNames"], "peerClusterNames") if one.strip()
        ]
    for key, (schemes, what, example) in _URLS.items():
        url = data.get(key)
        if isinstance(url, str) and url and re.fullmatch(schemes + _ADDRESSES, url) is None:
            raise RestError(400, f"Illegal {what} url, example: {example}")
    return data


ROUTES = [
    Route("GET", "/admin/v2/clusters", list_clusters, ClusterOperation.LIST_CLUSTERS),
    Route("GET", "/admin/v2/clusters/{cluster}", get_cluster, ClusterOperation.GET_CLUSTER),
    Route("PUT", "/admin/v2/clusters/{cluster}", create_cluster, ClusterOperation.CREATE_CLUSTER),
    Route("POST", "/admin/v2/clusters/{cluster}", update_cluster, ClusterOperation.UPDATE_CLUSTER),
    Route("DELETE", "/admin/v2/clusters/{cluster}", delete_cluster, ClusterOperation.DELETE_CLUSTER),
]
