"""Live devices from the outside: create, find, ask, remove."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.devices.live import front, registry
from harness.devices.live.control import ask
from harness.devices.live.registry import Place
from harness.devices.live.spec import LiveSpec
from harness.devices.profiles import NamedRange
from harness.devices.write_shares import Share, Writes
from harness.errors import HarnessError, MissingTool, TargetError
from harness.system import leases, locks
from harness.system.programs import find_program

_END_LIMIT_S: Final = 60.0
_LOOK_S: Final = 1.0
_STATS_LIMIT_S: Final = 10.0


@dataclass(frozen=True)
class LiveDevice:
    """A live device that exists; every call asks its process. Raises TargetError if it is gone."""

    place: Place
    owner: int | None = None
    """Holds the device's life, if it shall end with this process."""

    @property
    def name(self) -> str:
        """What commands call it."""
        return self.place.name

    @property
    def path(self) -> Path:
        """The block device."""
        return Path(self.place.about()["device"])

    @property
    def size_bytes(self) -> int:
        """What the host sees."""
        return int(self.place.about()["size_bytes"])

    def check(self, step: str) -> None:
        """Raises TargetError if its path leads to what is not its block device, or no more.

        It is not kept open for that: the kernel would keep what it has of the device in memory from
        one step to the next, and would read it there after a power cut.
        """
        if self.path not in self.place.leftovers().block_devices():
            raise TargetError(
                f"{step}: {self.path} is not {self.name}'s block device any more: somebody has "
                "detached it (losetup -d)"
            )

    def stats(self, *, patience_s: float = _STATS_LIMIT_S) -> dict[str, Any]:
        """Counters since the last reset, lateness, validity: see Daemon.stats."""
        return dict(ask(self.place.socket, "stats", patience_s=patience_s))

    def reset(self) -> None:
        """Counts from 0 again."""
        ask(self.place.socket, "reset")

    def writes(self) -> Writes | None:
        """What a flash drive has written since the last reset, and for which range; None: a disk.

        Counters and shares are of one moment, `time_ns` of the model's time. `ranges`, where they
        were changed since, are counted from then on; what was before is the rest's.
        """
        said = ask(self.place.socket, "writes", patience_s=_STATS_LIMIT_S)
        if not said["shares"]:
            return None
        shares = {name: Share(**share) for name, share in said["shares"].items()}
        return Writes(int(said["time_ns"]), said["counters"], shares)

    def set_ranges(self, ranges: Sequence[NamedRange]) -> None:
        """These parts of a flash drive are counted apart from now on, in place of those before.

        With the parameter placement=range their writes go to their streams as well. Part of the
        saved state. Ranges ascend and are disjoint.
        """
        told = [(r.name, r.begin_bytes, r.end_bytes, r.stream) for r in ranges]
        ask(self.place.socket, "ranges", ranges=told)

    def set_speed(self, speed: str, slowdown: int = 0) -> None:
        """Real, virtual or none.

        At speed none the model is not told: what was written is data from long ago to it, written
        once, in the order of its addresses; a TRIM is none. At speed virtual answers come at once,
        too, but the model is told, and its time runs on by as much as each request takes alone:
        for ageing a flash drive. A power cut loses nothing that was not written at speed real.
        """
        ask(self.place.socket, "speed", speed=speed, slowdown=slowdown)

    def power_cut(self, seed: int = 0, *, stay_off: bool = False) -> dict[str, int]:
        """Cuts the power; returns doubtful_sectors, changed_sectors, unanswered (requests).

        A host that lives on goes on writing as if nothing had happened, unless a request of its
        own failed: with `stay_off` every request fails until `power_on`, as if it was cut, too.
        """
        return dict(ask(self.place.socket, "power_cut", seed=seed, stay_off=stay_off))

    def power_on(self) -> None:
        """The power is back."""
        ask(self.place.socket, "power_on")

    def trim_policy(self, name: str = "") -> str | None:
        """The TRIM policy's name, after changing it if one is given."""
        found = ask(self.place.socket, "trim_policy", name=name)
        return str(found) if found is not None else None

    def set_streams(self, ranges: Sequence[tuple[int, int, int]]) -> None:
        """Writes that begin in [begin, end) bytes carry a stream's number: (begin, end, stream).

        As a host would name them, for placement=id; with placement=range see `set_ranges`.
        """
        ask(self.place.socket, "streams", ranges=list(ranges))

    def add_fault(
        self, op: str, *, begin_bytes: int = 0, end_bytes: int = 0, times: int = 1
    ) -> None:
        """The next `times` requests (read, write or trim) that touch the range fail."""
        ask(
            self.place.socket,
            "fault",
            op=op,
            begin_bytes=begin_bytes,
            end_bytes=end_bytes,
            times=times,
        )

    def clear_faults(self) -> None:
        """Nothing fails on purpose any more."""
        ask(self.place.socket, "clear_faults")

    def slow_die(self, die: int, factor: float) -> None:
        """A die takes so many times as long for everything; 1: as it was."""
        ask(self.place.socket, "slow_die", die=die, factor=factor)

    def set_honest_flush(self, *, honest: bool) -> None:
        """Whether a flush makes anything durable, or only says so."""
        ask(self.place.socket, "honest_flush", honest=honest)

    def record(self, path: Path) -> None:
        """Records every request from now on, until `stop_record` or the device's end."""
        ask(self.place.socket, "record", target=str(path.absolute()))

    def stop_record(self) -> None:
        """Ends the record."""
        ask(self.place.socket, "stop_record")

    def remove(self) -> None:
        """Ends the device. Raises TargetError while it is in use, or if its state is not saved."""
        file = self.place.file
        ask(self.place.socket, "remove", patience_s=_STATS_LIMIT_S)
        deadline = time.monotonic() + _END_LIMIT_S
        while self.place.is_alive():
            if time.monotonic() > deadline:
                raise TargetError(f"{self.name} does not end: see {self.place.log}")
            time.sleep(0.01)
        if file.exists():
            raise TargetError(
                f"{self.name} did not end well ({self.place.last_words()}): `harness clean` "
                "removes what is left"
            )
        if self.owner is not None:
            os.close(self.owner)


