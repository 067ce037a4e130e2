"""Where the demo's events come from: a JSON-lines file, or the git history of this checkout, filled up if short."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: How many events a run without a file has at least.
EVENTS_MIN = 20_000
SEED = 42
_SEEDED_REPOS = 24


@dataclass(frozen=True, slots=True)
class Events:
    """(key, line) in order, and a sentence on where they are from."""

    rows: list[tuple[str, bytes]]
    origin: str


def load_events(path: str) -> Events:
    """From ``path``, or from the git history when it is empty. Raises OSError, ValueError for what is no events."""
    if path:
        return _from_file(Path(path).expanduser())
    history = _from_git()
    missing = max(0, EVENTS_MIN - len(history))
    first_ms = min((json.loads(line)["event_time"] for _, line in history), default=1_750_000_000_000)
    rows = _seeded(missing, first_ms) + history
    found = f"{len(history):,} commits of this checkout" if history else "no git history here"
    return Events(rows, f"{found}, filled up with {missing:,} events made from seed {SEED}" if missing else found)


def _from_file(path: Path) -> Events:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        lines = [line.rstrip(b"\n") for line in file if line.strip()]
    if not lines:
        raise ValueError(f"{path.name} has none, and a run without events would show nothing")
    rows = [(_key(line, number), line) for number, line in enumerate(lines, 1)]
    return Events(rows, f"{len(lines):,} events of {path.name}")


def _key(line: bytes, number: int) -> str:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"event {number} is no JSON: {error}") from error
    if not isinstance(event, dict):
        raise ValueError(f"event {number}: expected an object of JSON")
    for name in ("repo", "key", "id"):
        if name in event:
            return str(event[name])
    return ""


def _from_git() -> list[tuple[str, bytes]]:
    command = ["git", "log", "--no-merges", "--reverse", "--numstat", "--format=%x00%h%x01%ae%x01%at%x01%ct"]
    try:
        output = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True, errors="replace").stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    rows = []
    for block in output.split("\0")[1:]:
        head, *changes = block.strip().splitlines()
        commit, author, written, arrived = head.split("\x01")
        counts = [line.split("\t") for line in changes if line.count("\t") == 2]
        event = {
            "repo": f"{ROOT.name}/{counts[0][2].split('/')[0] if counts else '-'}",
            "commit": commit,
            "author": hashlib.sha256(author.encode()).hexdigest()[:10],
            "event_time": int(written) * 1000,
            "commit_time": int(arrived) * 1000,
            "files": len(counts),
            "insertions": sum(int(c[0]) for c in counts if c[0].isdigit()),
            "deletions": sum(int(c[1]) for c in counts if c[1].isdigit()),
        }
        rows.append((str(event["repo"]), json.dumps(event, separators=(",", ":")).encode()))
    return rows


def _seeded(count: int, before_ms: int) -> list[tuple[str, bytes]]:
    """So many that end where the history begins."""
    rng = random.Random(SEED)
    rows = []
    steps = [rng.randrange(1, 600_000) for _ in range(count)]
    now = before_ms - sum(steps)
    for number, step in enumerate(steps):
        now += step
        event = {
            "repo": f"seeded/repo-{rng.randrange(_SEEDED_REPOS):02}",
            "commit": f"{number:012x}",
            "author": f"{rng.randrange(500):010x}",
            "event_time": now - rng.randrange(86_400_000),
            "commit_time": now,
            "files": rng.randrange(1, 20),
            "insertions": rng.randrange(500),
            "deletions": rng.randrange(200),
        }
        rows.append((str(event["repo"]), json.dumps(event, separators=(",", ":")).encode()))
    return rows
