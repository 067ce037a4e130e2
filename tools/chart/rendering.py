"""The chart rendered by helm, and the plain manifests of ``deploy/kubernetes``."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tools.chart.programs import HELM, ROOT

CHART: Final = ROOT / "deploy/helm/geminga"
EXAMPLES: Final = ("one-broker", "three-of-each", "tls-and-tokens", "proxy", "monitors")
MANIFESTS: Final = ROOT / "deploy/kubernetes"
#: The examples of which plain manifests are kept.
KEPT: Final = ("one-broker", "three-of-each")
_HEAD: Final = """\
# Made by `make chart` of deploy/helm/geminga/examples/{name}.yaml: change that one.
# kubectl create namespace geminga; kubectl apply --namespace geminga --filename this file
"""

#: Values that are refused, and what the error names.
REFUSED: Final = {
    "broker.replicaCounts=3": "replicaCounts",
    "broker.ports.http=80": "/broker/ports/http",
    "components.functions=true": "functions",
    "zookeeper.replicaCount=2": "/zookeeper/replicaCount",
    "bookkeeper.replicaCount=1": "no ledger could be made",
    "components.standalone=true": "components.zookeeper must be false",
    "components.zookeeper=false": "pulsar_metadata.userProvidedZookeepers",
    "pulsar_metadata.configurationStore=all": "/pulsar_metadata/configurationStore",
    "auth.authorization.enabled=true": "nobody would be known",
    "defaultPullPolicy=Sometimes": "defaultPullPolicy",
}

Manifest = dict[str, Any]
#: A helm that is built as a Go module knows no version of its own.
KUBERNETES: Final = "1.37.0"


def helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """What helm said; whoever calls looks at its exit code."""
    return subprocess.run(
        [HELM, *map(str, words), "--kube-version", KUBERNETES], capture_output=True, text=True, check=False
    )


def values_of(name: str) -> Path:
    """The file of an example."""
    return CHART / "examples" / f"{name}.yaml"


def rendered(name: str, settings: Sequence[str] = ()) -> str:
    """The text of an example's manifests. Raises SystemExit with helm's words."""
    words = [word for setting in settings for word in ("--set", setting)]
    done = helm("template", "geminga", CHART, "--namespace", "geminga", "--values", values_of(name), *words)
    if done.returncode:
        raise SystemExit(f"helm template of {name}: {done.stderr.strip()}")
    return done.stdout


def refused() -> list[str]:
    """What was taken of :data:`REFUSED`, or refused with other words."""
    wrong = []
    for setting, words in REFUSED.items():
        done = helm("template", "geminga", CHART, "--set", setting)
        if not done.returncode or words not in done.stderr:
            wrong.append(f"--set {setting}: expected an error that says {words!r}, helm said {done.stderr.strip()!r}")
    return wrong


def manifests(text: str) -> list[Manifest]:
    """The documents of it."""
    return [document for document in yaml.safe_load_all(text) if document]


def plain(name: str) -> str:
    """The text of the file in ``deploy/kubernetes``."""
    return _HEAD.format(name=name) + rendered(name)


def write_plain() -> list[str]:
    """Write all; the names of those that were not up to date."""
    MANIFESTS.mkdir(exist_ok=True)
    stale = []
    for name in KEPT:
        path = MANIFESTS / f"{name}.yaml"
        text = plain(name)
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(name)
            path.write_text(text, "utf-8")
    return stale
