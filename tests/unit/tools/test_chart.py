"""The Helm chart without Helm: values, schema, page and templates agree with each other and with Geminga's keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.chart.pods import Cluster
from tools.chart.programs import HELM, closed
from tools.chart.rendering import CHART, EXAMPLES, KEPT, MANIFESTS, manifests, plain, values_of
from tools.chart.validation import FAULTS, planted

from geminga.app.configuration.bookie_config import BookieServerConfig
from geminga.app.configuration.bookie_tls_config import BookieTlsConfig
from geminga.app.configuration.config import CONFIG_CLASSES
from geminga.app.configuration.known_keys import KNOWN_KEYS
from geminga.app.container.default_files import PROXY_CLASSES
from geminga.bookie.config import BookieConfig
from geminga.model.settings import settings_of

VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
PAGE = (CHART.parents[2] / "docs/kubernetes.md").read_text("utf-8")
TEMPLATES = {path.name: path.read_text("utf-8") for path in (CHART / "templates").iterdir()}
#: In the schema, and without a default.
OPTIONAL = {"global", "images.zookeeper.pullPolicy"}
#: Their fields are Kubernetes', or a user's own.
FREE = {
    "resources",
    "configData",
    "annotations",
    "nodeSelector",
    "tolerations",
    "metricRelabelings",
    "imagePullSecrets",
}


def paths(values: dict[str, Any], before: str = "") -> Iterator[str]:
    for key, value in values.items():
        path = f"{before}{key}"
        yield path
        if isinstance(value, dict) and key not in FREE:
            yield from paths(value, f"{path}.")


def schema_paths(schema: dict[str, Any], before: str = "") -> Iterator[str]:
    for key, value in schema.get("properties", {}).items():
        path = f"{before}{key}"
        yield path
        inner = SCHEMA["definitions"][value["$ref"].rpartition("/")[2]] if "$ref" in value else value
        if key not in FREE:
            yield from schema_paths(inner, f"{path}.")


def test_schema_and_values_name_the_same() -> None:
    optional = {path for path in schema_paths(SCHEMA) if path in OPTIONAL or path.endswith(".affinity.type")}
    assert set(schema_paths(SCHEMA)) - optional == set(paths(VALUES))
    assert "broker.service.type" in set(paths(VALUES))


def test_every_object_of_the_schema_refuses_other_fields() -> None:
    def objects(schema: object) -> Iterator[dict[str, Any]]:
        if isinstance(schema, dict):
            if schema.get("type") == "object" and "properties" in schema:
                yield schema
            for value in schema.values():
                yield from objects(value)

    found = list(objects(SCHEMA))
    assert len(found) > 30
    assert [each for each in found if each.get("additionalProperties") is not False] == []


def test_values_of_the_examples_are_known() -> None:
    known = set(schema_paths(SCHEMA))
    for name in EXAMPLES:
        assert set(paths(yaml.safe_load(values_of(name).read_text("utf-8")))) <= known, name


def test_every_value_is_on_the_page() -> None:
    table = PAGE.partition("\n## Values\n")[2].partition("\n## ")[0]
    written = [each for names in re.findall(r"`([\w.*]+)`", table) for each in (names, names.removesuffix(".*"))]
    components = set(VALUES["components"])
    everything = list(paths(VALUES))
    for path in everything:
        if any(other.startswith(f"{path}.") for other in everything):
            continue  # what is in it is looked for
        first, _, rest = path.partition(".")
        words = [path, rest] if first in components and rest else [path]
        parents = [word.rpartition(".")[0] for word in words] + [
            re.sub(r"^tls\.\w+\.cert_name$", "tls.*.cert_name", path)
        ]
        group = any(one.startswith(f"{word}.") for one in written for word in words)
        assert path in components or group or set(words + parents) & set(written), f"{path} is not told"


def test_settings_of_templates_are_keys_that_their_server_knows() -> None:
    server = {key for part in CONFIG_CLASSES for key in settings_of(part)} | KNOWN_KEYS
    bookie = {key for part in (BookieServerConfig, BookieConfig, BookieTlsConfig) for key in settings_of(part)}
    proxy = {key for part in PROXY_CLASSES for key in settings_of(part)} | {"servicePortTls"}
    known = {"bookkeeper": bookie, "autorecovery": bookie, "broker": server, "proxy": proxy, "standalone": server}
    text = TEMPLATES["_settings.tpl"]
    counted = 0
    for role, keys in known.items():
        part = text.partition(f'{{{{- define "geminga.{role}" -}}}}')[2].partition("{{- define")[0]
        if "portCertificates" in part:
            part += TEMPLATES["_security.tpl"].partition("geminga.portCertificates")[2].partition("{{- define")[0]
        if "bookieCertificates" in part:
            part += TEMPLATES["_security.tpl"].partition("geminga.bookieCertificates")[2].partition("{{- define")[0]
        if "authSettings" in part:
            part += TEMPLATES["_security.tpl"].partition("geminga.authSettings")[2].partition("{{- define")[0]
            if role == "proxy":
                part = re.sub(r'(?s){{- if ne \$role "proxy" }}.*?\n{{- end }}\n{{- end }}', "", part)
        found = set(re.findall(r"GEMINGA_(\w+)", part)) - {"advertisedAddress"}
        counted += len(found)
        own = {key for key in found if key not in keys and not key.startswith("bookkeeper_")}
        assert own == set(), role
    assert counted > 60


def test_ports_are_the_defaults_of_the_servers() -> None:
    defaults = {
        key: part.__dataclass_fields__[field].default  # type: ignore[attr-defined]
        for part in (*CONFIG_CLASSES, BookieServerConfig)
        for key, (_, field) in settings_of(part).items()
    }
    for component in ("broker", "proxy", "standalone"):
        ports = VALUES[component]["ports"]
        assert ports["pulsar"] == int(str(defaults["brokerServicePort"]))
        assert ports["http"] == int(str(defaults["webServicePort"]))
    assert VALUES["bookkeeper"]["ports"]["bookie"] == int(str(defaults["bookiePort"]))


@pytest.mark.parametrize("name", KEPT)
def test_plain_manifests_name_pods_that_services_find_and_that_may_little(name: str, tmp_path: Path) -> None:
    documents = manifests((MANIFESTS / f"{name}.yaml").read_text("utf-8"))
    cluster = Cluster(documents, {}, tmp_path / "pods")
    assert len(cluster.pods) == {"one-broker": 1, "three-of-each": 11}[name]
    for pod in cluster.pods:
        assert pod.spec["securityContext"]["runAsNonRoot"] is True
        assert pod.spec["enableServiceLinks"] is False, "a service geminga-... would be a setting GEMINGA_..."
        assert pod.spec["automountServiceAccountToken"] is False
        for container in (*pod.spec["containers"], *pod.spec.get("initContainers", ())):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert "requests" in container["resources"]


def test_a_service_whose_port_no_pod_has_is_found(tmp_path: Path) -> None:
    documents = manifests((MANIFESTS / "one-broker.yaml").read_text("utf-8"))
    service = next(each for each in documents if each["kind"] == "Service")
    service["spec"]["ports"][0]["port"] = 81
    with pytest.raises(SystemExit, match="geminga-standalone has port"):
        Cluster(documents, {}, tmp_path / "pods")


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.skipif(not HELM.exists(), reason="make chart installs helm")
def test_plain_manifests_are_up_to_date(name: str) -> None:
    assert (MANIFESTS / f"{name}.yaml").read_text("utf-8") == plain(name), "make chart writes them"


def test_a_fault_is_planted_into_each_kind() -> None:
    documents = manifests((MANIFESTS / "three-of-each.yaml").read_text("utf-8"))
    faults = {kind: (field, text) for kind, field, text in planted(documents)}
    assert faults.keys() == FAULTS.keys() - {"PodMonitor"}
    assert all(f"{field}:" in text for field, text in faults.values())
    assert all(f"{field}:" not in (MANIFESTS / "three-of-each.yaml").read_text("utf-8") for field, _ in faults.values())


def test_schemas_that_are_prepared_refuse_fields_that_are_not_there() -> None:
    inner = {"type": ["object", "null"], "properties": {"a": {"type": "string"}}}
    free = {"type": "object", "additionalProperties": {"type": "string"}}
    found = closed({"type": "object", "properties": {"inner": inner, "free": free, "list": {"items": [inner]}}})
    assert isinstance(found, dict)
    assert found["additionalProperties"] is False
    assert found["properties"]["inner"]["additionalProperties"] is False
    assert found["properties"]["list"]["items"][0]["additionalProperties"] is False
    assert found["properties"]["free"] == free
