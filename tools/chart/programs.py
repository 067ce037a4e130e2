"""helm and kubeconform of pinned versions, and the schemas of Kubernetes' API, in build/chart; made once.

Needs Go, and the registries of Go modules and Python packages, for the first time alone: no schema is fetched while
charts are validated. Kubernetes' schemas are in PyPI's ``kubernetes-validate``, PodMonitor's with its operator.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
PLACE: Final = ROOT / "build" / "chart"
HELM: Final = PLACE / "bin" / "helm"
KUBECONFORM: Final = PLACE / "bin" / "kubeconform"
SCHEMAS: Final = PLACE / "schemas"
MODULES: Final = {
    HELM: "helm.sh/helm/v3/cmd/helm@v3.22.0",
    KUBECONFORM: "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0",
}
PACKAGE: Final = "kubernetes-validate==1.37.0"
#: Of the package: the newest API it has.
API: Final = "kubernetes-json-schema/v1.37.0-local/"
OPERATOR: Final = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
MONITOR: Final = "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"


def install() -> None:
    """Make what is missing. Raises SystemExit without Go."""
    if shutil.which("go") is None:
        raise SystemExit("go is missing: helm and kubeconform are Go modules (on Debian: apt-get install golang)")
    for program, module in MODULES.items():
        if not program.exists():
            print(f"installing {module}", flush=True)
            subprocess.run(["go", "install", module], env={**os.environ, "GOBIN": str(program.parent)}, check=True)
    stamp = SCHEMAS / ".stamp"
    if not stamp.exists() or stamp.read_text("utf-8") != PACKAGE + OPERATOR:
        shutil.rmtree(SCHEMAS, ignore_errors=True)
        SCHEMAS.mkdir(parents=True)
        _schemas_of_api()
        _schema_of_monitors()
        stamp.write_text(PACKAGE + OPERATOR, "utf-8")


def _schemas_of_api() -> None:
    wheels = PLACE / "wheels"
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), PACKAGE]
    subprocess.run(words, check=True)
    with zipfile.ZipFile(next(wheels.glob("kubernetes_validate-1.37*.whl"))) as archive:
        for name in archive.namelist():
            if API in name and name.endswith(".json"):
                _write(Path(name).name, json.loads(archive.read(name)))


def _schema_of_monitors() -> None:
    done = subprocess.run(
        ["go", "mod", "download", "-json", OPERATOR], env={**os.environ, "GOFLAGS": "-mod=mod"}, cwd=PLACE,
        capture_output=True, check=True,
    )  # fmt: skip
    definition = yaml.safe_load((Path(json.loads(done.stdout)["Dir"]) / MONITOR).read_text("utf-8"))
    version = next(each for each in definition["spec"]["versions"] if each["name"] == "v1")
    _write("podmonitor-monitoring-v1.json", version["schema"]["openAPIV3Schema"])


def _write(name: str, schema: dict[str, Any]) -> None:
    """Local references, and fields that are not there are errors."""
    schema.pop("$id", None)
    text = json.dumps(closed(schema)).replace('"/api/_definitions.json', f'"file://{SCHEMAS}/_definitions.json')
    (SCHEMAS / name).write_text(text, "utf-8")


def closed(schema: object) -> object:
    """The schema in which an object that names its fields has no others."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    is_open = found.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in found
    # A field may be called "properties", too: of a schema they are a mapping of mappings.
    if isinstance(found.get("properties"), dict) and not is_open and "type" in found:
        found["additionalProperties"] = False
    return found
