"""ext4's journal in a stream of its own: placed, counted apart, saved, safe under power cuts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REPOSITORY, need
from live_world import eventually, fsync_files_until_the_cut, new_name, remove_all, small

from harness.benchmarks import live_data
from harness.devices.live import LiveDevice, created
from harness.devices.model import Device
from harness.devices.profiles import NamedRange, SsdProfile
from harness.devices.write_shares import REST, Sampler, Share, Writes, series, since
from harness.errors import BadParameter, TargetError
from harness.probes import bpftrace, places
from harness.probes.recorder import Recorder
from harness.system import filesystems, mounts
from harness.system.ext4_spec import Ext4Spec
from harness.tiers.base import DATA_OFFSET_BYTES, DeviceRequest
from harness.tiers.emulated import EmulatedBench
from harness.tiers.hardware import HardwareBench
from harness.tiers.simulated import SimulatedBench
from harness.workloads import fio
from harness.workloads.ageing import Ageing

PROFILES = REPOSITORY / "hardware" / "profiles"
MIB = 1 << 20
STREAMS = {"streams": "2", "placement": "range", "gc_placement": "by_stream"}
COUNTED = {**STREAMS, "placement": "none"}
Command = Callable[..., subprocess.CompletedProcess[str]]
SSD = {"ssd": "crucial_mx500_250gb"}

servers = pytest.mark.servers
root = pytest.mark.root


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    remove_all()


def needs_live_devices() -> None:
    if not Path("/dev/fuse").exists() or not Path("/dev/loop-control").exists():
        pytest.skip("needs FUSE and loop devices")
    for program in ("losetup", "setsid", "mke2fs", "debugfs"):
        need(program)


def journal_of(device: Path) -> list[NamedRange]:
    return [NamedRange("journal", b, e, 1) for b, e in filesystems.journal_extents(device)]


def rewrite(folder: Path, rounds: int) -> None:
    """Files that are overwritten again and again, each time durably."""
    chance = np.random.default_rng(7)
    for number in range(rounds):
        with (folder / str(chance.integers(40))).open("wb") as file:
            file.write(chance.bytes(64 << 10))
            file.flush()
            if number % 4 == 3:
                os.fsync(file.fileno())


def told(device: LiveDevice) -> Writes:
    found = device.writes()
    assert found is not None
    return found


# --- the device under test


@servers
@root
@pytest.mark.parametrize("overrides", [STREAMS, COUNTED], ids=["range", "none"])
def test_the_journals_bytes_are_the_traces_and_the_devices(
    tmp_path: Path, overrides: dict[str, str]
) -> None:
    """With placement `none` the same is counted, on the same drive."""
    needs_live_devices()
    bpftrace.program()
    trace = tmp_path / "block.parquet"
    with (
        EmulatedBench(PROFILES, SSD, slowdown=1) as bench,
        bench.open_device(
            DeviceRequest(device="ssd", overrides=overrides, size_bytes=256 * MIB)
        ) as device,
    ):
        device.age(Ageing(region_bytes=192 * MIB, written_bytes=256 * MIB, block_bytes=16384))
        with device.filesystem(Ext4Spec(journal_mode="journal", journal_bytes=8 * MIB)) as folder:
            journal = journal_of(filesystems.device_of(folder))
            device.streams(journal)
            device.begin()
            with (
                Recorder(filesystems.device_of(folder), trace, device_counters=device.counted),
                Sampler(device.writes, 0.05) as sampler,
            ):
                rewrite(folder, 400)
                mounts.sync(folder)
            first, last = sampler.samples[0], sampler.samples[-1]
            shares = since(last.shares, first.shares)
            whole = {n: v - first.counters[n] for n, v in last.counters.items()}
    ranges = {"journal": [(r.begin_bytes, r.end_bytes) for r in journal]}
    written = places.by_place(trace, ranges).query("op == 'write'").set_index("place").bytes
    assert written["journal"] > 20 * MIB
    assert written[REST] > 4 * MIB
    assert shares["journal"].written_bytes == written["journal"]
    assert shares[REST].written_bytes == written[REST]
    both = shares["journal"] + shares[REST]
    assert both.programmed_bytes + whole["nand_folded_bytes"] == whole["nand_write_bytes"]
    assert both.copied_bytes == whole["nand_copied_bytes"] > 0
    found = series(sampler.samples)
    assert found["waf_journal_written_bytes"][-1] == shares["journal"].written_bytes
    for name in ("waf_time_s", "waf_written_bytes", "waf_journal_programmed_bytes"):
        assert found[name] == sorted(found[name])
    assert found["waf_time_s"][-1] > found["waf_time_s"][0]
    density = places.accesses_per_lba(trace, ranges, 256 * MIB).set_index("place")
    assert density.writes_per_lba["journal"] > density.writes_per_lba[REST]


def model_of(state: Path, device: SsdProfile) -> Device:
    """The model as a stopped device has left it."""
    model = Device(device)
    model.restore(state.read_bytes().partition(b"\n")[2])
    return model


def blocks_of(model: Device, ranges: list[NamedRange]) -> tuple[set[int], set[int]]:
    """Erase blocks that hold pages of these ranges, and of all else."""
    assert isinstance(model.profile, SsdProfile)
    p = model.profile.parameters
    slots = p.page.value // p.map_unit.value * p.planes.value * p.pages_per_block.value
    blocks = model.mapping() // slots
    inside = np.zeros(len(blocks), dtype=bool)
    for each in ranges:
        unit = p.map_unit.value
        inside[each.begin_bytes // unit : each.end_bytes // unit] = True
    held = model.mapping() >= 0
    return set(blocks[inside & held]), set(blocks[~inside & held])


@contextmanager
def mounted_alone(device: LiveDevice, mount: Path) -> Iterator[Path]:
    """As whoever wants the device's state has it: a test beside this one that has a namespace of
    its own keeps a copy of each mount, until it ends.
    """
    with live_data.mounted(device.path, mount, "-o", "data=journal") as folder:
        yield folder
    eventually(lambda: not mounts.users_elsewhere(device.path), limit_s=120)


@servers
@root
@pytest.mark.parametrize("overrides", [STREAMS, COUNTED], ids=["range", "none"])
def test_the_journal_is_in_blocks_of_its_own(tmp_path: Path, overrides: dict[str, str]) -> None:
    """Only with placement `range`, and also after a stop, which keeps the ranges."""
    needs_live_devices()
    state, store = tmp_path / "state", tmp_path / "store"
    spec = small(overrides=overrides, state=state, store=str(store), thin=True)
    profile = spec.device_profile()
    assert isinstance(profile, SsdProfile)
    with created(spec, new_name()) as device:
        device.set_speed("virtual")
        filesystems.make(device.path, Ext4Spec(journal_bytes=8 * MIB))
        journal = journal_of(device.path)
        device.set_ranges(journal)
        with mounted_alone(device, tmp_path / "mount") as folder:
            rewrite(folder, 400)
        before = device.stats()
    assert before["ranges"] == [vars(each) for each in journal]
    assert before["shares"]["journal"]["host_bytes"] > 2 * 8 * MIB, "it came round"
    model = model_of(state, profile)
    assert model.ranges == tuple(journal)
    inside, outside = blocks_of(model, journal)
    assert inside
    assert bool(inside & outside) == (overrides is COUNTED)
    with created(spec, new_name()) as device:
        assert device.stats()["ranges"] == before["ranges"]
        device.set_speed("virtual")
        with mounted_alone(device, tmp_path / "mount") as folder:
            rewrite(folder, 100)
            mounts.sync(folder)
            shares = told(device).shares
    assert shares["journal"].written_bytes > 4 * MIB
    inside, outside = blocks_of(model_of(state, profile), journal)
    assert bool(inside & outside) == (overrides is COUNTED)


@servers
@root
def test_data_in_the_journal_survives_power_cuts(tmp_path: Path) -> None:
    needs_live_devices()
    need("e2fsck")
    mount = tmp_path / "mount"
    with created(small(overrides=STREAMS), new_name()) as device:
        device.set_speed("real", 1)
        filesystems.make(device.path, Ext4Spec(journal_bytes=8 * MIB))
        device.set_ranges(journal_of(device.path))
        for cut in range(2):
            with live_data.mounted(device.path, mount, "-o", "data=journal"):
                synced = fsync_files_until_the_cut(device, mount / f"cut{cut}", 20 + cut)
            device.power_on()
            assert len(synced) > 0
            with live_data.mounted(device.path, mount, "-o", "data=journal"):
                for name, content in synced.items():
                    assert (mount / f"cut{cut}" / name).read_bytes() == content
            assert live_data.check_file_system(device.path, "ext4") == ""
        assert device.stats()["shares"]["journal"]["host_bytes"] > 0


# --- ageing


@contextmanager
def unused(**values: Any) -> Iterator[LiveDevice]:
    needs_live_devices()
    need("fio")
    with created(small(**values), new_name()) as device:
        yield device


OVERWRITES: dict[str, str | int] = {
    "rw": "randwrite", "bs": "16k", "size": "200m", "io_size": "400m", "direct": 1,
    "ioengine": "libaio", "iodepth": 32, "randseed": 1, "thread": 1,
}  # fmt: skip


@servers
@root
def test_only_a_model_that_is_told_ages() -> None:
    """At speed none all that was written was written once; at speed virtual nothing is missed."""
    with unused() as device:
        fio.run(device.path, OVERWRITES)
        device.set_speed("virtual")  # the model hears of it now
        device.reset()
        found = device.stats()["device"]
        assert found["nand_host_bytes"] == found["nand_copied_bytes"] == 0
        fio.run(device.path, OVERWRITES)
        stats = device.stats()
    found = stats["device"]
    assert found["write_bytes"] == 400 * MIB
    assert found["nand_host_bytes"] + found["coalesced_bytes"] == 400 * MIB
    assert found["nand_copied_bytes"] > 0
    assert stats["live"]["unpaced_replies"] == sum(
        stats["live"][f"{op}_replies"] for op in ("read", "write", "trim", "flush")
    )


@servers
@root
def test_an_aged_device_writes_more_for_the_same_and_takes_no_memory() -> None:
    needs_live_devices()
    need("fio")
    ageing = Ageing(region_bytes=248 * MIB, written_bytes=496 * MIB, block_bytes=16384, seed=3)
    with (
        EmulatedBench(PROFILES, SSD, slowdown=1) as bench,
        bench.open_device(DeviceRequest(device="ssd", size_bytes=256 * MIB)) as device,
    ):
        block_device = device._device
        new = waf_of_overwrites(block_device)
        device.age(ageing)
        with block_device.path.open("rb") as disk:
            assert not any(disk.read(MIB)), "what fio wrote has been given back"
        aged = waf_of_overwrites(block_device)
        with pytest.raises(BadParameter, match="choose a smaller region"):
            device.age(replace(ageing, region_bytes=512 * MIB))
    assert new == pytest.approx(1.0, abs=0.05)
    assert aged > 1.2


def waf_of_overwrites(device: LiveDevice) -> float:
    device.set_speed("virtual")
    device.reset()
    fio.run(device.path, {**OVERWRITES, "io_size": "50m"})
    found = told(device).shares[REST].waf
    device.set_speed("none")
    return found


@servers
@root
def test_a_disk_neither_ages_nor_has_ranges() -> None:
    with unused(profile="seagate_250gb") as device:
        with pytest.raises(TargetError, match="speed virtual: is for flash drives"):
            device.set_speed("virtual")
        with pytest.raises(TargetError, match="hard disk: it has no flash"):
            device.set_ranges([])
        assert device.writes() is None
        assert device.stats()["shares"] == {}


# --- ranges from outside


@servers
@root
def test_ranges_that_cannot_be_are_refused_and_counts_go_on() -> None:
    with unused(overrides=STREAMS) as device:
        device.set_speed("virtual")
        fio.run(device.path, {**OVERWRITES, "io_size": "10m"})
        device.set_ranges([NamedRange("a", 0, MIB, 1)])
        kept = device.stats()
        for bad, said in (
            (NamedRange("b", 0, 100), "range b: must begin and end at a multiple of 512"),
            (NamedRange("b", 0, 512), "range b: must begin and end at a multiple of map_unit"),
            (NamedRange("b", 0, MIB, 2), "range b: the drive has streams 0 to 1, not 2"),
            (NamedRange("b", 0, 1 << 40), "lie on the device"),
            (NamedRange("b", -MIB, 0), "range b"),
        ):
            with pytest.raises(TargetError, match=said):
                device.set_ranges([bad])
        assert device.stats()["ranges"] == kept["ranges"]
        assert device.stats()["shares"] == kept["shares"]
        assert kept["shares"]["a"] == vars(Share())
        assert kept["shares"][REST]["host_bytes"] == kept["device"]["nand_host_bytes"]
        fio.run(device.path, {"rw": "write", "bs": "64k", "size": "1m", "direct": 1, "thread": 1})
        found = told(device)
        assert found.shares["a"].written_bytes == MIB
        assert found.counters["write_bytes"] == 11 * MIB
        assert sum(s.written_bytes for s in found.shares.values()) == 11 * MIB
        device.reset()
        device.set_ranges([NamedRange("a", MIB, 2 * MIB, 1)])  # of the same name, elsewhere
        assert device.stats()["shares"] == {"a": vars(Share()), REST: vars(Share())}


@servers
@root
def test_ranges_from_the_command_line(harness_here: Command) -> None:
    with unused(overrides=STREAMS) as device:
        done = harness_here("device", "ranges", device.name, "journal=1:8M-16M", "redo=16M-20M")
        assert done.returncode == 0, done.stderr
        assert device.stats()["ranges"] == [
            vars(NamedRange("journal", 8 * MIB, 16 * MIB, 1)),
            vars(NamedRange("redo", 16 * MIB, 20 * MIB, 0)),
        ]
        refused = harness_here("device", "ranges", device.name, "8M-16M")
        assert refused.returncode == 2
        assert "write it as NAME=[STREAM:]BEGIN-END" in refused.stderr


# --- the other tiers


def test_a_simulated_drive_has_ranges_but_neither_fio_nor_ext4() -> None:
    devices = {"ssd": "crucial_mx500_250gb", "hdd": "seagate_250gb"}
    with SimulatedBench(PROFILES, devices, "athlon_2010") as bench:
        with bench.open_device(DeviceRequest(device="ssd", overrides=STREAMS)) as device:
            device.streams([NamedRange("journal", 0, MIB, 1)])
            found = device.writes()
            assert found is not None
            assert found.shares == {"journal": Share(), REST: Share()}
            with pytest.raises(BadParameter, match="streams 0 to 1"):
                device.streams([NamedRange("journal", 0, MIB, 2)])
            with pytest.raises(TargetError, match="fio cannot write to a simulated device"):
                device.age(Ageing(region_bytes=MIB, written_bytes=MIB))
        with bench.open_device(DeviceRequest(device="hdd")) as device:
            assert device.writes() is None
            with pytest.raises(BadParameter, match="hard disk"):
                device.streams([])


def test_a_models_ranges_can_be_changed_and_are_saved() -> None:
    profile = small(overrides=STREAMS).device_profile()
    model, other = Device(profile), Device(profile)
    model.set_ranges([NamedRange("journal", 0, MIB, 1), NamedRange("redo", MIB, 2 * MIB)])
    other.restore(model.save())
    assert other.ranges == model.ranges == (
        NamedRange("journal", 0, MIB, 1), NamedRange("redo", MIB, 2 * MIB),
    )  # fmt: skip
    assert list(other.shares().query("kind == 'range'").name) == ["journal", "redo", "(rest)"]
    with pytest.raises(BadParameter, match="be disjoint"):
        other.set_ranges([NamedRange("a", 0, 2 * MIB), NamedRange("b", MIB, 3 * MIB)])


@servers
@root
def test_a_real_target_ages_behind_its_header_and_says_who_places_writes(tmp_path: Path) -> None:
    need("fio")
    target = tmp_path / "scratch"
    with HardwareBench(target) as bench:
        bench.reserve({"file": 16 * MIB})
        with bench.open_device(DeviceRequest(device="file", needed_bytes=16 * MIB)) as device:
            header = target.read_bytes()[:DATA_OFFSET_BYTES]
            device.age(Ageing(region_bytes=4 * MIB, written_bytes=8 * MIB))
            assert target.read_bytes()[:DATA_OFFSET_BYTES] == header
            begin = DATA_OFFSET_BYTES
            assert any(target.read_bytes()[begin : begin + 4096])
            assert not any(target.read_bytes()[begin + 4 * MIB : begin + 5 * MIB])
            device.streams([])
            with pytest.raises(TargetError, match=r"hardware/msdj/ .* JBD2"):
                device.streams([NamedRange("journal", 0, MIB, 1)])
            assert device.writes() is None
