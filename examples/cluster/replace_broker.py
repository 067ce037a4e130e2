#!/usr/bin/env python3
"""Replace one broker of a cluster by another at the same address, Apache Pulsar's by Geminga's or the other way round.

::

    replace_broker.py --admin http://broker2:8080 --broker broker1:8080 \\
            --namespace public/default --stop "systemctl stop pulsar-broker" --start "systemctl start geminga-broker"

``--admin`` is another broker of the cluster, which is asked what is there before and after; with one broker alone it is
the broker itself, and topics are away meanwhile. ``--stop`` returns when the old process has ended, ``--start`` when
the new one was started. It ends with 0 if the new one is in the cluster, is ready, and every topic and subscription of
the namespaces is there as before; with 1 and a sentence otherwise: then look before you go on. Needs only Python.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

#: Seconds between two looks.
LOOK_S = 0.5


class StepError(Exception):
    """The step did not go as it should; the text says where it stands."""


def ask(url: str, path: str) -> Any:
    """JSON from a broker's REST; raises OSError, and StepError for an answer that is none."""
    request = urllib.request.Request(f"{url}/admin/v2/{path}")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        raise StepError(
            f"{url}: {path} answered {error.code}: {error.read()[:200].decode(errors='replace')}"
        ) from error
    return json.loads(body) if body else None


def inventory(admin: str, namespaces: list[str]) -> dict[str, list[str]]:
    """Each topic, partitions one by one, and its subscriptions."""
    return {
        topic: sorted(ask(admin, f"{topic.replace('://', '/')}/subscriptions"))
        for namespace in namespaces
        for topic in ask(admin, f"persistent/{namespace}")
    }


def wait_until(what: str, is_so: Any, limit_s: float) -> None:
    """Raises StepError after ``limit_s``. A broker that does not answer is asked again."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            if is_so():
                return
        except (OSError, StepError, ValueError):
            pass
        if time.monotonic() > deadline:
            raise StepError(f"waited {limit_s:g} s in vain: {what}")
        time.sleep(LOOK_S)


def is_ready(broker: str) -> bool:
    """Whether it takes connections."""
    with urllib.request.urlopen(f"http://{broker}/admin/v2/brokers/ready", timeout=10) as answer:
        return bool(answer.status == 200)


def replace(admin: str, broker: str, namespaces: list[str], stop: str, start: str, limit_s: float) -> str:
    """One step; what was done, in a sentence. Raises StepError, OSError, CalledProcessError."""
    own = admin.partition("://")[2]
    if broker not in ask(admin, "brokers"):
        raise StepError(f"{broker} is not in the cluster: {', '.join(ask(admin, 'brokers'))} are")
    before = inventory(admin, namespaces)
    began = time.monotonic()
    subprocess.run(shlex.split(stop), check=True)
    if own != broker:
        wait_until(f"{broker} leaves the cluster", lambda: broker not in ask(admin, "brokers"), limit_s)
    subprocess.run(shlex.split(start), check=True)
    wait_until(f"{broker} is ready", lambda: is_ready(broker), limit_s)
    wait_until(f"{broker} is in the cluster", lambda: broker in ask(admin, "brokers"), limit_s)
    # Asked of the new one: what it does not serve itself it sends on.
    found: dict[str, list[str]] = {}

    def all_answer() -> bool:
        found.clear()
        found.update(inventory(f"http://{broker}", namespaces))
        return True

    wait_until("every topic answers", all_answer, limit_s)
    lost = {topic: names for topic, names in before.items() if not set(names) <= set(found.get(topic, ["?"]))}
    if lost:
        raise StepError(f"after the step topics or subscriptions are missing: {json.dumps(lost)[:500]}")
    took = time.monotonic() - began
    return f"{broker} was replaced in {took:.1f} s; {len(before)} topics are there with their subscriptions"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--admin", required=True, help="web service of another broker, http://host:port")
    parser.add_argument("--broker", required=True, help="who is replaced: host:port of its web service")
    parser.add_argument("--namespace", action="append", required=True, help="to look at; may be repeated")
    parser.add_argument("--stop", required=True, help="the command that stops the old one")
    parser.add_argument("--start", required=True, help="the command that starts the new one, and returns")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for each wait")
    options = parser.parse_args()
    admin = options.admin.rstrip("/")
    try:
        print(replace(admin, options.broker, options.namespace, options.stop, options.start, options.timeout))
    except (StepError, OSError, subprocess.CalledProcessError) as error:
        print(f"replace_broker: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
