"""A real Prometheus on this machine: started, asked, stopped."""

from __future__ import annotations

import json
import math
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

SCRAPE_S: Final = 2
START_S: Final = 60.0
ASK_S: Final = 30.0


class Target(NamedTuple):
    """Who is asked for metrics: its job, its name, host and port."""

    job: str
    name: str
    address: str


def configuration(targets: list[Target], cluster: str, rules: Path | None = None) -> str:
    """``prometheus.yml``; JSON is YAML. ``honor_labels``: a broker's own label of the cluster is the same anyway."""
    jobs = sorted({target.job for target in targets})
    document: dict[str, Any] = {
        "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
        "scrape_configs": [
            {
                "job_name": job,
                "honor_labels": True,
                "static_configs": [
                    {
                        "targets": [target.address],
                        "labels": {"cluster": cluster, "kubernetes_pod_name": target.name},
                    }
                    for target in targets
                    if target.job == job
                ],
            }
            for job in jobs
        ],
    }
    if rules is not None:
        document["rule_files"] = [str(rules)]
    return json.dumps(document, indent=1)


class Prometheus:
    """Started in ``directory``, which it fills."""

    def __init__(self, directory: Path, configured: str, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "prometheus.yml"
        path.write_text(configured)
        with (directory / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={path}",
                    f"--storage.tsdb.path={directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )
        self._await_ready(directory / "prometheus.log")

    def _await_ready(self, log: Path) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5):
                    return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"Prometheus did not start: {log.read_text()[-1000:]}") from None
                time.sleep(0.2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)

    def values(self, query: str, since_s: float, until_s: float) -> list[list[float]]:
        """Each series of the query in that time, NaN left out; ValueError if Prometheus refuses the query."""
        found = self._ask(
            "/api/v1/query_range", {"query": query, "start": since_s, "end": until_s, "step": f"{SCRAPE_S}s"}
        )
        series = ([float(value) for _, value in one["values"]] for one in found["result"])
        return [finite for values in series if (finite := [value for value in values if not math.isnan(value)])]

    def up(self) -> dict[str, bool]:
        """By name, whether it could be asked."""
        found = self._ask("/api/v1/query", {"query": "up"})
        return {one["metric"]["kubernetes_pod_name"]: one["value"][1] == "1" for one in found["result"]}

    def _ask(self, path: str, arguments: Mapping[str, object]) -> dict[str, Any]:
        url = f"{self._url}{path}?{urllib.parse.urlencode(dict(arguments))}"
        try:
            with urllib.request.urlopen(url, timeout=ASK_S) as answer:
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            document = json.load(error)
        if document["status"] != "success":
            raise ValueError(f"{arguments['query']}: {document.get('error')}")
        data: dict[str, Any] = document["data"]
        return data
