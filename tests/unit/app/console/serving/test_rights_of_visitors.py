"""A visitor with few rights: refused, and still logged in."""

from __future__ import annotations

import geminga
import geminga.admin.blocking
from geminga.client import AuthenticationToken
from support.house.signing import SECRET, in_text, token_of
from support.worlds.console import Visitor, forms_of, problem_of

TOPIC = "persistent://public/default/kept"
CONFIG = {
    "authenticationEnabled": "true",
    "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    "tokenSecretKey": in_text(SECRET),
    "authorizationEnabled": "true",
    "superUserRoles": "root",
}


def test_who_may_not_do_something_stays_logged_in() -> None:
    """Brokers answer 401 to who may not compact, as Pulsar's do; to who is not known, too."""
    with geminga.Standalone(config=CONFIG) as broker, Visitor(broker.web_service_url) as visitor:
        root = AuthenticationToken(token_of("root").decode())
        with geminga.admin.blocking.connect(broker.web_service_url, authentication=root) as admin:
            admin.topics.create(TOPIC)
            admin.permissions.grant("public/default", "reader", ["consume"])
        assert visitor.look("/compaction", topic=TOPIC).url.path == "/console/login"
        login = visitor.look("/login", next=f"/console/messages?topic={TOPIC}")
        form = next(form for form in forms_of(login.text) if form.action.endswith("/login"))
        wrong = visitor.send(form, {"credentials": "a.b.c"})
        assert wrong.status_code == 401
        assert problem_of(wrong) != ""
        assert visitor.send(form, {"credentials": token_of("reader").decode()}).url.path == "/console/messages"
        refused = visitor.look("/acts/compact", topic=TOPIC)
        assert refused.status_code == 403
        assert "reader" in problem_of(refused)
        assert visitor.look("/messages", topic=TOPIC).url.path == "/console/messages"
