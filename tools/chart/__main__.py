"""``python -m tools.chart``: see ``make chart``. Exit code 1 if any check failed."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys

from tools.chart.programs import install
from tools.chart.rendering import CHART, EXAMPLES, REFUSED, helm, manifests, refused, rendered, values_of, write_plain
from tools.chart.validation import FAULTS, planted, validate

PARTS = ("render", "run")


def render() -> list[str]:
    """Lint, render, validate; what was wrong."""
    wrong = []
    kinds = set()
    for name in EXAMPLES:
        lint = helm("lint", "--strict", CHART, "--values", values_of(name))
        if lint.returncode:
            wrong.append(f"{name}: helm lint --strict: {lint.stdout}{lint.stderr}")
            continue
        text = rendered(name)
        documents = manifests(text)
        counts = validate(text)
        print(f"{name}: lint ok; {counts}", flush=True)
        if counts["valid"] != len(documents) or counts["invalid"] or counts["errors"] or counts["skipped"]:
            wrong.append(f"{name}: {len(documents)} manifests, kubeconform: {counts}")
        for kind, field, fault in planted(documents):
            kinds.add(kind)
            with contextlib.redirect_stdout(io.StringIO()):
                found = validate(fault)["invalid"]
            if not found:
                wrong.append(f"{name}: {kind} with the field {field} was not found")
    print(f"a wrong field was planted into each of {len(kinds)} kinds: {', '.join(sorted(kinds))}")
    wrong += [f"no example has a {kind}" for kind in sorted(FAULTS.keys() - kinds)]
    wrong += refused()
    print(f"{len(REFUSED)} wrong values: each refused by name")
    stale = write_plain()
    wrong += [f"deploy/kubernetes/{name}.yaml was not up to date, and is now" for name in stale]
    return wrong


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description="The Helm chart: rendered, validated, and run.")
    parser.add_argument("parts", nargs="*", default=PARTS, help="render, run, or run:EXAMPLE")
    parts = parser.parse_args().parts
    install()
    wrong = render() if "render" in parts else []
    from tools.chart.trial import TRIALS, trial  # only where podman is asked for

    unknown = {*parts} - {"render", "run", *(f"run:{name}" for name in TRIALS)}
    if unknown:
        sys.exit(
            f"chart: no such part: {', '.join(sorted(unknown))}; there is render, run, run:{', run:'.join(TRIALS)}"
        )
    for name in TRIALS:
        if "run" in parts or f"run:{name}" in parts:
            wrong += trial(name)
    for each in wrong:
        print(f"WRONG {each}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