def create(spec: LiveSpec, name: str = "", *, owned: bool = False) -> LiveDevice:
    """Makes a live device that outlives the caller, or, if `owned`, is `clean`ed up after him.

    Raises HarnessError with what to do, and then nothing is left.
    """
    _check_system(spec.front)
    spec.check()
    leases.free_workqueues()  # bound by a killed device, they would be measured with this one
    creation = registry.begin(name, spec.profile, spec.front)
    place = creation.place
    try:
        (place.folder / "spec.json").write_text(_absolute(spec).model_dump_json())
        said = _start(place, creation.lock)
        if "error" in said:
            raise TargetError(str(said["error"]))
    except BaseException:
        creation.undo()
        raise
    creation.hand_over()
    if not owned:
        creation.disown()
    return LiveDevice(place, creation.owner if owned else None)


@contextlib.contextmanager
def created(spec: LiveSpec, name: str = "") -> Iterator[LiveDevice]:
    """A live device for as long as the block runs; whatever is mounted on it then is unmounted.

    Raises TargetError at the end if the device has died meanwhile, or if its state was to be saved
    and is not.
    """
    device = create(spec, name, owned=True)
    try:
        yield device
    except BaseException:
        with contextlib.suppress(HarnessError):  # the first error is the one to tell
            _end(device)
        raise
    _end(device)


def _end(device: LiveDevice) -> None:
    if device.place.is_dead():
        died = f"{device.name} died: {device.place.last_words()}"
        registry.remove_traces(device.place)
        raise TargetError(died)
    saves = _spec_of(device.place).state is not None
    try:
        registry.unmount_all(device.place)
        device.remove()
    except HarnessError as error:
        registry.remove_traces(device.place)
        if saves:
            raise TargetError(f"{device.name}: its state was not saved: {error}") from error


def find(name: str) -> LiveDevice:
    """A device that exists. Raises UnknownName, or TargetError if it is dead."""
    place = registry.existing(name)
    if place.is_dead() or not place.about():
        raise TargetError(f"{name} is dead: `harness clean` removes what is left of it")
    return LiveDevice(place)


def recover(name: str) -> LiveDevice:
    """Lets a new process serve a recoverable device whose process has died; its data is there.

    What the model knew of the drive is not: the device says so, and nothing that it measures is
    valid. Raises UnknownName, or TargetError, and then `registry.clean` removes what is left.
    """
    place = registry.existing(name)
    _check_system(place.front)
    if not (place.about() and _spec_of(place).recoverable):
        raise TargetError(
            f"{name} was not made to be recoverable: `harness clean` removes what is left of it"
        )
    lock = registry.reopen(place)
    try:
        said = _start(place, lock, registry.AGAIN)
        if "error" in said:
            raise TargetError(str(said["error"]))
    finally:
        os.close(lock)
    return LiveDevice(place)


def _spec_of(place: Place) -> LiveSpec:
    return LiveSpec.model_validate_json((place.folder / "spec.json").read_text())


def _check_system(front_end: str) -> None:
    if not sys.platform.startswith("linux"):
        raise MissingTool("live devices need Linux")
    if os.geteuid() != 0:
        raise TargetError("live devices need root: run this with sudo")
    front.named(front_end).check()


def _absolute(spec: LiveSpec) -> LiveSpec:
    """Paths as they are seen from everywhere."""
    changed: dict[str, Any] = {"profiles": spec.profiles.absolute()}
    if spec.store != "memory":
        changed["store"] = str(Path(spec.store).absolute())
    for field in ("state", "record"):
        if (path := getattr(spec, field)) is not None:
            changed[field] = path.absolute()
    if spec.profile.endswith(".yaml"):
        changed["profile"] = str(Path(spec.profile).absolute())
    return spec.model_copy(update=changed)


def _start(place: Place, lock: int, *how: str) -> dict[str, Any]:
    """Starts the device's process and waits for what it says."""
    hear, say = os.pipe()
    program = [sys.executable, "-m", "harness.devices.live.daemon", str(place.folder)]
    with os.fdopen(hear) as ready:
        try:
            with place.log.open("wb") as log:
                # A child of init's: it shall survive us, and we never wait for its end.
                subprocess.run(
                    [find_program("setsid"), "--fork", *program, str(lock), str(say), *how],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(lock, say),
                    cwd="/",
                    check=True,
                )
        finally:
            os.close(say)
        while not select.select([ready], [], [], _LOOK_S)[0]:
            if locks.is_lost(place.lock):  # a killed process that cannot end says nothing
                return {"error": "the device's process was killed"}
        line = ready.read()
    if line:
        return dict(json.loads(line))
    return {"error": f"the device's process ended: {place.last_words()}"}
