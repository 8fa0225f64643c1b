"""MQSim beside the model: the job that both are given, and what is read of a program like MQSim."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rich.console import Console

from harness import benchmarks
from harness.errors import BadParameter, HarnessError, MissingTool, UnknownName
from harness.experiments.device_models import mqsim
from harness.experiments.device_models.benchmarks import beside_mqsim
from harness.paths import find_project
from harness.system.programs import find_program

DRIVE = mqsim.SimulatedDrive()

# Says what MQSim says of a job given by -i DRIVE -w JOB, and waits for a key as it does.
PROGRAM = """#!/bin/sh
echo "Finished preconditioning. Duration of preconditioning: 0:0:1"
i=0
while [ $i -lt 300000 ]; do i=$((i + 1)); done
echo '<FTL Issued_Flash_Program_CMD="300"/>' > "${4%.xml}_scenario_1.xml"
echo "Flow 0 - total requests generated: 100 total requests serviced:SERVICED"
echo "Simulation complete; Press any key to exit."
read key
"""


def numbers(text: str) -> dict[str, float]:
    found = {}
    for element in ET.fromstring(text).iter():
        try:
            found[element.tag] = float(element.text or "")
        except ValueError:
            continue
    return found


def test_mqsims_drive_is_as_large_as_ours_and_collects_as_early() -> None:
    given = numbers(mqsim.drive_xml(DRIVE))
    pages = 1.0
    for tag in ("Flash_Channel_Count", "Chip_No_Per_Channel", "Die_No_Per_Chip"):
        pages *= given[tag]
    for tag in ("Plane_No_Per_Die", "Block_No_Per_Plane", "Page_No_Per_Block"):
        pages *= given[tag]
    assert pages * given["Page_Capacity"] == DRIVE.physical_bytes == 16 << 30
    assert int(given["GC_Exec_Threshold"] * given["Block_No_Per_Plane"]) == DRIVE.free_blocks
    assert given["Data_Cache_Capacity"] == 256 << 20


def test_mqsims_job_writes_whole_pages() -> None:
    given = numbers(mqsim.job_xml(DRIVE, 1234, 5))
    assert given["Average_Request_Size"] * 512 == DRIVE.page_bytes
    assert given["Address_Alignment_Unit"] * 512 == DRIVE.page_bytes
    assert (given["Total_Requests_To_Generate"], given["Seed"]) == (1234, 5)
    assert (given["Read_Percentage"], given["Stop_Time"]) == (0, 0)
    assert given["Average_No_of_Reqs_in_Queue"] == DRIVE.depth
    assert DRIVE.written_bytes % DRIVE.page_bytes == DRIVE.logical_bytes % DRIVE.page_bytes == 0


def program(folder: Path, serviced: int) -> Path:
    path = folder / "like-mqsim"
    path.write_text(PROGRAM.replace("SERVICED", str(serviced)))
    path.chmod(0o755)
    return path


def test_figures_are_those_of_the_part_behind_the_preconditioning(tmp_path: Path) -> None:
    speed = mqsim.run(program(tmp_path, 100), DRIVE, tmp_path, 100, 1)
    assert speed.waf == 3.0
    assert 0 < speed.requests_per_s < 1e5
    assert 100_000 < speed.peak_bytes < 100_000_000


def test_a_run_that_ends_early_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="served 32 of 100 requests"):
        mqsim.run(program(tmp_path, 32), DRIVE, tmp_path, 100, 1)
    with pytest.raises(HarnessError, match="MQSim: said nothing"):
        mqsim.run(Path(find_program("true")), DRIVE, tmp_path, 100, 1)


def test_only_a_checkout_is_built(tmp_path: Path) -> None:
    checkout, build = tmp_path / "checkout", tmp_path / "build"
    build.mkdir()
    (checkout / "src").mkdir(parents=True)  # and no makefile
    with pytest.raises(BadParameter, match="no checkout of MQSim"):
        mqsim.built(checkout, build)
    (checkout / "Makefile").write_text("MQSim: src/a\n\tcp src/a MQSim\n")
    with pytest.raises(MissingTool, match="cannot be built"):
        mqsim.built(checkout, build)


@pytest.mark.builds
def test_it_is_built_elsewhere(tmp_path: Path) -> None:
    checkout, build = tmp_path / "checkout", tmp_path / "build"
    build.mkdir()
    (checkout / "src").mkdir(parents=True)
    (checkout / "src" / "a").write_text("")
    (checkout / "Makefile").write_text("MQSim: src/a\n\tcp src/a MQSim\n")
    assert mqsim.built(checkout, build) == build / "MQSim"
    assert not (checkout / "MQSim").exists()


def test_without_a_checkout_the_figures_say_so() -> None:
    speed, memory = beside_mqsim(find_project().profiles, None)
    assert speed.holds is memory.holds is None
    assert "--beside mqsim=FOLDER" in speed.missing


def test_an_unknown_program_is_refused() -> None:
    with pytest.raises(UnknownName, match="mqsim"):
        benchmarks.run(find_project(), "device_models", Console(), {"mqsmi": Path()})
