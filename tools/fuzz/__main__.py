"""``python -m tools.fuzz --seconds 60``: each target of :mod:`tools.fuzz.targets`, guided by coverage (Atheris).

Inputs begin with the kept corpus. What fails is printed and left in ``build/fuzz/found``, exit code 1. With ``--keep``
the corpus is replaced by the smallest set of inputs that reaches all that was reached; ``--replay FILE`` tries one.
Atheris has wheels for some versions of Python only; ``make fuzz`` installs it beside the environment.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.fuzz import corpus_file

DIRECTORY: Final = Path("build/fuzz")
#: Seconds for one input, and beyond the limit of a run until it counts as hung.
INPUT_S: Final = 10
HUNG_S: Final = 120


def main() -> int:
    """Read the options; fuzz each target in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--target", action="append", default=[], help="only this one; may be given again")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--seed", type=int, default=1, help="of the mutations (1)")
    parser.add_argument("--keep", action="store_true", help="replace the kept corpus by what was reached")
    parser.add_argument("--replay", metavar="FILE", help="try this one input; needs one --target, no Atheris")
    parser.add_argument("--child", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        return _child(options.child[0], options.child[1:])
    from tools.fuzz.targets import TARGETS, is_taken

    if unknown := [name for name in options.target if name not in TARGETS]:
        parser.error(f"no target {unknown[0]!r}; expected one of {', '.join(TARGETS)}")
    names = options.target or list(TARGETS)
    if options.replay:
        if len(options.target) != 1:
            parser.error("--replay needs one --target")
        print("taken" if is_taken(names[0], Path(options.replay).read_bytes()) else "refused")
        return 0
    failed = [name for name in names if not _fuzz(name, options.seconds, options.seed, is_kept=options.keep)]
    for name in failed:
        print(f"FOUND: {name}; inputs in {DIRECTORY / 'found'}")
    return 1 if failed else 0


def _fuzz(name: str, seconds: int, seed: int, *, is_kept: bool) -> bool:
    from tools.fuzz.smallest import smallest
    from tools.fuzz.targets import LENGTH_MAX, first_seeds, is_taken

    inputs, found = DIRECTORY / name, DIRECTORY / "found"
    shutil.rmtree(inputs, ignore_errors=True)
    found.mkdir(parents=True, exist_ok=True)
    corpus_file.unpack([*corpus_file.read(name), *first_seeds(name)], inputs)
    limits = [f"-max_len={LENGTH_MAX}", f"-timeout={INPUT_S}", "-rss_limit_mb=1024", "-print_final_stats=1"]
    run = [f"-max_total_time={seconds}", f"-seed={seed}", f"-artifact_prefix={found}/{name}-", *limits, str(inputs)]
    status, lines = _started(name, run, seconds + HUNG_S)
    told = [line.rpartition(":")[2].strip() for line in lines if "number_of_executed_units" in line]
    print(f"{name:12} {told[0] if told else '?':>10} inputs in {seconds} s", flush=True)
    if status:
        print("\n".join(lines[-40:]))
        return False
    if is_kept:
        reached = [*first_seeds(name), *corpus_file.packed(inputs)]
        corpus_file.write(name, smallest(reached, lambda data: is_taken(name, data), "/security/"))
    return True


def _started(name: str, arguments: list[str], limit_s: float) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "tools.fuzz", "--child", name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit_s)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def _child(name: str, arguments: list[str]) -> int:
    try:
        import atheris
    except ImportError:
        print("atheris is not installed; make fuzz installs it in build/fuzz-extras", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["geminga.security"]):
        from tools.fuzz.targets import is_taken

    def try_one(data: bytes) -> None:
        is_taken(name, data)

    atheris.Setup([__file__, *arguments], try_one)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
