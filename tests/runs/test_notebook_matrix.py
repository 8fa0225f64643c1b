"""Every study's notebook on every tier, small, by papermill: it ends without an error, each figure
is drawn or says in one line what it needs, and claims are judged.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import executed_notebooks
import pytest
from conftest import REPOSITORY, loop_device

from harness.drives import scratch
from harness.errors import TargetError
from harness.paths import Project, find_project
from harness.runs import parameters

Command = Callable[..., subprocess.CompletedProcess[str]]

PIPELINES: Final = parameters.pipelines(find_project(REPOSITORY))
PLACES: Final = {
    "simulated": "simulated",
    "emulated": "emulated",
    "file": "hardware",
    "loop device": "hardware",
}
"""Where a notebook runs, and the tier that this is. Claimed drives: tests/hardware/inside."""

MATRIX: Final = [
    (place, study, notebook)
    for place, tier in PLACES.items()
    for study, notebook in PIPELINES[tier].items()
]

ON_A_TARGET: Final = {
    "sort_merge_join": ("-p", "settings={clients: [1, 4], work_mems: [4 MiB, 64 MiB]}"),
}
"""Of grids that take half an hour on a drive, less."""

LOOP_BYTES: Final = 16 << 30
"""Sparse: room for what any study asks of a file."""

LEAST: Final = {
    ("simulated", "device_models"): (7, 8),
    ("simulated", "grace_hash_join"): (9, 12),
    ("simulated", "sort_merge_join"): (8, 13),
    ("simulated", "trim_fallocate"): (10, 33),
    ("simulated", "msdj_tpcc"): (8, 14),
    ("simulated", "delayed_trim"): (9, 20),
    ("emulated", "grace_hash_join"): (6, 5),
    ("emulated", "sort_merge_join"): (4, 6),
    ("emulated", "trim_fallocate"): (6, 18),
    ("emulated", "msdj_tpcc"): (8, 10),
    ("emulated", "msdj_crashes"): (1, 6),
    ("emulated", "delayed_trim"): (3, 10),
    ("file", "grace_hash_join"): (8, 4),
    ("file", "sort_merge_join"): (2, 1),
    ("file", "trim_fallocate"): (4, 0),
    ("file", "msdj_tpcc"): (4, 1),
    ("file", "delayed_trim"): (4, 9),
    ("loop device", "grace_hash_join"): (8, 4),
    ("loop device", "sort_merge_join"): (2, 1),
    ("loop device", "trim_fallocate"): (4, 0),
    ("loop device", "msdj_tpcc"): (4, 1),
    ("loop device", "delayed_trim"): (4, 9),
}
"""Figures drawn and claims judged, at least.

Of a file the Grace join judges what is said of a disk (4) or, on flash, of a flash drive (5): which
of these it is, the kernel says, and so it does of a loop device. Of what it calls a disk TRIM x
fallocate judges nothing.
"""


def scratch_in(folder: Path) -> Path:
    """A file to be made on a file system with O_DIRECT; skips where there is none."""
    try:
        scratch.check(folder / "scratch", 0)
    except TargetError as error:
        pytest.skip(str(error))
    return folder / "scratch"


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize(("place", "study", "notebook"), MATRIX, ids=str)
def test_a_notebook_on_a_tier(
    place: str,
    study: str,
    notebook: str,
    checkout: Project,
    harness_command: Command,
    tmp_path: Path,
) -> None:
    tier = PLACES[place]
    given = ["-p", f"tier={tier}", "-p", "scale=smoke"]
    with ExitStack() as stack:
        if tier == "hardware":
            given += ON_A_TARGET.get(study, ())
        if place == "file":
            given += ["-p", f"file={scratch_in(tmp_path)}"]
        elif place == "loop device":
            device = stack.enter_context(loop_device(scratch_in(tmp_path).parent, LOOP_BYTES))
            given += ["-p", f"file={device}"]
        done = harness_command("notebook", notebook, *given, timeout_s=1800)
    if tier == "emulated" and "the run is not valid: replies left late" in done.stderr:
        pytest.skip(f"this machine is too busy: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-2000:]
    [executed] = (checkout.build / "runs").glob(f"{study}.{tier}.smoke.*/notebook.ipynb")
    figures_drawn, explained = executed_notebooks.drawn(executed)
    verdicts = executed_notebooks.judged(executed.with_name("metrics.json"))
    least_drawn, least_judged = LEAST[place, study]
    assert figures_drawn >= least_drawn, explained
    assert len(verdicts) >= least_judged, verdicts
    assert not (checkout.root / "data" / "results").exists(), "nothing of it is published"


def test_all_of_the_matrix_is_expected_to_show_something() -> None:
    assert set(LEAST) == {(place, study) for place, study, _ in MATRIX}
