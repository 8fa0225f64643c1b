"""MQSim, another simulator of flash drives, beside our model: the same job, one after the other.

Tavakkol et al., "MQSim: a framework for enabling realistic studies of modern multi-queue SSD
devices", FAST 2018. It is built from a checkout that a user names, in a folder of its own, and
nothing of it is part of this project: what its files must be called is its own format.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from harness.errors import BadParameter, HarnessError, MissingTool
from harness.system.programs import find_program, last_words

_BUILD_LIMIT_S: Final = 1800
_NS_PER_US: Final = 1000
_CONDITIONED: Final = "Finished preconditioning"
_ENDED: Final = "Simulation complete"
_PROGRAMS: Final = re.compile(r'Issued_Flash_Program_CMD="(\d+)"')
_SERVICED: Final = re.compile(r"requests serviced:\s*(\d+)")

Tree = Mapping[str, "str | int | float | Tree"]
"""An XML element's children by tag."""


@dataclass(frozen=True)
class SimulatedDrive:
    """A drive and a job that both simulators can be given: uniform random writes of whole pages.

    `spare_ratio` is of the physical space. `free_blocks` are held free on each die: MQSim takes no
    write while fewer than ten are, and needs two more to notice in time. `filled_ratio`: so much of
    the logical space holds data, and is written.
    """

    channels: int = 8
    dies_per_channel: int = 4
    blocks_per_die: int = 256
    pages_per_block: int = 256
    page_bytes: int = 8192
    spare_ratio: float = 0.12
    free_blocks: int = 12
    filled_ratio: float = 0.9
    buffer_bytes: int = 256 << 20
    depth: int = 16
    read_us: int = 75
    program_us: int = 750
    erase_us: int = 3800
    channel_mb_per_s: int = 333
    link_gb_per_s: int = 4

    @property
    def physical_bytes(self) -> int:
        """All cells."""
        blocks = self.channels * self.dies_per_channel * self.blocks_per_die
        return blocks * self.pages_per_block * self.page_bytes

    @property
    def logical_bytes(self) -> int:
        """What the host sees, in whole pages."""
        kept = int(self.physical_bytes * (1 - self.spare_ratio))
        return kept // self.page_bytes * self.page_bytes

    @property
    def written_bytes(self) -> int:
        """The part of it that holds data, in whole pages."""
        return int(self.logical_bytes * self.filled_ratio) // self.page_bytes * self.page_bytes


@dataclass(frozen=True)
class Speed:
    """What a simulator did: requests per second of processor time, without its preconditioning;
    the most memory of its process; pages programmed per page written.
    """

    requests_per_s: float
    peak_bytes: int
    waf: float


