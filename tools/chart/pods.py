"""Pods of rendered manifests as containers of podman: the command, arguments, variables and files that the YAML says.

What Kubernetes does between them is done by hand: each pod has an address, names of pods and services are lines of
its /etc/hosts, Secrets and ConfigMaps are directories, claims are volumes. The root is read-only, all capabilities
are dropped, and the user is the pod's.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tools.chart.rendering import Manifest
from tools.image.podman import podman

#: Of the network of a trial; nobody else's here.
SUBNET: Final = "10.213.7"
NETWORK: Final = "geminga-chart"


@dataclass
class Pod:
    """One pod of a manifest."""

    name: str
    spec: Manifest
    labels: Mapping[str, str]
    #: Its volumes' claims.
    claims: tuple[str, ...]
    #: Its own name of DNS, if it has one.
    host: str
    address: str
    #: Files of ConfigMaps and Secrets, by the name of the volume.
    directories: dict[str, Path] = field(default_factory=dict)

    @property
    def component(self) -> str:
        """Such as ``broker``."""
        return self.labels["app.kubernetes.io/component"]


class Cluster:
    """The pods of some manifests."""

    def __init__(self, documents: Sequence[Manifest], images: Mapping[str, str], place: Path) -> None:
        """``images``: which image of this machine stands for one that is named. ``place``: for files; emptied."""
        self._documents = documents
        self._images = images
        self._place = place
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        self.pods = list(self._pods())
        self._hosts = self._names()

    def of(self, component: str) -> list[Pod]:
        """Its pods."""
        return [pod for pod in self.pods if pod.component.startswith(component)]

    def _find(self, kind: str, name: str) -> Manifest:
        for each in self._documents:
            if each["kind"] == kind and each["metadata"]["name"] == name:
                return each
        raise SystemExit(f"no {kind} {name} in the manifests")

    def _pods(self) -> Iterator[Pod]:
        last = 10
        for each in self._documents:
            if each["kind"] not in ("StatefulSet", "Deployment", "Job"):
                continue
            spec = each["spec"]
            template = spec["template"]
            claims = tuple(claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates") or ())
            for number in range(spec.get("replicas", 1)):
                last += 1
                name = f"{each['metadata']['name']}-{number}"
                host = ""
                if "serviceName" in spec:
                    host = f"{name}.{spec['serviceName']}.{each['metadata']['namespace']}.svc.cluster.local"
                yield Pod(name, template["spec"], template["metadata"]["labels"], claims, host, f"{SUBNET}.{last}")

    def _names(self) -> list[str]:
        """Lines ``host:address`` for all pods and services."""
        found = [f"{pod.host}:{pod.address}" for pod in self.pods if pod.host]
        for each in self._documents:
            if each["kind"] != "Service":
                continue
            wanted = each["spec"]["selector"].items()
            name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
            chosen = [pod for pod in self.pods if wanted <= pod.labels.items()]
            if not chosen:
                raise SystemExit(f"the service {name} selects no pod")
            for port in each["spec"]["ports"]:
                for pod in chosen:
                    ports = {one["name"]: one["containerPort"] for one in pod.spec["containers"][0]["ports"]}
                    if ports.get(port["targetPort"]) != port["port"]:
                        raise SystemExit(f"the service {name} has port {port}, its pods {ports}")
            found += [
                f"{host}:{pod.address}" for pod in chosen for host in (name, f"{name}.{namespace}.svc.cluster.local")
            ]
        return found

    def start(self, pod: Pod) -> None:
        """Run its init containers to their end, then its container, which is called as the pod is."""
        for init in pod.spec.get("initContainers") or ():
            podman("run", "--rm", *self._words(pod, init), timeout_s=300)
        podman("run", "--detach", f"--name={pod.name}", *self._words(pod, pod.spec["containers"][0]))

    def program(
        self,
        *words: str,
        files: Path,
        variables: Mapping[str, str],
        options: Sequence[str] = ("--rm",),
        check: bool = True,
    ) -> str:
        """What a program of the image says that runs beside the pods, as a client's would. ``files`` are at /files."""
        given = [
            *options,
            f"--network={NETWORK}",
            f"--volume={files}:/files:ro",
            *(f"--env={key}={value}" for key, value in variables.items()),
            *self._hosts_words(),
        ]
        done = podman("run", *given, self._images["geminga"], *words, check=check, timeout_s=180)
        return done.stdout + done.stderr

    def _hosts_words(self) -> list[str]:
        return [f"--add-host={line}" for line in self._hosts]

    def _words(self, pod: Pod, container: Manifest) -> list[str]:
        security = pod.spec["securityContext"]
        own = container["securityContext"]
        words = [
            f"--network={NETWORK}",
            f"--ip={pod.address}",
            f"--hostname={pod.name}",
            f"--user={security['runAsUser']}:{security['runAsGroup']}",
            f"--stop-timeout={pod.spec['terminationGracePeriodSeconds']}",
            "--read-only-tmpfs=false",
            "--no-healthcheck",
            *self._hosts_words(),
            *(f"--cap-drop={each.lower()}" for each in own["capabilities"]["drop"]),
            *(["--read-only"] if own["readOnlyRootFilesystem"] else []),
            *([] if own["allowPrivilegeEscalation"] else ["--security-opt=no-new-privileges"]),
            *(f"--env={key}={value}" for key, value in self._variables(pod, container).items()),
            *self._mounts(pod, container),
        ]
        command = container["command"]
        words.append(f"--entrypoint={command[0]}")
        return [*words, self._image(container["image"]), *command[1:], *map(str, container.get("args") or ())]

    def _image(self, name: str) -> str:
        for part, image in self._images.items():
            if part in name:
                return image
        raise SystemExit(f"no image of this machine stands for {name}")

    def _variables(self, pod: Pod, container: Manifest) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in container.get("envFrom") or ():
            found |= self._find("ConfigMap", each["configMapRef"]["name"])["data"]
        for each in container.get("env") or ():
            if "valueFrom" in each:
                if each["valueFrom"]["fieldRef"]["fieldPath"] != "metadata.name":
                    raise SystemExit(f"{pod.name}: {each}: no field that this knows")
                found[each["name"]] = pod.name
            else:
                value = each["value"]
                for key, known in found.items():
                    value = value.replace(f"$({key})", known)
                found[each["name"]] = value
        return found

    def _mounts(self, pod: Pod, container: Manifest) -> Iterator[str]:
        volumes: dict[str, Any] = {each["name"]: each for each in pod.spec.get("volumes") or ()}
        group = pod.spec["securityContext"]["fsGroup"]
        for mount in container.get("volumeMounts") or ():
            name, path = mount["name"], mount["mountPath"]
            if name in pod.claims:
                place = self._place / f"{pod.name}-{name}"
                place.mkdir(exist_ok=True)
                shutil.chown(place, 0, group)
                place.chmod(0o2770)
                yield f"--volume={place}:{path}"
            elif "emptyDir" in volumes[name]:
                yield f"--tmpfs={path}:mode=1777"
            else:
                yield f"--volume={self._files(pod, volumes[name], group)}:{path}:ro"

    def _files(self, pod: Pod, volume: Manifest, group: int) -> Path:
        """A directory with what a ConfigMap or a Secret has."""
        place = self._place / f"{pod.name}-{volume['name']}"
        if not place.exists():
            place.mkdir()
            if "configMap" in volume:
                data = self._find("ConfigMap", volume["configMap"]["name"])["data"]
                items = {key: (key, text.encode()) for key, text in data.items()}
            else:
                secret = self._find("Secret", volume["secret"]["secretName"])["data"]
                chosen = volume["secret"].get("items") or [{"key": key, "path": key} for key in secret]
                items = {each["key"]: (each["path"], base64.b64decode(secret[each["key"]])) for each in chosen}
            for name, content in items.values():
                (place / name).write_bytes(content)
                shutil.chown(place / name, 0, group)
                (place / name).chmod(volume.get("secret", {}).get("defaultMode", 0o644))
        return place
