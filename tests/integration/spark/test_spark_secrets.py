"""Secrets of a job: a cluster with TLS, tokens and passwords on every link, Spark with executors of its own beside it.

The job reads by a token, writes by a password, asks Spark to explain, and fails with another token; a broker is ended
with a dump. What everybody then left on the disk and said, and every command line meanwhile, is searched.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyspark
import pytest
from tools.chaos.cluster import Cluster
from tools.chaos.secured import LOAD, SECRET, Security, token_of
from tools.process_tree import children_of, command_of

import geminga.client.blocking
from geminga.client import AuthenticationToken, MessageId
from geminga.security.digest_crypt import apr1_crypt
from geminga.spark.process.home import make_home

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

PASSWORD: Final = "correct horse battery"
ROWS: Final = 20
JOB_S: Final = 400.0
#: What the job says when each of its steps was made.
STEPS: Final = ("explained", "written", "refused")
JOB: Final = """
import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

here = Path(sys.argv[1])
told = json.loads((here / "job.json").read_text())
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("INFO")
secured = {"service.url": told["url"], "pulsar.client.tlsTrustCertsFilePath": told["trust"]}
package = "org.apache.pulsar.client.impl.auth."
by_token = {
    **secured,
    "pulsar.client.authPluginClassName": package + "AuthenticationToken",
    "pulsar.client.authParams": "token:" + told["token"],
}
by_password = {
    **secured,
    "pulsar.client.authPluginClassName": package + "AuthenticationBasic",
    "pulsar.client.authParams": json.dumps({"userId": "load", "password": told["password"]}),
}
source = spark.readStream.format("pulsar").options(**by_token, topic="in", startingOffsets="earliest")
rows = source.load().selectExpr("value")
rows.explain(True)
query = (
    rows.writeStream.format("pulsar")
    .options(**by_password, topic="out")
    .option("checkpointLocation", str(here / "checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.explain(True)
print("explained", query.lastProgress)
query.awaitTermination()
print("written", query.lastProgress, spark.sparkContext.getConf().getAll())
wrong = {**by_token, "pulsar.client.authParams": "token:" + told["wrong"], "topic": "in"}
try:
    print(spark.read.format("pulsar").options(**wrong).load().count())
except Exception as error:
    print("refused", error)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """ZooKeeper, two bookies, a broker, auto-recovery."""
    security = Security(tmp_path / "keys")
    cluster = Cluster(
        tmp_path,
        bookies=2,
        session_ms=30_000,
        broker_settings={"managedLedgerDefaultEnsembleSize": 2, "transactionCoordinatorEnabled": "true"},
        security=security,
    )
    users = base64.b64encode(f"{LOAD}:{apr1_crypt(PASSWORD.encode(), 'salt')}".encode()).decode()
    settings = cluster.broker.settings
    settings["authenticationProviders"] = (
        f"{settings['authenticationProviders']},org.apache.pulsar.broker.authentication.AuthenticationProviderBasic"
    )
    settings["basicAuthConf"] = f"data:;base64,{users}"
    try:
        cluster.start()
        # The coordinators of transactions, by which the sink writes.
        coordinators = f"/admin/v2/namespaces/pulsar/system/permissions/{LOAD}"
        security.administer(cluster.broker.web_tls_url, "POST", coordinators, ["produce", "consume"])
        cluster.start_autorecovery(security.bookie_settings("autorecovery"))
        yield cluster
    finally:
        cluster.close()


def test_nobody_writes_a_secret_down(cluster: Cluster, tmp_path: Path) -> None:
    token, wrong = token_of(LOAD, 3600.0), token_of("nobody", 3600.0, secret=bytes(64))
    assert cluster.security is not None
    trust = str(cluster.security.member("client").trust)
    reading = AuthenticationToken(token)
    with geminga.client.blocking.connect(
        cluster.service_url, tls_trust_certs_file_path=trust, authentication=reading
    ) as client:
        with client.create_producer("in") as producer:
            for number in range(ROWS):
                producer.send(b"%d" % number)
        command_lines = run_job(cluster, tmp_path, {"token": token, "wrong": wrong, "trust": trust})
        with client.create_reader("out", MessageId.earliest) as reader:
            found = {reader.read_next(30_000).data() for _ in range(ROWS)}
    assert found == {b"%d" % number for number in range(ROWS)}
    said = (tmp_path / "job.out").read_text(encoding="utf-8")
    for step in STEPS:
        assert f"\n{step} " in said, said[-4000:]
    # As operators do with one that hangs.
    os.kill(cluster.broker.pid, signal.SIGABRT)
    cluster.broker.process.wait(60)  # type: ignore[union-attr]
    cluster.close()

    secrets = [token.encode(), wrong.encode(), PASSWORD.encode(), *forms_of(SECRET)]
    secrets += [line for path in (tmp_path / "keys").glob("*.pem") for line in lines_of_key(path)]
    secrets += [path.read_bytes().strip() for path in (tmp_path / "keys").glob("*.token")]
    assert len(secrets) > 10
    files = [path for path in tmp_path.rglob("*") if path.is_file() and is_searched(path, tmp_path)]
    by_kind = {path.relative_to(tmp_path).parts[0] for path in files}
    # Executors, the log of events, the checkpoint, each process of the cluster.
    assert by_kind >= {"spark", "events", "checkpoint", "job.out", "broker.log", "bookie-0", "autorecovery.log"}, (
        by_kind
    )
    assert any("app-" in str(path) and path.name == "stderr" for path in files)
    for path in files:
        content = path.read_bytes()
        assert not [secret for secret in secrets if secret in content], path
    assert command_lines
    for line in command_lines:
        assert not [secret for secret in secrets if secret.decode() in line], line


def run_job(cluster: Cluster, directory: Path, told: dict[str, str]) -> set[str]:
    """``spark-submit`` with an executor of its own; the command lines that were there meanwhile."""
    (directory / "job.json").write_text(json.dumps({**told, "url": cluster.service_url, "password": PASSWORD}))
    (directory / "job.py").write_text(JOB)
    (directory / "events").mkdir()
    home = directory / "spark"
    make_home(home, Path(pyspark.__file__).parent)
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{directory}/events",
        "spark.eventLog.compress": "false",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
    }
    source = str(Path(geminga.client.blocking.__file__).parents[2])
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH", "")))),
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local-cluster[1,2,1024]"]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    lines: set[str] = set()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.2):
            lines.update(command_of(pid) for pid in children_of([os.getpid()]))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with (directory / "job.out").open("w", encoding="utf-8") as output:
            done = subprocess.run(
                [*command, str(directory / "job.py"), str(directory)],
                stdout=output,
                stderr=output,
                env=environment,
                cwd=directory,
                timeout=JOB_S,
                check=False,
            )
    finally:
        is_over.set()
        watching.join()
    assert done.returncode == 0, (directory / "job.out").read_text(encoding="utf-8")[-6000:]
    return lines


def is_searched(path: Path, directory: Path) -> bool:
    """All but the files in which the secrets were given, and Spark itself."""
    parts = path.relative_to(directory).parts
    if parts[0] == "keys" or path.name == "job.json":
        return False
    return parts[0] != "spark" or parts[1] == "work"


def forms_of(key: bytes) -> list[bytes]:
    """As bytes, as base64 and as hexadecimal digits."""
    return [key, base64.b64encode(key), base64.urlsafe_b64encode(key).rstrip(b"="), key.hex().encode()]


def lines_of_key(path: Path) -> list[bytes]:
    """The first line of a private key, if one is in it."""
    _, begin, rest = path.read_bytes().partition(b"-----BEGIN PRIVATE KEY-----\n")
    return [rest.splitlines()[0]] if begin else []
