"""Bringing a drive into a known state: erased, filled, worn. What would be run, and running it.

    capable = capabilities.read(drive, "nvme")
    way = preparation.choose(preparation.ways(drive, target, capable))
    plan = [*way.steps, *preparation.precondition(target)]      # shown; nothing has been run
    preparation.erase(target, way)
    for step in preparation.precondition(target): preparation.run(target, step)

Filling and steady state after SNIA's Solid State Storage Performance Test Specification: its
workload-independent preconditioning writes everything twice in sequence; then the drive is written
at random until its rate is steady.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.drives import nvme, nvme_pages
from harness.drives.capabilities import Capabilities
from harness.drives.targets import Step, Target
from harness.errors import DeviceError, HarnessError, UnknownName
from harness.system import fio_names, leases
from harness.system.programs import find_program, last_words

Options = Mapping[str, str | int]
"""Of a fio job, by fio's own names."""

_PASSWORD: Final = "flashlab"  # noqa: S105 - of a drive that is erased: it must be known, not secret
_FORMAT_LIMIT_MS: Final = 3_600_000
_FILL_BLOCK_BYTES: Final = 131_072
_RANDOM_BLOCK_BYTES: Final = 4096
_QUEUE_DEPTH: Final = 32
_POLL_S: Final = 1.0
_BUSY_PATIENCE_S: Final = 5.0
_BUSY_LOOK_S: Final = 0.2
_SHORT_S: Final = 30.0
_WRITES_ON: Final = ("fio", "blkdiscard")
"""What would write on after a kill. An erase of the whole drive is the drive's own work: to kill
the tool that waits for it does not end it."""


@dataclass(frozen=True)
class Pace:
    """How fast a drive is taken to be in a plan, and no more than that: slow, rather than fast.

    `erase_s`: of an erase whose time the drive does not tell.
    """

    sequential_bytes_per_s: float = 100e6
    random_bytes_per_s: float = 20e6
    discard_bytes_per_s: float = 1e9
    erase_s: float = 600.0


@dataclass(frozen=True)
class Way:
    """A way to erase a drive.

    `refused`: why this drive does not offer it; then it has no steps. `whole_drive`: it erases what
    lies outside the target, too, partition table and marker. `background`: the drive goes on after
    the command. `undo`: if it fails half-way.
    """

    name: str
    steps: tuple[Step, ...] = ()
    refused: str = ""
    whole_drive: bool = False
    background: bool = False
    drive: Path | None = None
    undo: tuple[str, ...] = ()


def ways(
    drive: Path,
    target: Target,
    capable: Capabilities,
    pace: Pace | None = None,
    *,
    by_id: Path | None = None,
) -> list[Way]:
    """All ways, those that leave least behind first; `drive` is the whole drive of the target.

    `by_id`: its persistent name, for advice that has to hold after a restart, too.
    """
    pace = pace or Pace()
    return [
        *_formats(drive, capable, pace),
        *_sanitizes(drive, capable, pace),
        *_security_erases(drive, capable, pace, by_id or drive),
        _discard(target, capable, pace),
        Way("overwrite", (_overwrite(target, pace),)),
    ]


def choose(offered: Iterable[Way], name: str = "") -> Way:
    """The way of that name, or the first that the drive offers.

    Raises UnknownName, and DeviceError if the drive refuses it.
    """
    offered = list(offered)
    if not name:
        return next(way for way in offered if not way.refused)
    by_name = {way.name: way for way in offered}
    if name not in by_name:
        raise UnknownName("way to erase", name, by_name)
    if by_name[name].refused:
        raise DeviceError(f"{name}: {by_name[name].refused}")
    return by_name[name]


def _formats(drive: Path, capable: Capabilities, pace: Pace) -> list[Way]:
    kinds = (
        ("format", capable.format_user_data, 1, "user data"),
        ("format_crypto", capable.format_crypto, 2, "by a new key"),
    )
    found = []
    for name, there, setting, what in kinds:
        refused = "" if there else "the drive does not offer it (id-ctrl: oacs, fna)"
        if there and capable.formats_all:
            refused = _others(capable)
        # --force: without it nvme waits for a person, and wants to be the only one to have the
        # drive open, which the guard is.
        options = (f"--ses={setting}", "--force", f"--timeout={_FORMAT_LIMIT_MS}")
        command = ("nvme", "format", str(drive), *options)
        step = Step(f"format, erasing {what}", command, 0, pace.erase_s)
        found.append(_way(name, (step,), refused, drive))
    return found


