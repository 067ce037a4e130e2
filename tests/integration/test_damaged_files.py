"""Any file of a data directory with a bit turned: the right data or an error that names the file, nothing else.

On the real disk and a real SQLite file, with everything a standalone starts; seeded. A directory that was stopped in
order has everything in entry logs and index; one that was killed has it in the journal and SQLite's log too.
"""

from __future__ import annotations

import shutil
from collections import Counter

import pytest

from geminga.runtime import SystemRng
from support.stories.damage import check, flip, make_images, start_and_read

pytestmark = pytest.mark.integration

TRIALS = 16
TRIALS_LONG = 1000


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """The directories, by how the process ended."""
    stopped, killed = make_images(tmp_path_factory.mktemp("images"))
    return {"stopped": stopped, "killed": killed}


def run_trials(image, directory, first_seed, trials) -> Counter[str]:
    """``trials`` damaged copies; how often what came of it."""
    seen: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + trials):
        rng = SystemRng(seed)
        copy = directory / "copy"
        shutil.copytree(image.path, copy)
        files = sorted(path for path in copy.rglob("*") if path.is_file())
        victim = files[rng.below(len(files))]
        done = flip(victim, rng)
        outcome = start_and_read(copy)
        try:
            check(type(image)(copy, image.payloads, image.mark_deletes, image.last_in_journal), victim.name, outcome)
        except AssertionError as error:
            error.add_note(f"seed {seed}: {done}; {outcome.refusal or outcome.errors}")
            raise
        kind = victim.suffix or victim.name
        seen[f"{kind}: {'refused' if outcome.refusal else 'named' if outcome.errors else 'fine'}"] += 1
        shutil.rmtree(copy)
    return seen


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_undamaged_directory_has_everything(images, tmp_path, end):
    copy = tmp_path / "copy"
    shutil.copytree(images[end].path, copy)
    outcome = start_and_read(copy)
    check(images[end], "", outcome)
    assert not outcome.errors
    assert outcome.mark_deletes == images[end].mark_deletes


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_flipped_bits_are_never_served_nor_silently_lost(images, tmp_path, end):
    seen = run_trials(images[end], tmp_path, 0, TRIALS)
    assert seen.total() == TRIALS


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_many_flipped_bits_are_never_served_nor_silently_lost(images, tmp_path, end, record_property):
    seen = run_trials(images[end], tmp_path, TRIALS, TRIALS_LONG)
    record_property("outcomes", dict(seen))
    # Every kind of file was met with damage that matters (a good checkpoint or index can be made again).
    kinds = {what.partition(":")[0] for what in seen if not what.endswith("fine")}
    assert kinds >= {".log", ".json", "cookie"} | ({".sqlite"} if end == "stopped" else {".sqlite-wal", ".journal"})
