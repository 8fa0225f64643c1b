"""The block trace of a point, on the tiers with a kernel: its recording, and where it lies until it
is kept with the point's results.

One at a time in each run, as its points with a trace run one after another.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

from harness.errors import HarnessError, MissingTool
from harness.paths import Project
from harness.probes import bpftrace
from harness.probes.recorder import DeviceCounters, Recorder
from harness.system import leases


def folder(project: Project) -> Path:
    """Of a project."""
    return project.journal / "block_traces"


class Traces:
    """A run's own, below a folder of all runs of the checkout, of which several may be at work.

    They go when it is closed, if they have not been kept; after a kill with `harness clean`.
    `folder`: None: nothing is recorded.
    """

    def __init__(self, folder: Path | None) -> None:
        self._all = folder
        self._own: Path | None = None
        self._stack = ExitStack()

    def new_file(self) -> Path | None:
        """A name for the next point's; those before are gone. None without bpftrace or a folder."""
        if self._all is None:
            return None
        try:
            bpftrace.program()
        except MissingTool:  # the results are as good without the kernel's view of them
            return None
        if self._own is None:
            self._all.mkdir(parents=True, exist_ok=True)
            lease = self._stack.enter_context(leases.open_lease())
            self._own = lease.new_folder(self._all, "recording-")
        for old in self._own.glob("block*.parquet"):
            old.unlink()
        return self._own / "block.parquet"

    def close(self) -> None:
        """Raises TargetError for what cannot be deleted."""
        self._own = None
        self._stack.close()


class Recording:
    """The kernel's requests of a point in the file `trace`; without one, nothing.

    `device_counters`: see Recorder. `path` is the file, as soon as it is proven complete.
    """

    def __init__(
        self, trace: Path | None = None, device_counters: DeviceCounters | None = None
    ) -> None:
        self._trace = trace
        self._device_counters = device_counters
        self._recorder: Recorder | None = None
        self._running = ExitStack()
        self.path: Path | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether there is a file to record into."""
        return self._trace is not None

    @property
    def has_begun(self) -> bool:
        """Whether anything is recorded, or was."""
        return self._recorder is not None

    def begin(self, device: Path) -> None:
        """Raises as Recorder."""
        if self._trace is not None:
            self._recorder = Recorder(device, self._trace, device_counters=self._device_counters)
            self._running.enter_context(self._recorder)

    def end(self) -> None:
        """Raises TraceIncomplete if anything is missing."""
        self._running.close()
        if self._recorder is not None and self._recorder.recording is not None:
            self.path = self._recorder.recording.path

    def abandon(self, error: BaseException) -> None:
        """The run has failed: its trace need not be whole, and its own error is to be told."""
        with suppress(HarnessError):
            self._running.__exit__(type(error), error, error.__traceback__)
