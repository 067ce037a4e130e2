"""Holds the plans' topic through the admin REST, where the option ``admin.url`` names it.

In the driver, before any task: the topic and its subscription are made, the topic is retained for ever, and a query is
refused where a policy in force could empty the topic or delete it. What can not be learnt or set (no permission, no
topic policies) is logged, and the subscription alone holds the topic, as without ``admin.url``.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request

from geminga.model.topic_name import TopicName
from geminga.runtime import get_logger
from geminga.runtime.sockets.limited_http import limited_opener, time_left
from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.sink.plans import PLAN_SUBSCRIPTION, plan_topic
from geminga.spark.sink_rules.errors import SinkError
from geminga.spark.sink_rules.plan_policies import RETENTION, PlanPolicies, dangers, quota_actions
from geminga.spark.sink_rules.sink_options import Guarantee, SinkOptions

_log = get_logger(__name__)

#: Of a whole answer.
_TIMEOUT_S: Final = 30.0
#: There already.
_CONFLICT: Final = 409
#: As the Java client writes the position before the first message.
_EARLIEST: Final = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}


class AdminError(SinkError):
    """The admin REST said no, or nothing."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Admin:
    """Requests to the admin REST, with the credentials of the client's options."""

    __slots__ = ("_configuration", "_url")

    def __init__(self, url: str, configuration: ClientConfiguration) -> None:
        self._url = url
        self._configuration = configuration

    def request(self, method: str, path: str, body: object = None) -> object:
        """The answer's JSON, None if it has none; raises AdminError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json", **self._authorization()}
        request = Request(f"{self._url}/admin/v2/{path}", data=data, method=method, headers=headers)
        try:
            with limited_opener(time_left(_TIMEOUT_S), self._tls()).open(request) as answer:
                text = answer.read()
                return json.loads(text) if text else None
        except HTTPError as error:
            with error:
                raise AdminError(f"{method} {path}: {error.code} {error.reason}", error.code) from error
        except (OSError, ValueError, HTTPException) as error:  # URLError is an OSError
            why = str(error) or type(error).__name__
            raise AdminError(f"{method} {self._url}/admin/v2/{path}: {why}") from error

    def _authorization(self) -> Mapping[str, str]:
        if not self._configuration.auth_plugin:
            return {}
        # With the client, which a process that only plans does not import otherwise.
        from geminga.client import http_headers
        from geminga.spark.process.clients import authentication_of

        return http_headers(authentication_of(self._configuration))

    def _tls(self) -> ssl.SSLContext | None:
        if not self._url.lower().startswith("https://"):
            return None
        given = dict(self._configuration.arguments)
        try:
            context = ssl.create_default_context(cafile=str(given.get("tls_trust_certs_file_path", "")) or None)
            if given.get("tls_certificate_file_path"):
                key = str(given.get("tls_private_key_file_path", "")) or None
                context.load_cert_chain(str(given["tls_certificate_file_path"]), key)
        except OSError as error:  # ssl.SSLError is one
            raise AdminError(f"TLS: a certificate or key can not be read: {error}") from error
        if given.get("tls_allow_insecure_connection"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif not given.get("tls_validate_hostname", True):
            context.check_hostname = False
        return context


def hold_plan_topic(options: SinkOptions, guarantee: Guarantee) -> None:
    """See the module; raises SinkError where the topic could be emptied or deleted."""
    topic = TopicName.parse(plan_topic(options))
    admin = Admin(options.admin_url, options.client)
    namespace = f"{topic.tenant}/{topic.namespace_name}"
    path = f"{topic.domain}/{namespace}/{quote(topic.partitioned_topic.local_name, safe='')}"
    try:
        _make(admin, path)
        policies = _policies(admin, path, namespace)
    except AdminError as error:
        _log.warning("the plans' topic %s is held by its subscription alone: %s", topic, error)
        return
    found = dangers(str(topic), namespace, PLAN_SUBSCRIPTION, policies)
    if found:
        raise SinkError(
            f"guarantee={guarantee.value}: the plans' topic {topic} could be emptied or deleted, and a query could not "
            f"resume then: {'; '.join(found)}; or choose commitStateTopic in another namespace"
        )
    if guarantee is Guarantee.EXACTLY_ONCE:
        return  # the subscription holds what is needed; the rest is cleaned away
    try:
        if admin.request("GET", f"{path}/retention") != RETENTION:
            admin.request("POST", f"{path}/retention", RETENTION)
    except AdminError as error:
        _log.warning("the plans' topic %s has no retention of its own: %s", topic, error)


def _make(admin: Admin, path: str) -> None:
    """The topic and the subscription; each may be there."""
    for put, body in ((path, None), (f"{path}/subscription/{PLAN_SUBSCRIPTION}", _EARLIEST)):
        try:
            admin.request("PUT", put, body)
        except AdminError as error:
            if error.status != _CONFLICT:
                raise


def _policies(admin: Admin, path: str, namespace: str) -> PlanPolicies:
    ttl = admin.request("GET", f"{path}/messageTTL?applied=true")
    quotas = admin.request("GET", f"{path}/backlogQuotaMap?applied=true")
    expiry = admin.request("GET", f"namespaces/{namespace}/subscriptionExpirationTime")
    if not isinstance(expiry, int):
        expiry = _broker_expiry(admin)
    return PlanPolicies(ttl if isinstance(ttl, int) else None, expiry, quota_actions(quotas))


def _broker_expiry(admin: Admin) -> int | None:
    """The broker's default, where it may be asked."""
    try:
        settings = admin.request("GET", "brokers/configuration/runtime")
    except AdminError:
        return None
    text = settings.get("subscriptionExpirationTimeMinutes") if isinstance(settings, dict) else None
    return int(text) if isinstance(text, int | str) and str(text).lstrip("-").isdigit() else None
