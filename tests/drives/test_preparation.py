"""Preparing a drive: what it offers, the plan of it, and the real programs on loop devices."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import wear_samples as samples
from conftest import cleaning_alone, loop_device, need
from hypothesis import given
from hypothesis import strategies as st

from harness.drives import capabilities, conditions, nvme_pages, preparation
from harness.drives.capabilities import Capabilities
from harness.drives.preparation import Pace, Way, choose, precondition, ways
from harness.drives.targets import Step
from harness.errors import DeviceError, MissingTool, TargetError, UnknownName
from harness.runs import cleaning
from harness.system import leases
from harness.workloads import ageing
from harness.workloads.ageing import Ageing

MIB = 1 << 20
DRIVE = Path("/dev/nvme7n1")


@dataclass
class Permitted:
    """A target that lets so many bytes be written, and notes what it was asked for."""

    path: Path
    size_bytes: int
    budget_bytes: int = 1 << 60
    asked: list[tuple[str, int]] = field(default_factory=list)

    def permit(self, step: str, written_bytes: int) -> None:
        self.asked.append((step, written_bytes))
        self.budget_bytes -= written_bytes
        if self.budget_bytes < 0:
            raise TargetError("the write budget is used up")


TARGET = Permitted(Path("/dev/nvme7n1p1"), 480 * 10**9)


def sample(name: str) -> str:
    return (samples.FOLDER / name).read_text()


# --- what a drive offers


def controller(**changed: int) -> dict[str, Any]:
    return samples.identify_controller(**changed)


def test_the_capabilities_of_an_nvme_drive() -> None:
    capable = capabilities.of_nvme(json.loads(sample("nvme_id_ctrl.json")), 1, True)
    assert capable == Capabilities(
        discard=True,
        format_user_data=True,
        format_crypto=True,
        sanitize_block=True,
        sanitize_crypto=True,
    )


@pytest.mark.parametrize(
    ("field_", "bit", "expected"),
    [
        ("oacs", 0b10, {"format_user_data"}),
        ("sanicap", 0b001, {"sanitize_crypto"}),
        ("sanicap", 0b010, {"sanitize_block"}),
        ("sanicap", 0b100, {"sanitize_overwrite"}),
        ("fna", 0b001, {"formats_all"}),
        ("fna", 0b010, {"formats_all"}),
        ("fna", 0b100, set()),  # crypto erase is part of a format, which is not there
    ],
)
def test_every_bit_has_its_meaning(field_: str, bit: int, expected: set[str]) -> None:
    nothing = {"oacs": 0, "fna": 0, "sanicap": 0}
    capable = capabilities.of_nvme(controller(**{**nothing, field_: bit}), 1, False)
    assert {name for name, value in vars(capable).items() if value is True} == expected


def sanitize_page(state: int, progress: int = 0, *times: int) -> bytes:
    """NVM Express Base 2.0c, 5.16.1.25 (81h): five overwrite passes done, data erased."""
    places = [(8 + 4 * i, 4, time) for i, time in enumerate(times)]
    return samples.page(512, (0, 2, progress), (2, 2, 0x0100 | 5 << 3 | state), *places)


def test_the_sanitize_page() -> None:
    status = nvme_pages.parse_sanitize(sanitize_page(2, 0x8000, 3600, 0xFFFF_FFFF, 2))
    assert status.state == nvme_pages.SANITIZING
    assert status.done_ratio == 0.5
    assert (status.overwrite_s, status.block_erase_s, status.crypto_erase_s) == (3600, None, 2)
    capable = capabilities.of_nvme(controller(), 1, False, status)
    assert (capable.sanitize_block_s, capable.sanitize_crypto_s) == (None, 2)
    for page in (b"\xff" * 512, bytes(511)):
        with pytest.raises(DeviceError):
            nvme_pages.parse_sanitize(page)


def test_the_capabilities_of_a_sata_drive() -> None:
    ready = capabilities.of_sata(sample("hdparm_ready.txt"), True)
    assert ready == Capabilities(
        discard=True,
        security=True,
        security_enhanced=True,
        security_erase_s=120,
        security_enhanced_s=480,
    )
    frozen = capabilities.of_sata(sample("hdparm_frozen.txt"), True)
    assert frozen == replace(ready, security_frozen=True)
    locked = capabilities.of_sata(sample("hdparm_locked.txt"), True)
    assert locked == replace(ready, security_enabled=True, security_locked=True)
    without = capabilities.of_sata(sample("hdparm_without_security.txt"), False)
    assert not without.security


def test_a_drive_of_which_it_cannot_be_told_counts_as_frozen() -> None:
    text = sample("hdparm_ready.txt").replace("\tnot\tfrozen\n", "")
    assert capabilities.of_sata(text, False).security_frozen


def test_another_section_with_these_words_is_not_that_of_security() -> None:
    other = "Device Sleep:\n\t\tsupported\n\t\tfrozen\n"
    without = capabilities.of_sata(sample("hdparm_without_security.txt") + other, False)
    assert not without.security
    ready = sample("hdparm_ready.txt")
    assert capabilities.of_sata(ready + other, False) == capabilities.of_sata(ready, False)


def test_what_is_no_ata_device() -> None:
    with pytest.raises(DeviceError, match="no ATA device"):
        capabilities.of_sata("\n/dev/sdx:\n", False)


# --- the plan


def offered(capable: Capabilities) -> dict[str, Way]:
    return {way.name: way for way in ways(DRIVE, TARGET, capable)}


ALL = Capabilities(
    discard=True,
    format_user_data=True,
    format_crypto=True,
    sanitize_block=True,
    sanitize_crypto=True,
    sanitize_overwrite=True,
    security=True,
    security_enhanced=True,
)


def test_the_commands() -> None:
    commands = {
        name: [" ".join(step.command) for step in way.steps] for name, way in offered(ALL).items()
    }
    fio = commands.pop("overwrite")
    assert commands == {
        "format": ["nvme format /dev/nvme7n1 --ses=1 --force --timeout=3600000"],
        "format_crypto": ["nvme format /dev/nvme7n1 --ses=2 --force --timeout=3600000"],
        "sanitize_block": ["nvme sanitize /dev/nvme7n1 --sanact=2"],
        "sanitize_crypto": ["nvme sanitize /dev/nvme7n1 --sanact=4"],
        "sanitize_overwrite": ["nvme sanitize /dev/nvme7n1 --sanact=3 --owpass=1"],
        "secure_erase": [
            "hdparm --user-master u --security-set-pass flashlab /dev/nvme7n1",
            "hdparm --user-master u --security-erase flashlab /dev/nvme7n1",
        ],
        "secure_erase_enhanced": [
            "hdparm --user-master u --security-set-pass flashlab /dev/nvme7n1",
            "hdparm --user-master u --security-erase-enhanced flashlab /dev/nvme7n1",
        ],
        "discard": ["blkdiscard /dev/nvme7n1p1"],
    }
    assert "--filename=/dev/nvme7n1p1" in fio[0]
    assert "--rw=write" in fio[0]


def test_what_goes_beyond_the_target_is_marked() -> None:
    found = offered(ALL)
    inside = {name for name, way in found.items() if not way.whole_drive}
    assert inside == {"discard", "overwrite"}
    for way in found.values():
        paths = {arg for step in way.steps for arg in step.command if "/dev/" in arg}
        assert all((str(TARGET.path) in path) != way.whole_drive for path in paths)


def test_nothing_is_offered_that_the_drive_lacks() -> None:
    found = offered(Capabilities())
    assert {name for name, way in found.items() if not way.refused} == {"overwrite"}
    assert all(way.refused for way in found.values() if not way.steps)
    assert "discard_max_bytes" in found["discard"].refused


def test_a_frozen_drive_is_not_erased_and_says_why() -> None:
    capable = capabilities.of_sata(sample("hdparm_frozen.txt"), True)
    found = offered(capable)
    for name in ("secure_erase", "secure_erase_enhanced"):
        assert not found[name].steps
        assert "frozen until it loses power" in found[name].refused
    assert choose(found.values()).name == "discard"
    with pytest.raises(DeviceError, match="frozen"):
        choose(found.values(), "secure_erase")


BY_ID = Path("/dev/disk/by-id/ata-DRIVE_SERIAL")
OF_PASSWORDS = {
    what: f"hdparm --user-master u --security-{what} flashlab" for what in ("unlock", "disable")
}


def test_a_drive_with_somebodys_password_is_left_alone() -> None:
    refused = offered(replace(ALL, security_enabled=True))["secure_erase"].refused
    assert "has a password already" in refused
    assert refused.endswith(f"take it off with {OF_PASSWORDS['disable']} {DRIVE}")
    assert OF_PASSWORDS["unlock"] not in refused


def test_a_locked_drive_has_to_be_unlocked_first() -> None:
    """It would abort the command that takes the password off. Its node is another one by then."""
    capable = capabilities.of_sata(sample("hdparm_locked.txt"), True)
    found = {way.name: way for way in ways(DRIVE, TARGET, capable, by_id=BY_ID)}
    unlock, disable = (f"{command} {BY_ID}" for command in OF_PASSWORDS.values())
    for name in ("secure_erase", "secure_erase_enhanced"):
        assert not found[name].steps
        assert "is locked by a password" in found[name].refused
        assert found[name].refused.endswith(f"first {unlock}, then {disable}")


@given(
    st.builds(
        Capabilities,
        **{name: st.booleans() for name in vars(ALL) if not name.endswith(("_s", "namespaces"))},
        namespaces=st.integers(2, 9),
    )
)
def test_other_namespaces_are_never_erased(capable: Capabilities) -> None:
    """Sanitize is for a whole drive, and so is format where FNA says so."""
    for name, way in offered(capable).items():
        if "sanitize" in name or ("format" in name and capable.formats_all):
            assert way.refused
            assert not way.steps


def test_format_of_one_namespace_leaves_the_others() -> None:
    assert offered(replace(ALL, namespaces=3))["format"].steps
    assert "all 3 namespaces" in offered(replace(ALL, namespaces=3))["sanitize_block"].refused


def test_times_are_the_drives_own_where_it_tells_them() -> None:
    told = replace(ALL, sanitize_block_s=7.0, security_erase_s=120.0)
    found = offered(told)
    assert found["sanitize_block"].steps[0].expected_s == 7
    assert found["secure_erase"].steps[1].expected_s == 120
    assert found["sanitize_crypto"].steps[0].expected_s == Pace().erase_s
    pace = Pace(sequential_bytes_per_s=480e6, discard_bytes_per_s=48e9)
    found = {way.name: way for way in ways(DRIVE, TARGET, told, pace)}
    assert found["discard"].steps[0].expected_s == 10
    assert found["overwrite"].steps[0].expected_s == pytest.approx(1000, rel=1e-3)


def test_an_unknown_way() -> None:
    with pytest.raises(UnknownName, match="did you mean sanitize_block"):
        choose(offered(ALL).values(), "sanitize_blok")
    assert choose(offered(ALL).values()).name == "format"


def test_preconditioning_is_planned_with_its_bytes() -> None:
    size = TARGET.size_bytes
    steps = precondition(TARGET, most_times=3)
    assert [round(step.written_bytes / size, 3) for step in steps] == [2, 1, 3]
    assert all(step.written_bytes <= n * size for step, n in zip(steps, (2, 1, 3), strict=True))
    assert "--loops=2" in steps[0].command
    assert "--rw=randwrite" in steps[1].command
    assert "--norandommap=1" not in steps[1].command
    assert "--norandommap=1" in steps[2].command
    assert f"--io_size={steps[2].written_bytes}" in steps[2].command
    assert "--steadystate=iops_slope:0.033333%" in steps[2].command


def test_no_step_names_a_size_twice() -> None:
    """fio takes the last of two options of a name, and then nobody reads the first."""
    aged_by = Ageing(region_bytes=MIB, written_bytes=2 * MIB)
    aged = preparation.fio_step("age", TARGET, ageing.job(aged_by), aged_by.written_bytes, 1.0)
    for step in [*precondition(TARGET), aged]:
        names = [argument.partition("=")[0] for argument in step.command]
        assert len(names) == len(set(names))
    assert f"--size={MIB}" in aged.command


# --- running it


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Permitted]:
    with loop_device(tmp_path, 16 * MIB) as device:
        yield Permitted(device, 16 * MIB)


def fill(target: Permitted) -> None:
    target.path.write_bytes(b"\x5a" * target.size_bytes)


@pytest.mark.root
def test_discarding(target: Permitted) -> None:
    need("blkdiscard")
    fill(target)
    capable = capabilities.read(target.path, "other")
    assert capable == Capabilities(discard=True)
    way = choose(ways(target.path, target, capable))
    assert way.name == "discard"
    preparation.erase(target, way)
    assert target.path.read_bytes() == bytes(target.size_bytes)
    assert target.asked == [("discard everything", 0)]


@pytest.mark.root
def test_what_somebody_has_taken_is_not_discarded(
    target: Permitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard holds the header of a drive, and not what lies behind it."""
    need("blkdiscard")
    monkeypatch.setattr(preparation, "_BUSY_PATIENCE_S", 0.0)
    fill(target)
    way = choose(ways(target.path, target, Capabilities(discard=True)))
    holder = os.open(target.path, os.O_RDONLY | os.O_EXCL)  # as whoever mounts it
    try:
        with pytest.raises(DeviceError, match="Device or resource busy"):
            preparation.erase(target, way)
    finally:
        os.close(holder)
    assert target.path.read_bytes() == b"\x5a" * target.size_bytes


