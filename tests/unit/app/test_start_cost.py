"""What a standalone loads until it is ready: a start costs what it loads, and that is counted here.

The budgets only shrink. What most brokers never use is loaded by the first that uses it; where every broker needs a
new module, another one that it does not need at its start pays for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

#: Modules of Geminga.
MODULES_MAX: Final = 248
#: Dataclasses, each of which is written as text and compiled when its module is loaded: as long as three modules take.
#: Small values are tuples with names (``typing.NamedTuple``).
DATACLASSES_MAX: Final = 36
#: Modules of Geminga after the first request over HTTP, which asks whether the broker is ready.
ASKED_MODULES_MAX: Final = 277
#: Resident memory of the whole process when it is ready, and after that request; ``make bench-start`` compares them.
READY_MIB_MAX: Final = 44
ASKED_MIB_MAX: Final = 52
#: What nobody needs who was not asked for it, with all that is below.
NOT_LOADED: Final = (
    "argparse",
    "fastavro",
    "geminga.broker.topic.transaction_buffer",
    "geminga.broker.transactions",
    "geminga.client",
    "geminga.sim",
    "geminga.transaction",
    "geminga.wire.pulsar.transaction_log",
    "importlib.metadata",
    "platform",
    "starlette",
    "uvicorn",
)

PROGRAM: Final = """
import dataclasses, json, sys
made = []
process = dataclasses._process_class
def counted(cls, *arguments):
    made.append(cls.__module__ + "." + cls.__qualname__)
    return process(cls, *arguments)
dataclasses._process_class = counted
import geminga
from urllib.request import urlopen
def told():
    return [sorted(sys.modules), int(open("/proc/self/statm").read().split()[1]) * 4 / 1024]
with geminga.Standalone(sys.argv[1]) as broker:
    ready, at_start = told(), list(made)
    urlopen(broker.web_service_url + "/admin/v2/brokers/ready").close()
    print(json.dumps([at_start, *ready, *told()]))
"""


#: What is not loaded either while no transaction is used, though transactions are on.
OF_TRANSACTIONS: Final = (
    "geminga.broker.subscription.transaction_acks",
    "geminga.broker.topic.transaction_buffer",
    "geminga.broker.transactions",
    "geminga.transaction",
    "geminga.wire.pulsar.transaction_log",
)
#: Publishes and receives, twice in two processes; the topic of the second has been there before.
PLAIN_PROGRAM: Final = """
import json, sys
import geminga
from geminga.client import blocking
with geminga.Standalone(sys.argv[1]) as broker, blocking.connect(broker.service_url) as client:
    consumer = client.subscribe("plain", "s")
    client.create_producer("plain").send(b"x")
    consumer.acknowledge(consumer.receive(10_000))
    assert broker._server.broker.late_transactions.is_on
    print(json.dumps(sorted(sys.modules)))
"""


def test_plain_messages_load_nothing_of_transactions(tmp_path) -> None:
    for _ in range(2):
        command = [sys.executable, "-c", PLAIN_PROGRAM, str(tmp_path / "data")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        loaded = json.loads(done.stdout)
        unasked = [name for name in loaded for kept in OF_TRANSACTIONS if name == kept or name.startswith(f"{kept}.")]
        assert unasked == []


def test_standalone_loads_no_more_than_it_did(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data")], capture_output=True, text=True, timeout=60, check=True
    )
    dataclasses, loaded, ready_mib, loaded_when_asked, asked_mib = json.loads(done.stdout)
    unasked = [name for name in loaded for kept in NOT_LOADED if name == kept or name.startswith(f"{kept}.")]
    assert unasked == []
    modules, asked = of_ours(loaded), of_ours(loaded_when_asked)
    dataclasses = of_ours(dataclasses)
    assert len(modules) <= MODULES_MAX, modules
    assert len(asked) <= ASKED_MODULES_MAX, sorted({*asked} - {*modules})
    assert len(dataclasses) <= DATACLASSES_MAX, dataclasses
    assert (ready_mib <= READY_MIB_MAX, asked_mib <= ASKED_MIB_MAX) == (True, True), (ready_mib, asked_mib)
    # What was won is kept.
    won = (len(modules), len(asked), len(dataclasses))
    assert won == (MODULES_MAX, ASKED_MODULES_MAX, DATACLASSES_MAX), "less is loaded: lower the budgets"


#: Of the client, to know credentials and to trust a broker's certificate.
CREDENTIALS_MODULES_MAX = 16


def of_ours(names: list[str]) -> list[str]:
    return [name for name in names if name.partition(".")[0] == "geminga"]


def test_an_admin_command_loads_the_client_for_credentials_alone() -> None:
    program = """
import subprocess
import sys
sys.argv = ["geminga", "admin", *sys.argv[2:], "topics", "stats", "t", "--admin-url", sys.argv[1] + "://127.0.0.1:1"]
from geminga.__main__ import main
try:
    main()
except SystemExit:
    print(sum(name.startswith("geminga.client") for name in sys.modules))
"""

    def loaded(*options: str, scheme: str = "http") -> int:
        command = [sys.executable, "-c", program, scheme, *options]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert loaded() == 0
    assert loaded("--auth-plugin", "token", "--auth-params", "token:x") == 0
    assert 0 < loaded("--auth-plugin", "basic", "--auth-params", "a:b", scheme="https") <= CREDENTIALS_MODULES_MAX
