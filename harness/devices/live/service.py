"""What a client may ask of a live device: counters, pace, power cuts, faults, records."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from harness import _core
from harness.devices.live import stats
from harness.devices.live.path import PathCosts
from harness.devices.live.registry import Place
from harness.devices.live.spec import LiveSpec
from harness.devices.profiles import DeviceProfile, NamedRange, SsdProfile
from harness.devices.write_shares import REST, Share, Shares, shares_of, since
from harness.errors import BadParameter, DataFolderError, TargetError
from harness.system import idle_states, mounts

_COMMANDS: Final = (
    *("stats", "writes", "reset", "ranges", "speed", "power_cut", "power_on", "trim_policy"),
    *("streams", "fault", "clear_faults", "slow_die", "honest_flush"),
    *("record", "stop_record", "remove"),
)


@dataclass(frozen=True)
class Made:
    """A device that the host sees, as it was made.

    `path`: the block device. `processor`: where all of the way to it runs, None: anywhere (see
    placement). `costs`: None where that way was not measured. `recovered`: another process made it,
    and died; what that one's model knew is lost.
    """

    place: Place
    spec: LiveSpec
    profile: DeviceProfile
    size_bytes: int
    model: _core.LiveDevice
    path: Path
    processor: int | None
    costs: PathCosts | None
    proposed_slowdown: int
    slowdown: int
    recovered: bool = False


class Service:
    """Answers for one device; `end` is called when somebody asks for its removal."""

    def __init__(self, made: Made, end: Callable[[str], None]) -> None:
        self._place, self._spec, self._profile = made.place, made.spec, made.profile
        self._model, self._path, self._visible = made.model, made.path, made.size_bytes
        self._processor = made.processor
        self._costs, self._proposed = made.costs, made.proposed_slowdown
        self._recovered = made.recovered
        self._end = end
        self._changing = threading.Lock()
        self._counting = threading.Lock()  # what is counted, with what it is counted from
        self._slowdown = made.slowdown
        self._speed = "none"
        self._trim = getattr(made.profile.parameters, "trim", None)
        self._recording: Any = None
        self._baseline: dict[str, int] = {}
        self._baseline_shares: Shares = {}
        self._record_path: Path | None = None
        self._earlier_problems: list[str] = []
        self._earlier_of_kinds: list[str] = []
        self._awake = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._awake.close()

    def commands(self) -> dict[str, Callable[..., Any]]:
        """What may be asked, by name: see the methods."""
        return {name: getattr(self, name) for name in _COMMANDS}

    def stats(self) -> dict[str, Any]:
        """Everything that the device counts, since the last reset, of one moment."""
        with self._counting:
            seen = self._model.snapshot()
            counted, shares = self._counted(seen), self._shares_of(seen)
        times = stats.times(seen["times"], self._slowdown)
        problems = _and(stats.problems(seen["live"], times), self._earlier_problems)
        of_kinds = _and(stats.problems_of_kinds(times), self._earlier_of_kinds)
        if self._recovered:
            problems.append(stats.RECOVERED)
        return {
            "name": self._place.name,
            "profile": self._spec.profile,
            "device_path": str(self._path),
            "size_bytes": self._visible,
            "speed": self._speed,
            "slowdown": self._slowdown,
            "proposed_slowdown": self._proposed,
            "processor": self._processor,
            "model_time_ns": seen["now_ns"],
            "device": counted,
            "ranges": [asdict(each) for each in _ranges_of(seen)],
            "shares": shares,
            "live": seen["live"],
            **times,
            "path": self._costs.as_dict() if self._costs else None,
            "trim_policy": self._trim.value if self._trim else None,
            "valid": not problems,
            "problems": problems,
            "problems_of_kinds": of_kinds,
        }

    def writes(self) -> dict[str, Any]:
        """What `stats` says of flash, and nothing else: for who asks often."""
        with self._counting:
            seen = self._model.snapshot()
            counted, shares = self._counted(seen), self._shares_of(seen)
        return {"time_ns": seen["now_ns"], "counters": counted, "shares": shares}

    def reset(self) -> None:
        """Counts from 0 again."""
        with self._changing, self._counting:
            seen = self._model.snapshot(then_reset=True)
            self._baseline = seen["device"]
            self._baseline_shares = self._all_shares(seen)
            self._earlier_problems, self._earlier_of_kinds = [], []

    def ranges(self, ranges: list[tuple[str, int, int, int]]) -> None:
        """Counts these parts of the address space (name, begin, end, stream) apart from now on."""
        with self._counting:
            self._model.set_ranges([(str(n), int(b), int(e), int(s)) for n, b, e, s in ranges])
            before = sum(self._baseline_shares.values(), Share())
            self._baseline_shares = {REST: before}
        self._note("the ranges were changed")

    def speed(self, speed: str, slowdown: int = 0) -> None:
        """Real, virtual or none; a slowdown of 0 keeps the one that there is.

        While it is real, no processor of this machine sleeps: the way to the device would take as
        much longer as they take to wake up, which nobody could take off.
        """
        if speed not in ("real", "virtual", "none"):
            raise BadParameter(f"speed {speed!r}: real, virtual or none")
        with self._changing, contextlib.ExitStack() as awake:
            wanted = slowdown or self._slowdown
            if speed == "real":
                awake.enter_context(idle_states.awake())
            found = self.stats()
            with self._counts_kept():
                self._model.set_pace(speed, slowdown=wanted)
            self._awake.close()
            self._awake = awake.pop_all()
            self._note("the speed was changed")
            self._speed, self._slowdown = speed, wanted
            # What was late at another speed would not be by the measure of this one.
            self._earlier_problems = [p for p in found["problems"] if p != stats.RECOVERED]
            self._earlier_of_kinds = found["problems_of_kinds"]

    @contextlib.contextmanager
    def _counts_kept(self) -> Iterator[None]:
        """A model that is told what was written past it counts from 0; what was counted stays."""
        with self._counting:
            before = self._model.snapshot()
            yield
            after = self._model.snapshot()
            if all(after["device"][name] >= n for name, n in before["device"].items()):
                return
            counted = self._counted(before)
            self._baseline = {name: n - counted[name] for name, n in after["device"].items()}
            grown = since(self._all_shares(before), self._baseline_shares)
            self._baseline_shares = since(self._all_shares(after), grown)

    def power_cut(self, seed: int = 0, stay_off: bool = False) -> dict[str, int]:
        """Fails what is in flight and loses what only the drive's RAM had, as `seed` says.

        With `stay_off`, everything fails until `power_on`.
        """
        self._note("the power was cut")
        return dict(self._model.power_cut(seed, stay_off=stay_off))

    def power_on(self) -> None:
        """The power is back."""
        self._model.power_on()

    def trim_policy(self, name: str = "") -> str | None:
        """The policy's name, after changing it if one is given."""
        if name:
            if self._trim is None:
                raise BadParameter(f"{self._spec.profile} is a hard disk: it knows no TRIM")
            self._model.set_trim_policy(name)
            self._trim = self._trim.model_copy(update={"value": name})
            self._note(f"TRIM policy {name}")
        return self._trim.value if self._trim else None

    def streams(self, ranges: list[tuple[int, int, int]]) -> None:
        """Writes that begin in [begin, end) bytes carry that stream's number."""
        profile = self._profile
        if not isinstance(profile, SsdProfile) or profile.parameters.placement.value != "id":
            raise BadParameter(
                f"{self._spec.profile} does not place writes by stream: create the device with "
                "--override placement=id and as many --override streams=N"
            )
        most = profile.parameters.streams.value
        if any(not 0 <= stream < most for _, _, stream in ranges):
            raise BadParameter(f"streams: {self._spec.profile} has streams 0 to {most - 1}")
        self._model.set_streams([(int(b), int(e), int(s)) for b, e, s in ranges])

    def fault(self, op: str, begin_bytes: int = 0, end_bytes: int = 0, times: int = 1) -> None:
        """Lets the next `times` requests of that kind that touch the range fail."""
        end = end_bytes or self._visible
        self._model.add_fault(op, begin_bytes=begin_bytes, end_bytes=end, times=times)

    def clear_faults(self) -> None:
        """Nothing fails on purpose any more."""
        self._model.clear_faults()

    def slow_die(self, die: int, factor: float) -> None:
        """Lets a die take so many times as long for everything; 1: as it was."""
        self._model.slow_die(die, factor)
        self._note(f"die {die} was slowed down")

    def honest_flush(self, honest: bool) -> None:
        """Whether a flush is more than a reply."""
        self._model.set_honest_flush(honest)

    def record(self, target: str) -> None:
        """Records every request from now on."""
        from harness.devices.live.recording import Recording  # noqa: PLC0415 - imports pandas

        if self._recording is not None:
            raise BadParameter("the device is recorded already")
        files = _new_record_files(Path(target))
        made = self._place.note_made
        try:
            with self._counts_kept():
                self._recording = Recording(self._model, Path(target), self._spec, made)
        except TargetError:
            self._place.forget_unfinished(*files)
            raise
        self._record_path = Path(target)

    def stop_record(self) -> None:
        """Ends the record, which is whole from then on."""
        recording, self._recording = self._recording, None
        if recording is None:
            return
        assert self._record_path is not None
        files = _record_files(self._record_path)
        try:
            recording.close()
        except DataFolderError as error:
            if isinstance(error.__cause__, FileExistsError):  # it is whole, under another name
                self._place.forget_unfinished(*files)
            raise
        self._place.forget_unfinished(*files)

    def remove(self) -> None:
        """Ends the device. Raises TargetError while it is in use."""
        if found := mounts.of_device(self._path):
            raise TargetError(f"{self._path} is mounted at {found[0].point}: unmount it first")
        if holders := mounts.holders(self._path):
            raise TargetError(f"{self._path} is held by {holders[0]}: end that first")
        if users := mounts.users(self._path):
            raise TargetError(f"{self._path} is open in process {users[0]}: end that first")
        if users := mounts.users_elsewhere(self._path):
            who = ", ".join(map(str, users))
            raise TargetError(
                f"{self._path} is mounted in another namespace, by process {who}: unmount it there"
            )
        if mounts.is_claimed(self._path):
            raise TargetError(
                f"{self._path} or a partition of it is in use: as swap, or below another device or "
                "file system: end that first"
            )
        self._end("remove")

    def drop_record(self) -> None:
        """Deletes the record: of a device that never came to be."""
        self.stop_record()
        if self._record_path is not None:
            for file in (self._record_path, *_record_files(self._record_path)):
                file.unlink(missing_ok=True)

    def _counted(self, seen: dict[str, Any]) -> dict[str, int]:
        return {name: n - self._baseline.get(name, 0) for name, n in seen["device"].items()}

    def _shares_of(self, seen: dict[str, Any]) -> dict[str, dict[str, int]]:
        grown = since(self._all_shares(seen), self._baseline_shares)
        return {name: asdict(share) for name, share in grown.items()}

    def _all_shares(self, seen: dict[str, Any]) -> Shares:
        if not isinstance(self._profile, SsdProfile):
            return {}
        unit_bytes = self._profile.parameters.map_unit.value
        return shares_of(_ranges_of(seen), seen["range_shares"], unit_bytes)

    def _note(self, what: str) -> None:
        if self._recording is not None:
            self._recording.note_change(what)


def _ranges_of(seen: dict[str, Any]) -> list[NamedRange]:
    return [NamedRange(*each) for each in seen["ranges"]]


def _record_files(record: Path) -> tuple[Path, Path]:
    """What is no record without its end: see recording.py."""
    return record.with_name(record.name + ".part"), record.with_name(record.name + ".initial")


def _new_record_files(record: Path) -> tuple[Path, Path]:
    """The same. Raises TargetError if somebody has such a file already."""
    for file in (record, *_record_files(record)):
        if os.path.lexists(file):
            raise TargetError(f"{file} exists: choose another name for the record")
    return _record_files(record)


def _and(found: list[str], earlier: Iterable[str]) -> list[str]:
    return [*found, *(each for each in earlier if each not in found)]
