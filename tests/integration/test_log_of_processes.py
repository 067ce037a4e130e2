"""The log of real processes: lines of JSON of all of them, a file, a request's trace, levels at run time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

TRACE = "0af7651916cd43dd8448eb211c80319c"


def asked(url: str, method: str = "GET") -> str:
    """The trace id of the answer."""
    request = Request(url, method=method, headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})
    with urlopen(request) as answer:
        return str(answer.headers["x-trace-id"])


def test_everything_that_a_standalone_and_its_brokers_write_is_json_and_a_request_is_followed(tmp_path: Path) -> None:
    log = tmp_path / "g.log"
    command = [sys.executable, "-m", "geminga", "standalone", "--data", str(tmp_path / "data"), "--brokers", "1"]
    command += ["--broker-port", "0", "--web-port", "0", "--log-format", "json", "--log-file", str(log)]
    command += ["--announce", "here", "--set", "whatIsThis=1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = [process.stdout.readline(), process.stdout.readline()]
        try:
            web = json.loads(said[1])["webServiceUrl"]
            live = f"{web}/admin/v2/brokers/configuration/gemingaLogLevels"
            assert asked(f"{live}/geminga.bookkeeper=debug", "POST") == TRACE
            assert asked(f"{web}/admin/v2/persistent/public/default/t", "PUT") == TRACE
        finally:
            process.terminate()
            rest, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(said[0]) == {"message": "here"}
    lines = [json.loads(line) for line in (rest + errors).splitlines()]
    lines += [json.loads(line) for path in tmp_path.glob("g.log*") for line in path.read_text("utf-8").splitlines()]
    assert {line.get("process") for line in lines} == {None, "broker-0"}
    traced = [line for line in lines if line.get("trace") == TRACE]
    assert "gemingaLogLevels is ('geminga.bookkeeper=debug',) from now on" in [line["message"] for line in traced]
