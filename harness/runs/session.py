"""Sessions: an experiment on a tier, run point by point, continued where it stopped.

What the command line and the notebooks call. A session knows its points, runs those that the
journal does not have, and publishes tables, traces and figures from the journal alone, so that a
run that was interrupted and one that was not publish the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure
from pydantic import BaseModel, Field
from tqdm import tqdm

import harness
from harness import experiments, plots, tiers
from harness.drives import fingerprint
from harness.errors import BadParameter, Interrupted, InvalidRun
from harness.experiments.base import Experiment, Measurement, Point, Results
from harness.paths import Project
from harness.runs import claims, code, parameters
from harness.runs.journal import Entry, Journal
from harness.system.files import write_atomically
from harness.tiers.base import Bench
from harness.tiers.options import Asked

_ATTEMPTS: Final = 4


class Options(Asked):
    """What a user may ask for besides params.yaml, of an experiment and of the tier (see `Asked`).

    `settings` replaces experiment parameters (texts in YAML), `scale` the one of that name.
    """

    scale: str | None = None
    settings: dict[str, str] = Field(default={})


@contextmanager
def open_session(
    project: Project, name: str, tier: str, options: Options | None = None
) -> Iterator[Session]:
    """An experiment on a tier, checked and ready to run.

    Raises HarnessError for whatever is wrong with names, parameters, profiles or the target, before
    anything is written.
    """
    options = options or Options()
    experiment = experiments.find(name)
    open_bench = tiers.find(tier)
    if tier not in experiment.tiers:
        raise BadParameter(f"{name} does not run on tier {tier}: {', '.join(experiment.tiers)}")
    chosen = parameters.of_tier(project, name, tier)
    values = parameters.with_settings(
        experiment, chosen.parameters, options.settings, options.scale
    )
    with open_bench(options, chosen.bench, project) as bench:
        yield Session(project, experiment, bench, values)


class Session:
    """One experiment on one bench."""

    def __init__(
        self, project: Project, experiment: Experiment, bench: Bench, parameters: BaseModel
    ) -> None:
        self.project = project
        self.experiment = experiment
        self.bench = bench
        self.parameters = parameters
        self.points: Sequence[Point] = experiment.points(parameters, bench)
        self._journal = Journal(project.journal / experiment.name / bench.tier)

    def run(self) -> Results:
        """Runs what has not been run, with a progress bar, and returns all results.

        Raises Interrupted on Ctrl-C: finished points are kept, the next call continues.
        """
        self.reserve()
        self._journal.check_writable()
        finished = self._journal.entries()
        waiting = [point for point in self.points if self._key(point) not in finished]
        with self._progress(len(self.points) - len(waiting)) as progress:
            self._run_all(waiting, progress)
        return self.results

    def reserve(self) -> None:
        """Makes sure that there is room for all points. Raises TargetError, DiskFull."""
        needed: dict[str, int] = {}
        for point in self.points:
            device = point.cell.device
            room = self.experiment.needed_bytes(self.parameters, point)
            needed[device] = max(needed.get(device, 0), room)
        self.bench.reserve(needed)

    @property
    def results(self) -> Results:
        """What the journal has of this session's points."""
        finished = self._journal.entries()
        entries = [e for p in self.points if (e := finished.get(self._key(p))) is not None]
        rows = [{**e.values, **e.metrics, "point": e.point} for e in entries]
        series = {e.point: e.series for e in entries}
        results = Results(self.bench.tier, pd.DataFrame(rows), series, self._trace)
        notes = claims.notes(self.project, self.experiment.name, results)
        return Results(results.tier, results.table, series, self._trace, notes)

    def figures(self) -> dict[str, Figure]:
        """Figures by name."""
        return self.experiment.figures(self.results)

    def verdicts(self) -> pd.DataFrame:
        """The paper's claims, judged by this session's results."""
        return claims.judge(self.project, self.experiment.name, self.results)

    def publish(self) -> None:
        """Writes tables, traces, figures and metrics into data/, each file whole or not at all."""
        name, tier = self.experiment.name, self.bench.tier
        results = self.results
        table = results.table.to_csv(index=False, float_format="%.9g", lineterminator="\n")
        _write(self.project.results / f"{name}.{tier}.csv", table.encode())
        series = json.dumps(results.series, indent=None, sort_keys=True) + "\n"
        _write(self.project.results / f"{name}.{tier}.series.json", series.encode())
        _write(self.project.results / f"{name}.{tier}.about.json", self._about().encode())
        self._publish_traces(results, self.project.raw / name / tier)
        folder = _emptied(self.project.figures / name / tier)
        for figure_name, figure in self.figures().items():
            plots.save(figure, folder / figure_name)
        claims.write_metrics(self.project, name, tier, self.verdicts())

    def _about(self) -> str:
        """What these results depend on: shown in the report, the same on every machine if the tier
        is simulated.
        """
        devices = {device: dict(self.bench.identity(device)) for device in self.bench.devices}
        about = {
            "experiment": self.experiment.name,
            "tier": self.bench.tier,
            "package": harness.__version__,
            "code": self._code,
            "parameters": self.parameters.model_dump(mode="json"),
            "devices": devices,
        }
        return json.dumps(about, indent=1, sort_keys=True) + "\n"

    def _publish_traces(self, results: Results, folder: Path) -> None:
        _emptied(folder)
        for point in results.table.get("point", []):
            for source in (self._journal.trace_path(point), self._journal.block_trace_path(point)):
                if source.is_file():
                    shutil.copyfile(source, folder / source.name)

    def _trace(self, point: str) -> pd.DataFrame | None:
        path = self._journal.trace_path(point)
        return pd.read_parquet(path) if path.is_file() else None

    def _run_all(self, waiting: Sequence[Point], progress: tqdm[Any]) -> None:
        with _noted_interrupt() as interrupted, ThreadPoolExecutor(self.bench.parallel) as pool:
            running: set[Future[None]] = {pool.submit(self._run_one, p, progress) for p in waiting}
            try:
                while running:
                    # A short timeout, so that Ctrl-C is seen while the core works.
                    done, running = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
                    if running and interrupted.is_set():
                        raise KeyboardInterrupt
            except KeyboardInterrupt:
                self._stop(pool, running)
                left = len(self.points) - len(self.results.table)
                raise Interrupted(
                    f"interrupted: {len(self.points) - left} of {len(self.points)} points are "
                    "finished and kept; run the same command again to continue"
                ) from None
            except BaseException:
                self._stop(pool, running)
                raise

    def _stop(self, pool: ThreadPoolExecutor, running: set[Future[None]]) -> None:
        self.bench.cancel.set()
        pool.shutdown(wait=True, cancel_futures=True)
        for future in running:
            if future.done() and not future.cancelled():
                future.exception()

    def _run_one(self, point: Point, progress: tqdm[Any]) -> None:
        begin = time.monotonic()
        raw = self.project.raw
        measured = self._measure(point, raw)
        about = {
            "duration_s": round(time.monotonic() - begin, 3),
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": fingerprint.machine(),
        }
        if measured.block_trace is not None:
            self._journal.keep_block_trace(point.id, measured.block_trace)
        self._journal.append(self._entry(point, measured, about), measured.trace)
        progress.set_postfix_str(point.label, refresh=False)
        progress.update()

    def _measure(self, point: Point, raw: Path) -> Measurement:
        """Once more where other work on this machine has spoilt a run, but not for ever."""
        for attempt in range(1, _ATTEMPTS + 1):
            self.bench.attempt(attempt)
            try:
                return self.experiment.run_point(point, self.parameters, self.bench, raw)
            except InvalidRun as error:
                if attempt == _ATTEMPTS:
                    raise InvalidRun(f"{point.label}: {error} ({_ATTEMPTS} attempts)") from error
        raise AssertionError

    def _entry(self, point: Point, measured: Measurement, about: Mapping[str, Any]) -> Entry:
        return Entry(
            key=self._key(point),
            point=point.id,
            values=point.values,
            metrics={**measured.metrics, **measured.remarks, **self.bench.remarks},
            series=measured.series,  # type: ignore[arg-type]
            trace=bool(measured.trace),
            about=about,
        )

    def _key(self, point: Point) -> str:
        """Equal for what would give the same result, and only for that."""
        facts = {
            "experiment": self.experiment.name,
            "tier": self.bench.tier,
            "values": dict(sorted(point.values.items())),
            "depends": dict(point.depends),
            "identity": dict(self._identity(point.cell.device)),
            "code": self._code,
            "input": self._input_digest,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def _identity(self, device: str) -> Mapping[str, str]:
        if device not in self._identities:
            self._identities[device] = self.bench.identity(device)
        return self._identities[device]

    @cached_property
    def _identities(self) -> dict[str, Mapping[str, str]]:
        return {}

    @cached_property
    def _input_digest(self) -> str:
        return self.experiment.input_digest(self.parameters, self.project.raw)

    @cached_property
    def _code(self) -> str:
        """Digest of all the code that a point's result passes through."""
        return code.run_of(self.experiment, self.bench.tier).digest()

    def _progress(self, already: int) -> tqdm[Any]:
        return tqdm(
            total=len(self.points),
            initial=already,
            desc=f"{self.experiment.name} ({self.bench.tier})",
            unit="point",
            file=sys.stderr,
            mininterval=0.5,
            dynamic_ncols=True,
        )


@contextmanager
def _noted_interrupt() -> Iterator[threading.Event]:
    """Set by Ctrl-C or SIGTERM, to be asked where it is safe to stop.

    A KeyboardInterrupt that arrives inside concurrent.futures.wait can leave a future's lock held,
    and the worker that finishes this future would then wait for ever.
    """
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = {
        which: signal.signal(which, lambda *_: noted.set())
        for which in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield noted
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)


def _emptied(folder: Path) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder
