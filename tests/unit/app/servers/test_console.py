"""The setting of the console, and that nothing of it is loaded before somebody asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import geminga
from geminga.app.servers.web.console import ROOT
from geminga.model.errors import ConfigurationError
from support.house.signing import SECRET, in_text, token_of
from support.worlds.console import Visitor, forms_of, problem_of

LOADED = """
import sys, urllib.request, geminga
with geminga.Standalone() as broker:
    urllib.request.urlopen(broker.web_service_url + "/admin/v2/clusters").read()
    before = sorted(name for name in sys.modules if "jinja2" in name or "app.console" in name)
    urllib.request.urlopen(broker.web_service_url + "/console/").read()
    print(before, "jinja2" in sys.modules)
"""


def test_nothing_of_it_is_loaded_before_it_is_asked_for(tmp_path: Path) -> None:
    found = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert found.stdout.strip() == "[] True"


def test_it_can_be_off() -> None:
    with geminga.Standalone(config={"gemingaConsole": "off"}) as broker, Visitor(broker.web_service_url) as visitor:
        answer = visitor.browser.get(f"{ROOT}/")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")


def test_read_only_refuses_acts_on_the_server() -> None:
    config = {
        "gemingaConsole": "read-only",
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": in_text(SECRET),
    }
    with geminga.Standalone(config=config) as broker, Visitor(broker.web_service_url) as visitor:
        page = visitor.send(forms_of(visitor.look("/login").text)[0], {"credentials": token_of("joe").decode()})
        assert "read-only" in page.text
        question = visitor.look("/acts/clear-backlog", topic="t", subscription="s")
        assert question.status_code == 403
        token = forms_of(page.text)[0].fields["token"]
        answer = visitor.browser.post(f"{ROOT}/acts/clear-backlog", data={"token": token, "topic": "t"})
        assert answer.status_code == 403
        assert "read-only" in problem_of(answer)


def test_other_values_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="gemingaConsole"):
        geminga.Standalone(config={"gemingaConsole": "yes"})
