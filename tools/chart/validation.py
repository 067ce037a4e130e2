"""Manifests against the schemas of Kubernetes' API, by kubeconform; and faults that it must find in each kind."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from tools.chart.programs import KUBECONFORM, SCHEMAS
from tools.chart.rendering import Manifest

#: Kind -> (the way to a mapping, a field that it does not have). Every kind that is rendered has a row.
FAULTS: Final[Mapping[str, tuple[tuple[str | int, ...], str]]] = {
    "ConfigMap": ((), "datas"),
    "Deployment": (("spec", "template", "spec", "containers", 0), "volumeMount"),
    "Job": (("spec",), "backofLimit"),
    "PodDisruptionBudget": (("spec",), "maxUnavailables"),
    "PodMonitor": (("spec", "podMetricsEndpoints", 0), "ports"),
    "Service": (("spec", "ports", 0), "targetport"),
    "ServiceAccount": ((), "automountToken"),
    "StatefulSet": (("spec", "template", "spec"), "terminationGraceSeconds"),
}


def validate(text: str) -> dict[str, int]:
    """Counts of kubeconform's summary (``valid``, ``invalid``, ``errors``, ``skipped``). Fetches nothing."""
    where = f"{SCHEMAS}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    done = subprocess.run(
        [KUBECONFORM, "-strict", "-summary", "-output", "json", "-schema-location", where, "-"],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"kubeconform said {done.stdout}{done.stderr}") from None
    for resource in answer.get("resources") or ():
        if resource["status"] != "statusValid":
            print(f"    {resource['kind']} {resource['name']}: {resource['msg'][:300]}")
    return {key: int(value) for key, value in answer["summary"].items()}


def planted(documents: Sequence[Manifest]) -> Iterator[tuple[str, str, str]]:
    """(kind, field, text of one document) with a field that is not there. Raises KeyError for a kind without row."""
    for kind in sorted({each["kind"] for each in documents}):
        way, field = FAULTS[kind]
        document = copy.deepcopy(next(each for each in documents if each["kind"] == kind))
        place: Any = document
        for step in way:
            place = place[step]
        place[field] = "1"
        yield kind, field, yaml.safe_dump(document)