def built(checkout: Path, folder: Path) -> Path:
    """Builds MQSim of a checkout in an empty folder, as its makefile does; returns the program.

    Raises BadParameter for a folder that is no checkout of it, MissingTool with the reason.
    """
    if not (checkout / "Makefile").is_file() or not (checkout / "src").is_dir():
        raise BadParameter(f"{checkout}: no checkout of MQSim; it has a Makefile and src")
    shutil.copy(checkout / "Makefile", folder)
    shutil.copytree(checkout / "src", folder / "src")
    done = subprocess.run(
        [find_program("make"), "-C", str(folder), "-j", str(os.cpu_count() or 1)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_BUILD_LIMIT_S,
        check=False,
    )
    program = folder / "MQSim"
    if done.returncode or not program.is_file():
        raise MissingTool(f"MQSim cannot be built: {last_words(done)}")
    return program


def drive_xml(drive: SimulatedDrive) -> str:
    """The drive as MQSim reads it. What is not named has MQSim's own value."""
    bits = ("LSB", "CSB", "MSB")
    cells: dict[str, str | int] = {
        "Flash_Technology": "MLC",
        "CMD_Suspension_Support": "NONE",
        **{f"Page_Read_Latency_{bit}": drive.read_us * _NS_PER_US for bit in bits},
        **{f"Page_Program_Latency_{bit}": drive.program_us * _NS_PER_US for bit in bits},
        "Block_Erase_Latency": drive.erase_us * _NS_PER_US,
        "Die_No_Per_Chip": 1,
        "Plane_No_Per_Die": 1,
        "Block_No_Per_Plane": drive.blocks_per_die,
        "Page_No_Per_Block": drive.pages_per_block,
        "Page_Capacity": drive.page_bytes,
    }
    inside: dict[str, str | int | float | Tree] = {
        "Enabled_Preconditioning": "true",
        "HostInterface_Type": "NVME",
        "Caching_Mechanism": "ADVANCED",
        "Data_Cache_Capacity": drive.buffer_bytes,
        "Address_Mapping": "PAGE_LEVEL",
        "Ideal_Mapping_Table": "true",
        "Overprovisioning_Ratio": drive.spare_ratio,
        # A free block more than the number: it asks whether fewer are free.
        "GC_Exec_Threshold": (drive.free_blocks + 0.5) / drive.blocks_per_die,
        "GC_Block_Selection_Policy": "GREEDY",
        "Preemptible_GC_Enabled": "false",
        "Static_Wearleveling_Enabled": "false",
        "Flash_Channel_Count": drive.channels,
        "Channel_Transfer_Rate": drive.channel_mb_per_s,
        "Chip_No_Per_Channel": drive.dies_per_channel,
        "Flash_Parameter_Set": cells,
    }
    link = {"PCIe_Lane_Bandwidth": drive.link_gb_per_s / 4, "PCIe_Lane_Count": 4}
    parts: Tree = {"Host_Parameter_Set": link, "Device_Parameter_Set": inside}
    return _xml({"Execution_Parameter_Set": parts})


def job_xml(drive: SimulatedDrive, requests: int, seed: int) -> str:
    """The job as MQSim reads it."""
    flow: Tree = {
        "Priority_Class": "HIGH",
        "Device_Level_Data_Caching_Mode": "WRITE_CACHE",
        "Channel_IDs": _numbers(drive.channels),
        "Chip_IDs": _numbers(drive.dies_per_channel),
        "Die_IDs": 0,
        "Plane_IDs": 0,
        "Initial_Occupancy_Percentage": round(100 * drive.filled_ratio),
        "Working_Set_Percentage": 100,
        "Synthetic_Generator_Type": "QUEUE_DEPTH",
        "Read_Percentage": 0,
        "Address_Distribution": "RANDOM_UNIFORM",
        "Percentage_of_Hot_Region": 0,
        "Generated_Aligned_Addresses": "true",
        "Address_Alignment_Unit": drive.page_bytes // 512,
        "Request_Size_Distribution": "FIXED",
        "Average_Request_Size": drive.page_bytes // 512,
        "Variance_Request_Size": 0,
        "Seed": seed,
        "Average_No_of_Reqs_in_Queue": drive.depth,
        "Bandwidth": 1 << 20,
        "Stop_Time": 0,  # by the number of requests instead
        "Total_Requests_To_Generate": requests,
    }
    scenario: Tree = {"IO_Flow_Parameter_Set_Synthetic": flow}
    return _xml({"MQSim_IO_Scenarios": {"IO_Scenario": scenario}})


def run(program: Path, drive: SimulatedDrive, folder: Path, requests: int, seed: int) -> Speed:
    """Runs MQSim on the job, with its files in a folder. Raises HarnessError.

    It waits for a key when it is done: until then its process can be asked for its figures.
    """
    files = {"drive": folder / "drive.xml", "job": folder / "job.xml"}
    files["drive"].write_text(drive_xml(drive))
    files["job"].write_text(job_xml(drive, requests, seed))
    command = [str(program), "-i", str(files["drive"]), "-w", str(files["job"])]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            conditioned_s, said = None, ""
            for line in _until_ended(process.stdout):
                said += line
                if _CONDITIONED in line:
                    conditioned_s = _processor_s(process.pid)
            if conditioned_s is None or _ENDED not in said:
                raise HarnessError(f"MQSim: {(said.strip().splitlines() or ['said nothing'])[-1]}")
            used_s = _processor_s(process.pid) - conditioned_s
            peak = _peak_bytes(process.pid)
            process.stdin.write("\n")
            process.stdin.close()
        except BaseException:
            process.kill()
            raise
    serviced = _SERVICED.search(said)
    if serviced is None or int(serviced[1]) < requests:
        raise HarnessError(f"MQSim: served {serviced[1] if serviced else 0} of {requests} requests")
    programs = _PROGRAMS.search((folder / "job_scenario_1.xml").read_text())
    return Speed(requests / used_s, peak, int(programs[1]) / requests if programs else 0.0)


def _until_ended(output: IO[str]) -> Iterator[str]:
    for line in output:
        yield line
        if _ENDED in line:
            return


def _xml(tree: Tree) -> str:
    return "".join(
        f"<{tag}>{_xml(inner) if isinstance(inner, Mapping) else inner}</{tag}>\n"
        for tag, inner in tree.items()
    )


def _numbers(count: int) -> str:
    return ",".join(str(number) for number in range(count))


def _processor_s(pid: int) -> float:
    """Processor time of a process, its own and the kernel's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_bytes(pid: int) -> int:
    """The most memory that it had. Not wait4's: that counts who started it, too."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024
