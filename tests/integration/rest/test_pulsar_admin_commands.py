"""Every command of ``pulsar-admin`` at a broker of ours: it is served, or refused by a broker that knows it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any, Final

import pytest
from tools.interop.admin.recorded import Recorded, recorded, recorded_later
from tools.pulsar_admin_page import REFUSED

from geminga import Standalone
from geminga.admin._http import HttpCaller
from geminga.admin.errors import AdminError, NotBuiltError
from geminga.app.administration.arguments import given
from geminga.app.administration.asking import carried_out_by
from geminga.app.administration.groups import GROUPS, commands_of
from geminga.app.administration.printing import printed
from geminga.app.administration.session import FailedError
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

#: It ends the broker.
LEFT_OUT: Final = "brokers shutdown"
#: Refused otherwise: here, at a path that is not served, or where there is such a cluster.
NOT_BY_501: Final = frozenset({"namespaces list-cluster", "schemas extract"})


@pytest.fixture
def caller(broker: Standalone) -> Iterator[HttpCaller]:
    caller = HttpCaller(broker.web_service_url)
    yield caller
    caller.close()


def test_every_command_is_served(
    broker: Standalone, rest: Rest, caller: HttpCaller, namespace: str, tmp_path: Any
) -> None:
    (tmp_path / "schema.json").write_text('{"type":"STRING","schema":"","properties":{}}', encoding="utf-8")
    rest.put(f"persistent/{namespace}/parts/partitions", 2)
    refused, failed, runs = set(), [], 0
    for one in (*recorded(), *recorded_later()):
        # Those of a proxy: tests/integration/test_proxy.py.
        if one.group not in GROUPS or one.group == "proxy-stats" or one.words == LEFT_OUT or not one.calls:
            continue
        # What there is may have been deleted by the command before.
        rest.put(f"persistent/{namespace}/t")
        rest.put(f"persistent/{namespace}/t/subscription/s", {"ledgerId": -1, "entryId": -1})
        words = [
            word.replace("public/ns", namespace).replace("{files}", str(tmp_path))
            for word in one.calls[0][0]
            if word != "--global"
        ]
        runs += 1
        try:
            text = told(caller, one, words)
        except NotBuiltError:
            refused.add(one.words)
        except (AdminError, FailedError) as error:
            if getattr(error, "status", 0) in (0, 405, 415, 500) or "no such resource" in str(error):
                failed.append(f"{one.words}: {error}")
        else:
            for how in ("json", "yaml", "table", "pulsar"):
                assert isinstance(text[how], str)
            if text["json"]:
                json.loads(text["json"])
    assert not failed, "\n".join(failed)
    assert refused == REFUSED.keys() - NOT_BY_501
    assert runs > 480


def told(caller: HttpCaller, one: Recorded, words: list[str]) -> dict[str, str]:
    """What is printed of the answer, by how."""
    command = commands_of(one.group)[one.words.partition(" ")[2]]
    said = given(command, words, {"yes": True})
    with redirect_stdout(io.StringIO()):
        value = carried_out_by(caller, command, said, asks=True)
    return {how: printed(command, said, value, how) for how in ("json", "yaml", "table", "pulsar")}