@pytest.mark.root
def test_overwriting(target: Permitted) -> None:
    need("fio")
    fill(target)
    way = choose(ways(target.path, target, Capabilities()))
    preparation.erase(target, way)
    assert target.asked == [("overwrite everything", 16 * MIB)]
    content = target.path.read_bytes()
    blocks = {content[at : at + 4096] for at in range(0, len(content), 4096)}
    assert b"\x5a" * 4096 not in blocks
    assert bytes(4096) not in blocks


def written_by_fio(step: Step) -> tuple[int, float]:
    """A step's command as it stands, with a report: bytes and seconds."""
    command = [*step.command, "--output-format=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout[done.stdout.find("{") :])["jobs"][0]
    return report["write"]["io_bytes"], report["job_runtime"] / 1000


@pytest.mark.root
def test_preconditioning_writes_what_the_plan_says(target: Permitted) -> None:
    """The steps as they are planned, on a drive that is never steady by so strict a measure."""
    need("fio")
    for step in precondition(target, most_times=3, window_s=60, drift_ratio=1e-9):
        assert written_by_fio(step)[0] == step.written_bytes


@pytest.mark.root
def test_random_writes_end_when_the_rate_is_steady(target: Permitted) -> None:
    """By a lax measure and in a short window, long before they have written all they may."""
    need("fio")
    steady = precondition(target, most_times=100_000, window_s=2, drift_ratio=100.0)[-1]
    written, _ = written_by_fio(steady)
    assert target.size_bytes < written < steady.written_bytes // 2


@pytest.mark.root
def test_what_is_not_permitted_is_not_run(target: Permitted) -> None:
    fill(target)
    target.budget_bytes = 15 * MIB
    way = choose(ways(target.path, target, Capabilities()))
    with pytest.raises(TargetError, match="budget"):
        preparation.erase(target, way)
    with pytest.raises(TargetError, match="budget"):
        preparation.run(target, way.steps[0])
    assert target.path.read_bytes() == b"\x5a" * target.size_bytes


@pytest.mark.root
def test_a_step_that_fails_says_the_last_word_of_its_program(target: Permitted) -> None:
    elsewhere = replace(target, path=Path("/dev/null"))
    step = Step("discard elsewhere", ("blkdiscard", "--force", "/dev/null"), 0, 1.0)
    with pytest.raises(DeviceError, match="discard elsewhere failed: blkdiscard says:") as error:
        preparation.run(elsewhere, step)
    assert "/dev/null" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_program_that_is_missing() -> None:
    with pytest.raises(MissingTool, match="apt-get install no-such-eraser"):
        preparation.run(TARGET, Step("erase", ("no-such-eraser", str(TARGET.path)), 0, 1.0))


@pytest.mark.parametrize("path", ["/dev/nvme7n1", "/dev/nvme7n1p10", "/dev/nvme8n1p1"])
def test_a_step_that_was_made_for_another_device_is_refused(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drive may come back under another name, and another drive under its own."""
    monkeypatch.setattr(preparation, "_call", lambda *_: pytest.fail("it was run"))
    target = replace(TARGET, asked=[])
    planned = ways(DRIVE, replace(TARGET, path=Path(path)), Capabilities(discard=True))
    for way in planned[-2:]:
        with pytest.raises(TargetError, match=f"than {TARGET.path} .*plan again"):
            preparation.erase(target, way)
        with pytest.raises(TargetError, match=f"than {TARGET.path} .*plan again"):
            preparation.run(target, way.steps[0])
    assert target.asked == []


BUSY = "echo '/dev/x: BLKDISCARD ioctl failed: Device or resource busy' >&2"


@pytest.mark.parametrize(("refusals", "tries"), [(2, 3), (10**6, None)])
def test_a_drive_that_is_busy_is_asked_again_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int, tries: int | None
) -> None:
    monkeypatch.setattr(preparation, "_BUSY_PATIENCE_S", 1.0)
    monkeypatch.setattr(preparation, "_BUSY_LOOK_S", 0.01)
    asked = tmp_path / "asked"
    script = f"echo x >> {asked}; test $(wc -l < {asked}) -gt {refusals} || {{ {BUSY}; exit 1; }}"
    step = Step("discard", ("sh", "-c", script, str(TARGET.path)), 0, 1.0)
    if tries is None:
        with pytest.raises(DeviceError, match=r"^discard failed: sh says: .* busy$"):
            preparation.run(TARGET, step)
        assert len(asked.read_text().splitlines()) > 3
    else:
        preparation.run(TARGET, step)
        assert len(asked.read_text().splitlines()) == tries


@pytest.mark.root
def test_a_password_that_could_not_be_taken_off_is_told(target: Permitted) -> None:
    """The drive would be locked when it next has power, by a password that nobody knows of."""
    named = ("env", f"DRIVE={target.path}")
    steps = (Step("password", (*named, "true"), 0, 1.0), Step("erase", (*named, "false"), 0, 1.0))
    way = Way("secure_erase", steps, undo=("env", "false"))
    with pytest.raises(DeviceError, match=r"^erase failed: .* taken back: .*: run env false$"):
        preparation.erase(target, way)


def test_a_job_of_a_target_that_fio_takes_for_several_is_refused() -> None:
    with pytest.raises(TargetError, match="for several files"):
        preparation.precondition(replace(TARGET, path=Path("/dev/disk/by-path/pci-0000:00")))


@pytest.mark.root
def test_a_password_is_taken_off_if_the_erase_fails(target: Permitted, tmp_path: Path) -> None:
    """With programs that leave a trace, since no drive with passwords is here."""
    trace = tmp_path / "trace"
    named = ("env", f"DRIVE={target.path}")
    first = Step("password", (*named, "touch", str(trace)), 0, 1.0)
    second = Step("erase", (*named, "false"), 0, 1.0)
    way = Way("secure_erase", (first, second), undo=("env", "rm", str(trace)))
    with pytest.raises(DeviceError, match="erase failed"):
        preparation.erase(target, way)
    assert target.asked == [("password", 0), ("erase", 0)]
    assert not trace.exists()
    target.budget_bytes = -1
    refused = Way("secure_erase", (first, second), undo=("env", "touch", str(trace)))
    with pytest.raises(TargetError):
        preparation.erase(target, refused)
    assert not trace.exists(), "nothing had been done that could be undone"


@pytest.mark.parametrize(
    ("command", "dies"),
    [
        (("fio", f"--filename={TARGET.path}"), True),
        (("blkdiscard", str(TARGET.path)), True),
        (("nvme", "format", str(TARGET.path)), False),
        (("hdparm", "--security-erase", "flashlab", str(TARGET.path)), False),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_what_would_write_on_is_killed_with_us(
    command: tuple[str, ...], dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drive goes on with its own erase: nobody is there any more to hear how that ends."""
    started: list[tuple[str, bool]] = []

    def call(argv: list[str], *, dies_with_us: bool) -> subprocess.CompletedProcess[bytes]:
        started.append((argv[0], dies_with_us))
        return subprocess.CompletedProcess(argv, 0, b"", b"")

    monkeypatch.setattr(leases, "call", call)
    monkeypatch.setattr(preparation, "find_program", lambda name: f"/usr/sbin/{name}")
    preparation.run(replace(TARGET, asked=[]), Step("erase", command, 0, 1.0))
    assert started == [(f"/usr/sbin/{command[0]}", dies)]


CHILD = """
import sys
from pathlib import Path
from harness.drives import preparation
from harness.drives.targets import Step
class Target:
    path = Path("/dev/null")
    size_bytes = 0
    def permit(self, step, written_bytes):
        print("permitted", flush=True)
preparation.run(Target(), Step("wait", tuple(sys.argv[1:]), 0, 1.0))
"""
WAITING = {
    "a tool": ("env", "DRIVE=/dev/null", "sleep", "600.25"),
    "fio": (
        *("fio", "--name=wait-600.25", "--filename=/dev/null", "--ioengine=null", "--rw=write"),
        *("--size=1m", "--time_based", "--runtime=600", "--rate_iops=10", "--thread=1"),
    ),
}
"""Each is known by its 600.25."""


def waiting() -> list[int]:
    """Of the child's programs, those that run: no launcher, nor what kills them with the child."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        program = Path(os.fsdecode(words[0])).name
        if program in ("sleep", "fio") and any(b"600.25" in word for word in words):
            found.append(int(entry.parent.name))
    return found


@pytest.mark.root
@pytest.mark.parametrize("program", WAITING)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
@cleaning_alone
def test_what_a_step_has_started_ends_with_it(how: signal.Signals, program: str) -> None:
    """At once after Ctrl-C; after a kill fio, which would write on, at once, too, and a tool that
    waits for a drive by `harness clean`.
    """
    need(WAITING[program][0])
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, *WAITING[program]],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"permitted\n"
    while not waiting():
        assert child.poll() is None
    child.send_signal(how)
    child.wait()
    child.stdout.close()
    is_left = program == "a tool" and how is signal.SIGKILL
    deadline = time.monotonic() + 30.0
    while not is_left and waiting():
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.05)
    assert bool(waiting()) == is_left
    cleaned = cleaning.clean()
    assert not waiting()
    ended = [line for line in cleaned.done if re.match(r"ended process \d+", line)]
    assert ended or not is_left  # one that is on its way out may be met


# --- conditions


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def test_how_the_cpu_is_clocked(tmp_path: Path) -> None:
    cpu = "devices/system/cpu/cpu{}/cpufreq/scaling_{}"
    files = {}
    for number, governor in enumerate(["performance", "powersave", "performance"]):
        files[cpu.format(number, "governor")] = f"{governor}\n"
        files[cpu.format(number, "min_freq")] = "800000\n"
        files[cpu.format(number, "max_freq")] = "3600000\n"
    files["devices/system/cpu/intel_pstate/no_turbo"] = "1\n"
    assert conditions.cpu(written(tmp_path, files)) == {
        "cpu_governor": "2 x performance, 1 x powersave",
        "cpu_frequency_khz": "800000-3600000",
        "cpu_boost": "off",
    }


def test_how_this_cpu_is_clocked() -> None:
    assert all(isinstance(value, str) and value for value in conditions.cpu().values())


def test_how_a_drive_is_reached(tmp_path: Path) -> None:
    """A SATA drive by its own link, whatever that of its controller; NVMe by PCI's."""
    ata = "devices/pci0/0000:00:17.0/ata2/host1/target1:0:0/1:0:0:0"
    link = "devices/pci0/0000:00:17.0/ata2/link2/ata_link/link2/sata_spd"
    nvme = "devices/pci0/0000:01:00.0"
    sysfs = written(
        tmp_path,
        {
            f"{ata}/queue_depth": "32\n",
            link: "6.0 Gbps\n",
            "devices/pci0/0000:00:17.0/current_link_speed": "8.0 GT/s PCIe\n",
            f"{nvme}/current_link_speed": "16.0 GT/s PCIe\n",
            f"{nvme}/current_link_width": "4\n",
            f"{nvme}/nvme/nvme0/model": "alone\n",
            "devices/virtual/subsystem/model": "of several controllers\n",
            "devices/virtio1/model": "says nothing\n",
        },
    )
    (sysfs / "devices/virtual/subsystem/nvme0").symlink_to(sysfs / f"{nvme}/nvme/nvme0")
    blocks = {
        "sda": ata,
        "nvme0n1": f"{nvme}/nvme/nvme0",
        "nvme1n1": "devices/virtual/subsystem",
        "vda": "devices/virtio1",
    }
    for name, device in blocks.items():
        (sysfs / "block" / name).mkdir(parents=True)
        (sysfs / "block" / name / "device").symlink_to(sysfs / device)
    found = {name: tuple(conditions.way(Path("/dev") / name, sysfs).values()) for name in blocks}
    assert found == {
        "sda": ("32", "6.0 Gbps", "unknown"),
        "nvme0n1": ("unknown", "16.0 GT/s PCIe", "4"),
        "nvme1n1": ("unknown", "16.0 GT/s PCIe", "4"),
        "vda": ("unknown", "unknown", "unknown"),
    }


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("get-feature:0x6 (Volatile Write Cache), Current value:0x000001", "1"),
        ("get-feature:0x06 (Volatile Write Cache), Current value:00000000", "0"),
        ("NVMe status: INVALID_FIELD", "unknown"),
    ],
)
def test_whether_a_drive_s_cache_is_on_is_its_own_word(
    monkeypatch: pytest.MonkeyPatch, said: str, found: str
) -> None:
    def ask(*command: str) -> subprocess.CompletedProcess[bytes]:
        assert command == ("nvme", "get-feature", "/dev/nvme0n1", "--feature-id=6")
        return subprocess.CompletedProcess(command, 0, f"{said}\n".encode(), b"")

    monkeypatch.setattr(conditions, "ask", ask)
    assert conditions.volatile_cache(Path("/dev/nvme0n1")) == found
    assert conditions.volatile_cache(Path("/dev/sda")) == "unknown"


def test_the_temperature_is_that_of_the_drive(tmp_path: Path) -> None:
    """SATA: the sensor hangs on the SCSI device; another drive's sensor is another's."""
    sysfs = written(
        tmp_path,
        {
            "devices/one/hwmon/hwmon0/temp1_input": "71000\n",
            "devices/two/hwmon/hwmon1/temp1_input": "36850\n",
            "devices/three/model": "no sensor\n",
            "devices/subsystem/model": "with one controller\n",
        },
    )
    (sysfs / "class" / "hwmon").mkdir(parents=True)
    for number, device in enumerate(["one", "two"]):
        sensor = sysfs / "devices" / device / "hwmon" / f"hwmon{number}"
        (sensor / "device").symlink_to(sysfs / "devices" / device)
        (sysfs / "class" / "hwmon" / sensor.name).symlink_to(sensor)
    (sysfs / "devices" / "subsystem" / "nvme3").symlink_to(sysfs / "devices" / "two")
    blocks = {"sda": "one", "sdb": "two", "sdc": "three", "nvme0n1": "subsystem"}
    for name, device in blocks.items():
        (sysfs / "block" / name).mkdir(parents=True)
        (sysfs / "block" / name / "device").symlink_to(sysfs / "devices" / device)
    assert conditions.temperature_c(Path("/dev/sda"), sysfs) == 71
    assert conditions.temperature_c(Path("/dev/sdb"), sysfs) == 36.85
    assert conditions.temperature_c(Path("/dev/nvme0n1"), sysfs) == 36.85
    assert conditions.temperature_c(Path("/dev/sdc"), sysfs) is None
    assert conditions.temperature_c(Path("/dev/loop0"), sysfs) is None
