"""In the guest: every study's notebook on drives that were claimed for it, by papermill.

The rest of the matrix: tests/runs/test_notebook_matrix.py. A processor that is emulated says
nothing of times, so the grids are small; what is judged here is whether a claim can be.
"""

from __future__ import annotations

from collections.abc import Iterator

import executed_notebooks
import pytest

from hardware.drives import FdpNvme, Sata
from hardware.inside import claimed
from harness.paths import Project

SSD, HDD, FDP = "SS2037E4B7C9", "HD7K1CXR9F04", "FD5C1A7D20E1"
SIZE_BYTES = 17 << 30  # sparse: room for what any study asks of a drive
DRIVES = (
    Sata(SSD, "FLASHLAB SSD 16384", "M3CR046", 0x500A0751E4B7C901, 1, SIZE_BYTES),
    Sata(
        HDD, "FLASHLAB HDD 16384", "MX6OA5Q0", 0x5000CCA39BD0F402, 7200, SIZE_BYTES, discard=False
    ),
    FdpNvme(FDP, ("0", "1"), size_bytes=SIZE_BYTES),
)
CLAIMS = {"ssd": (SSD, 0), "hdd": (HDD, 0), "fdp": (FDP, 0), "fdp_journal": (FDP, 1)}


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    with claimed.claimed(CLAIMS) as made:
        yield made


STUDIES = {
    "grace_hash_join": (
        "10_grace_hash_join",
        ("drives={hdd: hdd, ssd: ssd}", "settings={repetitions: 1}"),
        (8, 6),
    ),
    "sort_merge_join": (
        "20_sort_merge_join",
        (
            "drives={hdd: hdd, ssd: ssd}",
            "settings={clients: [1, 16], work_mems: [4 MiB]}",
        ),
        (3, 8),
    ),
    "trim_fallocate": (
        "30_trim_fallocate_matrix",
        (
            "drives={ssd: fdp}",  # it counts what it programs
            (
                "settings={drives: {ssd: {scale_factor: 0.06, work_mem: 256 KiB, preallocation: "
                "1 MiB, repetitions: 4, device: 1 GiB, least_scale: paper}}, variants: {work_mem: "
                "{why: figure 5, drives: [ssd], trim: [none], preallocation: [0 B], "
                "work_mems: [128 KiB, 256 KiB, 512 KiB], repetitions: 1}}}"
            ),
        ),
        (4, 17),
    ),
    "msdj_tpcc": (
        "40_msdj_tpcc",
        (
            "drives={ssd: fdp}",
            "journals={ssd: fdp_journal}",
            (
                "settings={modes: [oj_dwb, dj, msdj], journals: [4 MiB, 1600 MiB], warehouses: 1, "
                "measured_s: 4000}"
            ),
        ),
        (4, 11),
    ),
    "delayed_trim": (
        "50_delayed_trim",
        (
            "drives={ssd: ssd}",
            "settings={table1: {written: 1 GiB, trimmed: 310 MiB, unit: 10 MiB, at_once: true}}",
        ),
        (4, 1),
    ),
}
"""Notebook, what it is given, and how many figures are drawn and claims judged, at least."""


@pytest.mark.parametrize("study", STUDIES)
def test_a_notebook_on_claimed_drives(study: str, project: Project) -> None:
    notebook, given, (least_drawn, least_judged) = STUDIES[study]
    words = [word for each in ("tier=hardware", "scale=smoke", *given) for word in ("-p", each)]
    done = claimed.run(project, "notebook", notebook, *words)
    assert done.returncode == 0, done.stderr[-2000:]
    [executed] = (project.build / "runs").glob(f"{study}.hardware.smoke.*/notebook.ipynb")
    drawn, explained = executed_notebooks.drawn(executed)
    judged = executed_notebooks.judged(executed.with_name("metrics.json"))
    assert drawn >= least_drawn, explained
    assert len(judged) >= least_judged, judged
    assert not (project.root / "data" / "results").exists(), "nothing of it is published"
