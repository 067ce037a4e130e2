"""A broker without a lake never pays for one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
import geminga
from geminga.client import blocking
with geminga.Standalone(sys.argv[1]) as broker, blocking.connect(broker.service_url) as client:
    consumer = client.subscribe("plain", "s")
    client.create_producer("plain").send(b"x")
    consumer.acknowledge(consumer.receive(10_000))
    print(json.dumps(sorted(name for name in sys.modules if name.startswith(("pyarrow", "numpy", "geminga.lake")))))
"""


@pytest.mark.slow
def test_plain_messages_load_nothing_of_the_lake(tmp_path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == []
