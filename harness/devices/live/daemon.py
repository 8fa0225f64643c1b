"""The process of one live device: `python -m harness.devices.live.daemon FOLDER LOCK READY`.

FOLDER is the device's place, LOCK the descriptor that holds its lock, READY where to say in a line
of JSON that the device is there, or why not.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, Final

from harness import _core
from harness.devices.live import loops, path, registry, stats, store
from harness.devices.live.control import Server
from harness.devices.live.registry import Place
from harness.devices.live.spec import MEMORY, LiveSpec
from harness.devices.profiles import HddProfile, NamedRange, SsdProfile, core_parameters
from harness.devices.write_shares import REST, Share, Shares, shares_of, since
from harness.errors import BadParameter, HarnessError, TargetError
from harness.system import mounts, processes

_THREADS: Final = 2
_SATA_RANGE_SECTORS: Final = 65_535
# A loop device takes 128 pieces of memory at a time: what is larger is split where memory happens
# to lie, differently every time.
_LARGEST_REQUEST_KIB: Final = 512
_MAX_DISCARD_BYTES: Final = (1 << 32) - 512


class Daemon:
    """A live device from its creation to its end."""

    def __init__(self, place: Place, spec: LiveSpec) -> None:
        self._place = place
        self._spec = spec
        self._profile = spec.device_profile()
        self._visible = spec.visible_bytes(self._profile)
        self._stack = contextlib.ExitStack()
        self._ending: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._changing = threading.Lock()
        self._counting = threading.Lock()  # what is counted, with what it is counted from
        self._slowdown = max(spec.slowdown, 1)
        self._speed = "none"
        self._trim = getattr(self._profile.parameters, "trim", None)
        self._costs: path.PathCosts | None = None
        self._proposed = 1
        self._recording: Any = None
        self._baseline: dict[str, int] = {}
        self._baseline_shares: Shares = {}
        self._record_path: Path | None = None
        self._is_made = False
        self._in_use = False

    def open(self) -> dict[str, Any]:
        """Makes the block device. Raises HarnessError, and then nothing is left of it."""
        try:
            return self._open()
        except BaseException:
            self._stack.close()
            raise

    def _open(self) -> dict[str, Any]:
        spec, place = self._spec, self._place
        parameters = core_parameters(self._profile, seed=spec.seed)
        self._store_fd = self._open_store()
        self._device = _core.LiveDevice(
            parameters, store_fd=os.dup(self._store_fd), visible_bytes=self._visible
        )
        self._prepare()
        self._stack.callback(self._save)
        self._device.mount(str(place.file), source=f"flashlab:{place.name}", threads=_THREADS)
        self._stack.callback(self._unmount)
        self._loop = loops.attach(place.file)
        self._stack.callback(self._detach)
        self._configure_queue()
        self._calibrate()
        self._device.set_honest_flush(spec.honest_flush)
        self.speed(spec.speed, self._slowdown)
        if spec.record is not None:
            self.record(str(spec.record))
        server = Server(place.socket, self._commands())
        self._stack.callback(server.shutdown)
        server.start()
        self.reset()
        self._own_store()
        return {
            "pid": os.getpid(),
            "device": str(self._loop),
            "size_bytes": self._visible,
            "profile": spec.profile,
            "proposed_slowdown": self._proposed,
            "slowdown": self._slowdown,
            "store": spec.store,
            "state": str(spec.state) if spec.state else None,
        }

    def run(self) -> None:
        """Serves until it is told to end, by a signal or a command."""
        for which in (signal.SIGTERM, signal.SIGINT):
            signal.signal(which, self._on_signal)
        self._ending.get()
        self.close()

    def close(self) -> None:
        """Ends the device, in the reverse order of its making."""
        self._stack.close()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._ending.put(signal.Signals(number).name)

    # What a client may ask for.

    def stats(self) -> dict[str, Any]:
        """Everything that the device counts, since the last reset, of one moment."""
        with self._counting:
            seen = self._device.snapshot()
            counted, shares = self._counted(seen), self._shares_of(seen)
        lateness = stats.summary(seen["lateness"], scale=1.0 / self._slowdown)
        latency = stats.summary(seen["model_latency"])
        problems = stats.problems(seen["live"], lateness, latency)
        return {
            "name": self._place.name,
            "profile": self._spec.profile,
            "device_path": str(self._loop),
            "size_bytes": self._visible,
            "speed": self._speed,
            "slowdown": self._slowdown,
            "proposed_slowdown": self._proposed,
            "model_time_ns": seen["now_ns"],
            "device": counted,
            "ranges": [asdict(each) for each in _ranges_of(seen)],
            "shares": shares,
            "live": seen["live"],
            "lateness": lateness,
            "model_latency": latency,
            "path": self._costs.as_dict() if self._costs else None,
            "trim_policy": self._trim.value if self._trim else None,
            "valid": not problems,
            "problems": problems,
        }

    def writes(self) -> dict[str, Any]:
        """What `stats` says of flash, and nothing else: for who asks often."""
        with self._counting:
            seen = self._device.snapshot()
            counted, shares = self._counted(seen), self._shares_of(seen)
        return {"time_ns": seen["now_ns"], "counters": counted, "shares": shares}

    def reset(self) -> None:
        """Counts from 0 again."""
        with self._changing, self._counting:
            seen = self._device.snapshot(then_reset=True)
            self._baseline = seen["device"]
            self._baseline_shares = self._all_shares(seen)

    def ranges(self, ranges: list[tuple[str, int, int, int]]) -> None:
        """Counts these parts of the address space (name, begin, end, stream) apart from now on."""
        with self._counting:
            self._device.set_ranges([(str(n), int(b), int(e), int(s)) for n, b, e, s in ranges])
            before = sum(self._baseline_shares.values(), Share())
            self._baseline_shares = {REST: before}
        self._note("the ranges were changed")

    def speed(self, speed: str, slowdown: int = 0) -> None:
        """Real, virtual or none; a slowdown of 0 keeps the one that there is."""
        if speed not in ("real", "virtual", "none"):
            raise BadParameter(f"speed {speed!r}: real, virtual or none")
        with self._changing:
            wanted = slowdown or self._slowdown
            self._device.set_pace(speed, slowdown=wanted)
            self._note("the speed was changed")
            self._speed, self._slowdown = speed, wanted

    def power_cut(self, seed: int = 0, stay_off: bool = False) -> dict[str, int]:
        """Fails what is in flight and loses what only the drive's RAM had, as `seed` says.

        With `stay_off`, everything fails until `power_on`.
        """
        self._note("the power was cut")
        return dict(self._device.power_cut(seed, stay_off=stay_off))

    def power_on(self) -> None:
        """The power is back."""
        self._device.power_on()

    def trim_policy(self, name: str = "") -> str | None:
        """The policy's name, after changing it if one is given."""
        if name:
            if self._trim is None:
                raise BadParameter(f"{self._spec.profile} is a hard disk: it knows no TRIM")
            self._device.set_trim_policy(name)
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
        self._device.set_streams([(int(b), int(e), int(s)) for b, e, s in ranges])

    def fault(self, op: str, begin_bytes: int = 0, end_bytes: int = 0, times: int = 1) -> None:
        """Lets the next `times` requests of that kind that touch the range fail."""
        end = end_bytes or self._visible
        self._device.add_fault(op, begin_bytes=begin_bytes, end_bytes=end, times=times)

    def clear_faults(self) -> None:
        """Nothing fails on purpose any more."""
        self._device.clear_faults()

    def slow_die(self, die: int, factor: float) -> None:
        """Lets a die take so many times as long for everything; 1: as it was."""
        self._device.slow_die(die, factor)
        self._note(f"die {die} was slowed down")

    def honest_flush(self, honest: bool) -> None:
        """Whether a flush is more than a reply."""
        self._device.set_honest_flush(honest)

    def record(self, target: str) -> None:
        """Records every request from now on."""
        from harness.devices.live.recording import Recording  # noqa: PLC0415 - imports pandas

        if self._recording is not None:
            raise BadParameter("the device is recorded already")
        self._place.note_unfinished(*_new_record_files(Path(target)))
        self._recording = Recording(self._device, Path(target), self._spec)
        self._record_path = Path(target)

    def stop_record(self) -> None:
        """Ends the record, which is whole from then on."""
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.close()
            assert self._record_path is not None
            self._place.forget_unfinished(*_record_files(self._record_path))

    def remove(self) -> None:
        """Ends the device. Raises TargetError while it is in use."""
        if found := mounts.of_device(self._loop):
            raise TargetError(f"{self._loop} is mounted at {found[0].point}: unmount it first")
        if holders := list((Path("/sys/block") / self._loop.name / "holders").glob("*")):
            raise TargetError(f"{self._loop} is held by {holders[0].name}: end that first")
        if users := processes.users(self._loop):
            raise TargetError(f"{self._loop} is open in process {users[0]}: end that first")
        self._ending.put("remove")

    def _commands(self) -> dict[str, Any]:
        names = (
            "stats writes reset ranges speed power_cut power_on trim_policy streams fault "
            "clear_faults slow_die honest_flush record stop_record remove"
        )
        return {name: getattr(self, name) for name in names.split()}

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

    # How it is made.

    def _open_store(self) -> int:
        if self._spec.store == MEMORY:
            fd = store.open_memory(self._visible)
        else:
            file = Path(self._spec.store)
            if not file.exists():
                self._place.note_unfinished(file)
                self._stack.callback(self._drop_store, file)
            fd = store.open_file(file, self._visible, keep=self._spec.state is not None)
        self._stack.callback(os.close, fd)
        return fd

    def _drop_store(self, file: Path) -> None:
        """A device that never came to be leaves no file."""
        if not self._is_made:
            file.unlink(missing_ok=True)

    def _own_store(self) -> None:
        """From here on the host may write, and the data may become newer than any saved state."""
        if self._spec.store != MEMORY:
            store.write_label(self._store_fd, "")
            self._place.forget_unfinished(Path(self._spec.store))
        self._is_made = True

    def _prepare(self) -> None:
        spec = self._spec
        if spec.state is not None and spec.state.exists():
            self._device.restore(store.load_state(spec.state, self._facts(), self._store_fd))
        elif spec.condition == "full":
            self._device.precondition(fill_ratio=1.0, overwrites=0.0, seed=spec.seed)
        elif spec.condition == "steady":
            self._device.to_steady_state(spec.seed)

    def _facts(self) -> dict[str, Any]:
        return {
            "profile": self._profile.digest(),
            "size_bytes": self._visible,
            "seed": self._spec.seed,
        }

    def _save(self) -> None:
        """The last thing: nobody can ask for anything any more."""
        self.stop_record()
        if not self._is_made and self._record_path is not None:
            for file in (self._record_path, *_record_files(self._record_path)):
                file.unlink(missing_ok=True)
        if self._spec.state is None or not self._is_made:
            return
        if self._in_use:
            _tell_log(f"{self._loop} was still in use: the state was not saved")
            return
        self._device.sync()
        model = self._device.save(then_record=False)
        self._place.note_unfinished(store.part_of(self._spec.state))
        store.save_state(self._spec.state, model, self._facts(), self._store_fd)

    def _detach(self) -> None:
        """The file below the loop device must be served until that has gone."""
        self._in_use = bool(loops.detach(self._place.file))

    def _unmount(self) -> None:
        """Threads that serve a file which is still open never end: the process ends them."""
        if not self._in_use:
            self._device.unmount()
        mounts.drop(self._place.file)  # libfuse leaves the mount of an aborted connection

    def _configure_queue(self) -> None:
        """The block layer sees the drive that the profile describes."""
        where = Path("/sys/block") / self._loop.name / "queue"
        rotational = isinstance(self._profile, HddProfile)
        depth = self._profile.parameters.queue_depth.value
        settings = {
            "rotational": int(rotational),
            "max_sectors_kb": _LARGEST_REQUEST_KIB,
            "discard_max_bytes": 0 if rotational else self._discard_bytes(),
            "scheduler": "none",
            "nr_requests": max(min(depth, 128), 4),
        }
        for name, value in settings.items():
            with contextlib.suppress(OSError):  # a kernel that does not let it be set
                (where / name).write_text(str(value))

    def _discard_bytes(self) -> int:
        """The most that one command of this drive frees: SATA's ranges are short."""
        assert isinstance(self._profile, SsdProfile)
        parameters = self._profile.parameters
        ranges = parameters.trim_max_ranges.value
        most = ranges * _SATA_RANGE_SECTORS * 512
        return min(most // 4096 * 4096, _MAX_DISCARD_BYTES // 4096 * 4096)

    def _calibrate(self) -> None:
        if self._spec.speed != "real":
            return
        self._costs = path.measure(self._device, self._loop, self._visible)
        path.apply(self._device, self._costs)
        self._proposed = path.slowdown_for(self._profile, self._costs)
        if self._spec.slowdown == 0:
            self._slowdown = self._proposed

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
        if file.exists():
            raise TargetError(f"{file} exists: choose another name for the record")
    return _record_files(record)


def _tell_log(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the log is our output


def main() -> None:
    """See the module."""
    folder, lock_fd, ready_fd = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for fd in (lock_fd, ready_fd):
        os.set_inheritable(fd, False)
    place = Place(folder.name)
    with contextlib.suppress(BrokenPipeError):  # who wanted the device is no more: it goes, too
        try:
            _serve(place, ready_fd)
        except HarnessError as error:  # at its end: nobody else would hear of it
            _tell_log(str(error))
            os._exit(2)
    registry.discard(place)
    os._exit(0)  # not even threads that wait for a device in use may keep the process


def _serve(place: Place, ready_fd: int) -> None:
    """A device from its creation to its end; says on `ready_fd` what came of it."""
    try:
        spec = LiveSpec.model_validate_json((place.folder / "spec.json").read_text())
        daemon = Daemon(place, spec)
        about = daemon.open()
    except HarnessError as error:  # who asked for the device removes what is left of the attempt
        _say(ready_fd, {"error": str(error)})
        os._exit(2)
    try:
        (place.folder / "about.json").write_text(json.dumps(about))
        _say(ready_fd, about)
    except BrokenPipeError:
        daemon.close()
        raise
    daemon.run()


def _say(ready_fd: int, what: dict[str, Any]) -> None:
    with os.fdopen(ready_fd, "w") as ready:
        ready.write(json.dumps(what))


if __name__ == "__main__":
    main()
