"""Settings of a running broker are changed at random, to every extreme that is taken: nothing dies, nothing is lost."""

from __future__ import annotations

import http.client
import json
import os
import random
from pathlib import Path
from urllib.parse import quote

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.app.configuration.core.live_keys import INT, LIVE_KEYS, LONG
from support.processes.hostile import COMPLAINTS, Session, Witness

pytestmark = pytest.mark.integration

SEED = int(os.environ.get("HOSTILE_SEED", "1"))
COUNT = 300
COUNT_LONG = 10_000
#: Of one request, seconds.
PATIENCE_S = 30
TEXTS = (
    *(str(number) for number in (0, 1, -1, 2, 100, INT, INT + 1, LONG, LONG + 1, 10**400)),
    *("true", "false", "NaN", "Infinity", "0.5", "1e308", "-0", "+5", " 7 ", "1_0", "", "null", "[]", "\x00", "\u20ac"),
    *("Exclusive", "Shared,Key_Shared", "partitioned", "a/b,c/d", "../..", "x" * 3000),
)


def change_at_random(tmp_path: Path, count: int) -> None:
    choose = random.Random(SEED)
    keys = [*sorted(LIVE_KEYS), "maxTenants", "nothing", "a/b", "x" * 600]
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log") as process:
        witness = Witness(process.broker_port)
        witness.look()
        connection = http.client.HTTPConnection("127.0.0.1", process.web_port, timeout=PATIENCE_S)

        def ask(method: str, path: str) -> int:
            connection.request(method, f"/admin/v2/brokers/configuration{path}")
            answer = connection.getresponse()
            answer.read()
            return answer.status

        taken = 0
        for _ in range(count):
            key, text = choose.choice(keys), choose.choice(TEXTS)
            status = (
                ask("DELETE", f"/{quote(key, safe='')}")
                if choose.random() < 0.1
                else ask("POST", f"/{quote(key, safe='')}/{quote(text, safe='')}")
            )
            taken += status == 200
            assert status in (200, 400, 405, 412), f"{status} for {key}={text[:40]!r}"
        assert taken > count // 10
        # Over a restart with all of it in force, too.
        witness.close()
        connection.close()
        stopped = process.stop()
        process.start()
        connection = http.client.HTTPConnection("127.0.0.1", process.web_port, timeout=PATIENCE_S)
        for key in keys[: len(LIVE_KEYS)]:
            assert ask("DELETE", f"/{key}") == 200
        assert json.loads(process.request("GET", "/admin/v2/brokers/configuration/values")) == {}
        after = Witness(process.broker_port)
        after.look()
        Session(process.broker_port).close()
        after.close()
        connection.close()
        log = process.log.read_text(encoding="utf-8", errors="replace")
        assert not [
            line for line in log.splitlines() if COMPLAINTS.search(line) and "brokerShutdownTimeoutMs" not in line
        ]
        assert stopped in (0, 3), f"a stop that is given no time ends as after a crash\n{log[-2000:]}"


def test_no_setting_that_is_taken_takes_service_down(tmp_path: Path) -> None:
    change_at_random(tmp_path, COUNT)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ten_thousand_changes_take_no_service_down(tmp_path: Path) -> None:
    change_at_random(tmp_path, COUNT_LONG)
