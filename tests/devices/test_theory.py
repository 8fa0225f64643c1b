"""The simulation agrees with arithmetic that does not know its code."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.experiments.grace_hash_join import EXPERIMENT
from harness.experiments.grace_hash_join.grid import Parameters
from harness.paths import Project
from harness.tiers.simulated import SimulatedBench

PARAMETERS = Parameters(
    scale="small",
    repetitions=1,
    read_buffers=["4 MiB", "32 MiB"],
    write_buffer="4 KiB",
    write_buffers=["4 KiB", "16 KiB"],
    write_sweep_read_buffer="32 MiB",
    users=[1],
    users_read_buffer="32 MiB",
)


@pytest.fixture
def bench(project: Project) -> SimulatedBench:
    devices = {"hdd": "seagate_250gb", "ssd": "intel_x25e_32gb"}
    return SimulatedBench(project.profiles, devices, "athlon_2010")


def test_flash_within_three_percent_and_disk_within_a_quarter(
    bench: SimulatedBench, raw: Path
) -> None:
    compared = 0
    for point in EXPERIMENT.points(PARAMETERS, bench):
        metrics = EXPERIMENT.run_point(point, PARAMETERS, bench, raw).metrics
        tolerance = 0.03 if point.values["device"] == "ssd" else 0.25
        simulated = metrics["partition_s"] + metrics["join_s"]
        theory = metrics["theory_partition_s"] + metrics["theory_join_s"]
        assert simulated == pytest.approx(theory, rel=tolerance), point.label
        compared += 1
    assert compared >= 6


def test_the_same_seed_gives_the_same_bits(bench: SimulatedBench, raw: Path) -> None:
    point = EXPERIMENT.points(PARAMETERS, bench)[0]
    runs = [EXPERIMENT.run_point(point, PARAMETERS, bench, raw) for _ in range(2)]
    assert runs[0].metrics == runs[1].metrics
    assert runs[0].series == runs[1].series
