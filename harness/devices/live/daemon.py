"""The process of one live device: `python -m harness.devices.live.daemon FOLDER LOCK READY`.

FOLDER is the device's place, LOCK the descriptor that holds its lock, READY where to say in a line
of JSON that the device is there, or why not. With a last word `again`
it takes over the block device of a process that has died.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from harness import _core
from harness.devices.live import front, placement, registry, store
from harness.devices.live import path as way
from harness.devices.live.control import Server
from harness.devices.live.front.base import Attachment, QueueLimits
from harness.devices.live.registry import AGAIN, Place
from harness.devices.live.service import Made, Service
from harness.devices.live.spec import MEMORY, LiveSpec
from harness.devices.profiles import core_parameters
from harness.errors import HarnessError, TargetError
from harness.system import idle_states, processes


class Daemon:
    """A live device from its creation to its end."""

    def __init__(self, place: Place, spec: LiveSpec, before: Mapping[str, Any] | None) -> None:
        self._place = place
        self._spec = spec
        self._before = before
        """What the process said whose device this one takes over; None: the device is new."""

        self._profile = spec.device_profile()
        self._visible = spec.visible_bytes(self._profile)
        self._stack = contextlib.ExitStack()
        self._ending: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._service: Service | None = None
        self._has_made_store = False
        self._is_made = False

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
        self._device.set_honest_flush(spec.honest_flush)
        self._attached = self._attach()
        # Saved first: whoever keeps something of the front end cannot keep the state from it.
        for step in (self._attached.close, self._save, self._attached.detach):
            self._stack.callback(step)
        made = self._measured() if self._before is None else self._as_before(self._before)
        self._service = self._stack.enter_context(Service(made, self._ending.put))
        self._service.speed(spec.speed)
        if spec.record is not None and self._before is None:
            self._service.record(str(spec.record))
        server = Server(place.socket, self._service.commands())
        self._stack.callback(server.shutdown)
        server.start()
        self._service.reset()
        self._own_store()
        return {
            "pid": os.getpid(),
            "device": str(made.path),
            "front": place.front,
            "size_bytes": self._visible,
            "profile": spec.profile,
            "proposed_slowdown": made.proposed_slowdown,
            "slowdown": made.slowdown,
            "processor": made.processor,
            "path": made.costs.as_dict() if made.costs else None,
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

    def _attach(self) -> Attachment:
        kind, file = front.named(self._place.front), self._place.file
        limits = QueueLimits.of(self._profile)
        if self._before is not None:
            return kind.recover(self._device, file, limits=limits)
        return kind.attach(
            self._device,
            file,
            name=self._place.name,
            limits=limits,
            recoverable=self._spec.recoverable,
        )

    def _open_store(self) -> int:
        if self._spec.store == MEMORY:
            fd = store.open_memory(self._visible)
        else:
            file = Path(self._spec.store)
            if self._before is not None and not file.exists():
                raise TargetError(f"{file} is gone, and the device's data with it")
            keep = self._spec.state is not None or self._before is not None
            fd = store.open_file(file, self._visible, keep=keep, made=self._note_store)
        self._stack.callback(os.close, fd)
        self._stack.callback(self._drop_store, fd)
        return fd

    def _note_store(self, fd: int) -> None:
        """Nobody but this process has made it, and nothing is in it yet."""
        self._place.note_made(Path(self._spec.store), fd)
        self._has_made_store = True

    def _drop_store(self, fd: int) -> None:
        """A device that never came to be leaves no file that it has made."""
        if self._has_made_store and not self._is_made:
            store.delete(Path(self._spec.store), fd)

    def _own_store(self) -> None:
        """From here on the host may write, and the data may become newer than any saved state."""
        if self._spec.store != MEMORY:
            store.write_label(self._store_fd, "")
            self._place.forget_unfinished(Path(self._spec.store))
        self._is_made = True

    def _prepare(self) -> None:
        spec = self._spec
        if self._before is not None:
            self._device.assume_stored()
        if spec.state is not None and spec.state.exists() and self._before is None:
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
        if self._service is not None:
            self._service.stop_record() if self._is_made else self._service.drop_record()
        if self._spec.state is None or not self._is_made:
            return
        if self._before is not None:
            _tell_log("a process before this one died: no state fits the data, none was saved")
            return
        if self._attached.in_use:
            _tell_log(f"{self._attached.path} was still in use: the state was not saved")
            return
        self._device.sync()
        model = self._device.save(then_record=False)
        part = store.part_of(self._spec.state)
        self._place.note_unfinished(part)
        store.save_state(self._spec.state, model, self._facts(), self._store_fd, part)

    def _measured(self) -> Made:
        """The device, with what the way to it costs; that is taken off its times from now on."""
        path, paced = self._attached.path, self._spec.speed == "real"
        with idle_states.awake() as is_awake:  # as it is while the device is paced
            watch_ns = 0 if is_awake else placement.WATCH_NS
            self._device.set_watch(watch_ns)
            processor = self._placed(path, watch_ns)
            costs = way.measure(self._device, path, self._visible) if paced else None
        proposed = way.slowdown_for(self._profile, costs) if costs else 1
        return self._made(processor, costs, proposed, self._spec.slowdown or proposed)

    def _as_before(self, before: Mapping[str, Any]) -> Made:
        """The device as the process before this one had measured it.

        Hosts ask it already, and what measures the way answers them wrongly.
        """
        processor, said = before["processor"], before["path"]
        with idle_states.awake() as is_awake:
            watch_ns = 0 if is_awake else placement.WATCH_NS
        self._device.set_watch(watch_ns)
        if processor is not None:
            processor = self._stack.enter_context(
                placement.one_core(self._place, self._device, watch_ns)
            )
        costs = way.PathCosts.of(said) if said else None
        return self._made(processor, costs, before["proposed_slowdown"], before["slowdown"])

    def _made(
        self, processor: int | None, costs: way.PathCosts | None, proposed: int, slowdown: int
    ) -> Made:
        if costs is not None:
            way.apply(self._device, costs)
        return Made(
            place=self._place,
            spec=self._spec,
            profile=self._profile,
            size_bytes=self._visible,
            model=self._device,
            path=self._attached.path,
            processor=processor,
            costs=costs,
            proposed_slowdown=proposed,
            slowdown=slowdown,
            recovered=self._before is not None,
        )

    def _placed(self, path: Path, watch_ns: int) -> int | None:
        """The processor that all of it runs on from now on; None: on any."""
        wanted = self._spec.placement
        choose = wanted == "auto" and self._spec.speed == "real" and placement.can_choose()
        if not choose and wanted != "one-core":
            return None
        spread_ns = way.glance_ns(self._device, path, self._visible) if choose else None
        with contextlib.ExitStack() as stack:
            processor = stack.enter_context(placement.one_core(self._place, self._device, watch_ns))
            if spread_ns is None or way.glance_ns(self._device, path, self._visible) < spread_ns:
                self._stack.push(stack.pop_all())
                return processor
        return None


def _tell_log(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the log is our output


def main() -> None:
    """See the module."""
    folder, lock_fd, ready_fd = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for fd in (lock_fd, ready_fd):
        os.set_inheritable(fd, False)
    processes.flush_io()  # one that holds the device's lock must not wait for writes to the device
    place = Place(folder.name)
    before = place.about() if AGAIN in sys.argv[4:] else None
    with contextlib.suppress(BrokenPipeError):  # who wanted the device is no more: it goes, too
        try:
            _serve(place, ready_fd, before)
        except HarnessError as error:  # at its end: nobody else would hear of it
            _tell_log(str(error))
            os._exit(2)
    registry.discard(place)
    os._exit(0)  # not even threads that wait for a device in use may keep the process


def _serve(place: Place, ready_fd: int, before: Mapping[str, Any] | None) -> None:
    """A device from its creation to its end; says on `ready_fd` what came of it."""
    try:
        spec = LiveSpec.model_validate_json((place.folder / "spec.json").read_text())
        daemon = Daemon(place, spec, before)
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
