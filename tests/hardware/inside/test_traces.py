"""Block traces of a drive with a queue for each processor."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hardware.drives import STANDARD, Nvme, Sata
from harness.probes.recorder import Recorder

[NVME] = [drive for drive in STANDARD if isinstance(drive, Nvme)]
SATA = [drive for drive in STANDARD if isinstance(drive, Sata)]
PLACES = ("--direct=1", "--size=64k", "--offset_increment=64k")
SIZES = {
    "one size": ("--rw=randwrite", "--bs=8k"),
    "many sizes": ("--rw=randrw", "--bsrange=4k-32k", "--blockalign=4k"),
}
AGAIN = ("--norandommap", "--io_size=40000k")
WRITERS = 4
WRITES = 300
JOB = ("--name=x", "--direct=1", "--rw=randwrite", "--bs=4k", "--size=16m", "--fsync=1")


@pytest.mark.parametrize("script", ["block_io", "io_histograms"])
def test_flushes_of_several_queues_at_once_are_all_there(script: str, tmp_path: Path) -> None:
    device = Path(f"/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{NVME.serial}").resolve(strict=True)
    assert len(list(Path("/sys/block", device.name, "mq").iterdir())) > 1
    writers = (f"--numjobs={WRITERS}", f"--number_ios={WRITES}", "--offset_increment=16m")
    with Recorder(device, tmp_path / "t.parquet", script) as probe:
        subprocess.run(["fio", *JOB, *writers, f"--filename={device}"], check=True)
    recording = probe.recording
    assert recording is not None
    assert recording.counters is not None
    assert recording.counters.flush_ios >= WRITES
    if script == "block_io":
        flushes = pq.read_table(tmp_path / "t.parquet").to_pandas().query("op == 'flush'")
        assert len(flushes) + recording.flushes_unseen == recording.counters.flush_ios
        assert flushes.latency_ns.isna().any(), "no two were under way at once"


@pytest.mark.parametrize("sizes", SIZES)
def test_few_places_written_again_and_again_lose_no_row(sizes: str, tmp_path: Path) -> None:
    """A slow processor is interrupted within a probe again and again: what it skips is told apart
    by its place, and so is the next one that it skips there, be it as large or not.
    """
    device = Path(f"/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{NVME.serial}").resolve(strict=True)
    writers = (f"--numjobs={WRITERS}", f"--filename={device}")
    with Recorder(device, tmp_path / "t.parquet", "block_io") as probe:
        subprocess.run(["fio", "--name=x", *PLACES, *SIZES[sizes], *AGAIN, *writers], check=True)
    recording = probe.recording
    assert recording is not None
    assert recording.counters is not None
    rows = pq.read_table(tmp_path / "t.parquet").to_pandas()
    assert len(rows) >= WRITERS * 1250
    assert rows.latency_ns.isna().any(), "no end or issue was skipped: nothing was tried"


@pytest.mark.parametrize("script", ["block_io", "io_histograms"])
def test_questions_for_a_drives_wear_are_no_requests(script: str, tmp_path: Path) -> None:
    """They go the way of block requests, to no place, and the kernel counts none of them."""
    model = SATA[0].model.replace(" ", "_")
    device = Path(f"/dev/disk/by-id/ata-{model}_{SATA[0].serial}").resolve(strict=True)
    job = ("--name=x", "--direct=1", "--rw=randwrite", "--bs=4k", "--size=1m")
    with Recorder(device, tmp_path / "t.parquet", script) as probe:
        for _ in range(3):
            subprocess.run(["fio", *job, f"--filename={device}"], check=True)
            subprocess.run(["smartctl", "--json", "--attributes", device], check=False)
    recording = probe.recording
    assert recording is not None
    assert recording.counters is not None
    assert recording.counters.write_ios == 3 * 256
    if script == "block_io":
        rows = pq.read_table(tmp_path / "t.parquet").to_pandas()
        assert set(rows.op) <= {"write", "read", "flush"}