def _sanitizes(drive: Path, capable: Capabilities, pace: Pace) -> list[Way]:
    kinds = (
        ("sanitize_block", capable.sanitize_block, 2, "block erase", capable.sanitize_block_s),
        ("sanitize_crypto", capable.sanitize_crypto, 4, "a new key", capable.sanitize_crypto_s),
        (
            "sanitize_overwrite",
            capable.sanitize_overwrite,
            3,
            "overwriting",
            capable.sanitize_overwrite_s,
        ),
    )
    found = []
    for name, there, action, what, expected_s in kinds:
        refused = _others(capable) if there else "the drive does not offer it (id-ctrl: sanicap)"
        passes = ("--owpass=1",) if action == 3 else ()
        command = ("nvme", "sanitize", str(drive), f"--sanact={action}", *passes)
        step = Step(f"sanitize by {what}", command, 0, expected_s or pace.erase_s)
        found.append(_way(name, (step,), refused, drive, background=True))
    return found


def _others(capable: Capabilities) -> str:
    if capable.namespaces == 1:
        return ""
    return f"it would erase all {capable.namespaces} namespaces of the drive, not this one alone"


def _security_erases(drive: Path, capable: Capabilities, pace: Pace, by_id: Path) -> list[Way]:
    refused = _security_refusal(capable, by_id)
    enhanced = refused or ("" if capable.security_enhanced else "the drive does not offer it")
    user = ("hdparm", "--user-master", "u")
    password = Step(
        f"set the password {_PASSWORD!r} for the erase (hdparm --security-disable takes it off)",
        (*user, "--security-set-pass", _PASSWORD, str(drive)),
        0,
        _SHORT_S,
    )
    erase = Step(
        "secure erase",
        (*user, "--security-erase", _PASSWORD, str(drive)),
        0,
        capable.security_erase_s or pace.erase_s,
    )
    erase_enhanced = Step(
        "enhanced secure erase",
        (*user, "--security-erase-enhanced", _PASSWORD, str(drive)),
        0,
        capable.security_enhanced_s or pace.erase_s,
    )
    undo = (*user, "--security-disable", _PASSWORD, str(drive))
    return [
        _way("secure_erase", (password, erase), refused, drive, undo=undo),
        _way("secure_erase_enhanced", (password, erase_enhanced), enhanced, drive, undo=undo),
    ]


def _security_refusal(capable: Capabilities, drive: Path) -> str:
    """Why the ATA security feature set cannot be used now; and with a password, what to do then.

    A drive with one is locked whenever it has lost power. It aborts all commands then but those
    that unlock or erase it: the password cannot even be taken off.
    """
    if not capable.security:
        return "the drive does not offer it (hdparm -I: Security)"
    if capable.security_frozen:
        return (
            "the drive is frozen until it loses power: firmware does that when it starts; unplug "
            "the drive's power and plug it in again, or suspend the machine to memory and wake it"
        )
    left = f"an erase of ours that was killed has left {_PASSWORD!r}"
    take_off = f"hdparm --user-master u --security-disable {_PASSWORD} {drive}"
    if capable.security_locked:
        unlock = f"hdparm --user-master u --security-unlock {_PASSWORD} {drive}"
        return f"the drive is locked by a password ({left}): first {unlock}, then {take_off}"
    if capable.security_enabled:
        return f"the drive has a password already ({left}): take it off with {take_off}"
    return ""


def _discard(target: Target, capable: Capabilities, pace: Pace) -> Way:
    # Without --force it refuses what somebody uses: the guard holds the header, not the target.
    command = ("blkdiscard", str(target.path))
    expected_s = target.size_bytes / pace.discard_bytes_per_s
    refused = "" if capable.discard else "the drive knows no discard (queue/discard_max_bytes is 0)"
    steps = (Step("discard everything", command, 0, expected_s),)
    return Way("discard", () if refused else steps, refused)


def _way(
    name: str,
    steps: tuple[Step, ...],
    refused: str,
    drive: Path,
    *,
    background: bool = False,
    undo: tuple[str, ...] = (),
) -> Way:
    if refused:
        return Way(name, refused=refused)
    return Way(name, steps, "", True, background, drive, undo)


def _overwrite(target: Target, pace: Pace) -> Step:
    return _fill(target, "overwrite everything", pace, times=1)


def _fill(target: Target, what: str, pace: Pace, times: int) -> Step:
    written = target.size_bytes // _FILL_BLOCK_BYTES * _FILL_BLOCK_BYTES * times
    options: Options = {"rw": "write", "bs": _FILL_BLOCK_BYTES, "loops": times}
    return fio_step(what, target, options, written, written / pace.sequential_bytes_per_s)


def precondition(
    target: Target,
    pace: Pace | None = None,
    *,
    most_times: int = 4,
    window_s: int = 300,
    drift_ratio: float = 0.1,
) -> list[Step]:
    """Filled twice in sequence, once at random, then at random until the rate is steady.

    Steady: over `window_s` the slope of the rate is less than `drift_ratio` of it. At most
    `most_times` the target is written in search of that. The pass before it writes each block once,
    so that the drive's hidden space is used up, and its first, quick minutes are not taken for
    steady.
    """
    pace = pace or Pace()
    once = target.size_bytes // _RANDOM_BLOCK_BYTES * _RANDOM_BLOCK_BYTES
    random: Options = {"rw": "randwrite", "bs": _RANDOM_BLOCK_BYTES}
    steady: Options = {
        **random,
        "norandommap": 1,
        "io_size": once * most_times,
        "steadystate": f"iops_slope:{drift_ratio / window_s:.6%}",
        "steadystate_duration": window_s,
    }
    seconds = once / pace.random_bytes_per_s
    return [
        _fill(target, "fill twice, in sequence", pace, times=2),
        fio_step("write everything once, at random", target, random, once, seconds),
        fio_step(
            "write at random until the rate is steady",
            target,
            steady,
            once * most_times,
            seconds * most_times,
        ),
    ]


def fio_step(
    what: str,
    target: Target,
    options: Options,
    written_bytes: int,
    expected_s: float,
) -> Step:
    """A step that a fio job is; `options` are fio's own, and go before those that all jobs have.

    Raises TargetError for a target whose name fio would take for several.
    """
    common: Options = {
        "size": target.size_bytes,
        "direct": 1,
        "ioengine": "libaio",
        "iodepth": _QUEUE_DEPTH,
        "end_fsync": 1,
        "thread": 1,
    }
    arguments = [f"--{name}={value}" for name, value in {**common, **options}.items()]
    command = ("fio", "--name=prepare", fio_names.argument(target.path), *arguments)
    return Step(what, command, written_bytes, expected_s)


def run(target: Target, step: Step) -> None:
    """Asks the guard, then runs a step. What it started ends with it; after a kill at once, if it
    would go on to write (fio, blkdiscard), or else by clean.

    Raises TargetError if the guard does not permit it or it is about something else than the
    target, MissingTool, DeviceError with the program's last words.
    """
    _permit(target, step)
    _call(step.what, step.command)


def erase(target: Target, way: Way) -> None:
    """Goes a way to its end with the guard's permission for each step. Raises what `run` does."""
    carry_out(way, lambda step: _permit(target, step))


def _permit(target: Target, step: Step) -> None:
    step.check_names(target.path)
    target.permit(step.what, step.written_bytes)


def carry_out(way: Way, before: Callable[[Step], None]) -> None:
    """Goes a way to its end, also where the drive goes on by itself; `before` may refuse each step.

    Raises MissingTool, DeviceError.
    """
    assert not way.refused, "a way that the drive refuses has no steps"
    begun = False
    try:
        for step in way.steps:
            before(step)
            begun = True
            _call(step.what, step.command)
        if way.background:
            assert way.drive is not None
            _await_sanitized(way.drive)
    except BaseException as error:
        if begun and way.undo:
            try:
                _call("undo", way.undo)
            except HarnessError as left:
                raise DeviceError(
                    f"{error}; and what was set for it could not be taken back: {left}: run "
                    f"{' '.join(way.undo)}"
                ) from error
        raise


def _call(what: str, command: tuple[str, ...]) -> None:
    """Raises MissingTool, DeviceError. A drive that is busy is asked again for a moment: blkdiscard
    says so, and does nothing, while somebody holds what it is about, or, as blkid does, reads it.
    """
    argv = [find_program(command[0]), *command[1:]]
    writes_on = command[0] in _WRITES_ON
    deadline = time.monotonic() + _BUSY_PATIENCE_S
    while True:
        done = leases.call(argv, dies_with_us=writes_on)
        if not done.returncode:
            return
        said = last_words(done)
        if os.strerror(errno.EBUSY) not in said or time.monotonic() > deadline:
            raise DeviceError(f"{what} failed: {command[0]} says: {said}")
        time.sleep(_BUSY_LOOK_S)


def _await_sanitized(drive: Path) -> None:
    """Until the drive says that it is done: it can be asked, but never tells by itself."""
    while True:
        page = nvme.page(drive, nvme_pages.SANITIZE)
        if isinstance(page, str):
            raise DeviceError(f"{drive}: no sanitize status while it sanitizes: {page}")
        status = nvme_pages.parse_sanitize(page)
        if status.state in nvme_pages.SANITIZED:
            return
        if status.state != nvme_pages.SANITIZING:
            raise DeviceError(
                f"{drive}: the sanitize failed, and the drive takes few commands until one does "
                "not: run nvme sanitize again"
            )
        time.sleep(_POLL_S)
