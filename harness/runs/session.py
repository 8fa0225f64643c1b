"""Sessions: an experiment on a tier, run point by point, continued where it stopped.

What the command line and the notebooks call. A session knows its points, runs those that the
journal does not have, and publishes tables, traces and figures from the journal alone, so that a
run that was interrupted and one that was not publish the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from pydantic import BaseModel, Field
from tqdm import tqdm

import harness
from harness import experiments, same_bits, tiers
from harness.drives import fingerprint
from harness.errors import BadParameter, HarnessError, Interrupted, InvalidRun, MissingTool
from harness.experiments.base import Experiment, Measurement, Point, Results
from harness.paths import Project
from harness.probes import bpftrace
from harness.runs import captions, claims, code, parameters, places, published, run_page
from harness.runs.journal import Entry, Journal
from harness.runs.places import Place
from harness.system.files import Publication, clear_unfinished, publication
from harness.tiers.base import Bench
from harness.tiers.options import Asked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ATTEMPTS: Final = 4

_COMPUTE: Final = ("duckdb", "numpy", "pandas", "pyarrow", "scipy", "tpchgen-cli")
"""Packages that numbers of a result come from. What was measured does not depend on them, but for
how it is put into words: it is not measured again for another version."""

_SERVER: Final = "server_version"
"""The column of studies with a database."""


class Options(Asked):
    """What a user may ask for besides params.yaml, of an experiment and of the tier (see `Asked`).

    `settings` replaces experiment parameters (texts in YAML), `scale` the one of that name.
    """

    scale: str | None = None
    settings: dict[str, str] = Field(default={})

    @property
    def changes_results(self) -> dict[str, Any]:
        """What of this a pipeline does not ask for, as data; drives are everybody's own."""
        without = {"drives", "journals", "write_budget_bytes", "scale", "settings"}
        return self.model_dump(exclude=without, exclude_defaults=True)


@contextmanager
def open_session(
    project: Project,
    name: str,
    tier: str,
    options: Options | None = None,
    *,
    why_tier: str = "",
    publish: bool = True,
) -> Iterator[Session]:
    """An experiment on a tier, checked and ready to run.

    `why_tier`: how the tier was chosen, if nobody named it. `publish`: into data/, if params.yaml
    describes the run. Raises HarnessError for whatever is wrong with names, parameters, profiles or
    the target, before anything is written.
    """
    options = options or Options()
    experiment = experiments.find(name)
    open_bench = tiers.find(tier)
    if tier not in experiment.tiers:
        raise BadParameter(f"{name} does not run on tier {tier}: {', '.join(experiment.tiers)}")
    chosen = parameters.of_tier(project, name, tier)
    values = values_of(project, name, tier, options)
    with open_bench(options, chosen.bench, project) as bench:
        place = place_of(project, name, tier, options, publish=publish and not why_tier)
        yield Session(project, experiment, bench, values, place, why_tier, chosen.bench.slowdown)


def place_of(
    project: Project, name: str, tier: str, options: Options, *, publish: bool = True
) -> Place:
    """Where such a run's files go: into data/, if params.yaml describes it. Raises HarnessError."""
    asked = pipelines_options(project)
    values, planned = (values_of(project, name, tier, each) for each in (options, asked))
    same = options.changes_results == asked.changes_results
    if publish and same and values == planned:
        return places.published(project, name, tier)
    own = {"parameters": values.model_dump(mode="json"), "options": options.model_dump()}
    return places.own(project, places.identity(name, tier, getattr(values, "scale", ""), own))


def values_of(project: Project, name: str, tier: str, options: Options) -> BaseModel:
    """A study's parameters on a tier, by params.yaml and by options. Raises HarnessError."""
    given = parameters.of_tier(project, name, tier).parameters
    experiment = experiments.find(name)
    return parameters.with_settings(experiment, given, options.settings, options.scale)


def pipelines_options(project: Project) -> Options:
    """What section `notebook` of params.yaml asks for, of all studies. Raises BadParameter."""
    section = parameters.of_notebooks(project)
    try:
        texts = {
            name: parameters.texts(section[name])
            for name in ("settings", "devices", "overrides")
            if name in section
        }
        asked = Options(scale=section.get("scale"), **texts)
    except ValueError as error:  # of a text, or of pydantic's
        raise BadParameter(f"params.yaml, notebook: {parameters.first_line(error)}") from error
    return asked.model_copy(update={"devices": parameters.absolute_profiles(asked.devices)})


class Session:
    """One experiment on one bench; `place` is where its tables and figures go.

    `slowdown`: that was asked for, of all devices or of each: what software costs a device's
    results depends on it, so what was measured at another one is measured again.
    """

    def __init__(
        self,
        project: Project,
        experiment: Experiment,
        bench: Bench,
        values: BaseModel,
        place: Place,
        why_tier: str = "",
        slowdown: int | Mapping[str, int] = 0,
    ) -> None:
        self.project = project
        self.experiment = experiment
        self.bench = bench
        self.parameters = values
        self.place = place
        self.why_tier = why_tier
        self.points: Sequence[Point] = experiment.points(values, bench)
        self._slowdown = slowdown
        self._described = "" if place.page else self._describe()
        self._journal = Journal(project.journal / experiment.name / bench.tier)

    def run(self) -> Results:
        """Runs what has not been run, with a progress bar, and returns all results.

        Waits for another run of the experiment on the tier, and takes its points over. Raises
        Interrupted on Ctrl-C: finished points are kept, the next call continues; BadParameter if
        there is no point.
        """
        if not self.points:
            name = self.experiment.name
            raise BadParameter(f"{name}, {self.stamp}: these parameters leave no point to be run")
        code.check_unchanged(self._reached)
        self.reserve()
        with self._alone():
            finished = self._journal.entries()
            waiting = [point for point in self.points if self._key(point) not in finished]
            with self._progress(len(self.points) - len(waiting)) as progress:
                self._run_all(waiting, progress)
        return self.results

    def _alone(self) -> AbstractContextManager[None]:
        """No other process runs or publishes the same meanwhile."""

        def wait(other: str) -> None:
            what = f"{self.experiment.name} (tier {self.bench.tier})"
            print(f"{what} is being run by {other}: waiting for it", file=sys.stderr)  # noqa: T201

        return self._journal.alone(wait)

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
        points = self.points if finished else []  # a key asks for the inputs, which may be missing
        entries = [e for p in points if (e := finished.get(self._key(p))) is not None]
        size = {"scale": self.scale} if self.scale else {}
        rows = [
            {**size, **e.values, **e.metrics, **self._role(e.values), "point": e.point}
            for e in entries
        ]
        series = {e.point: e.series for e in entries}
        return replace(self._empty, table=pd.DataFrame(rows), series=series)

    @property
    def stamp(self) -> str:
        """What stands below each figure."""
        return self._empty.stamp

    @property
    def _empty(self) -> Results:
        return Results(
            self.bench.tier,
            pd.DataFrame(),
            {},
            self._trace,
            scale=self.scale,
            why_tier=self.why_tier,
        )

    @property
    def scale(self) -> str:
        """How large the run is, as tables, figures and verdicts say it."""
        return parameters.scale_of(self.parameters)

    def _role(self, values: Mapping[str, Any]) -> dict[str, str]:
        """As which of the paper's drives a real one is judged; models go by the paper's names."""
        if self.bench.tier != "hardware":
            return {}
        device = str(values["device"])
        said = self._identity(device).get("rotational", "")
        rotational = {"1": True, "0": False}.get(said)
        return {"role": self.experiment.role(device, rotational=rotational)}

    def figures(self) -> dict[str, Figure]:
        """Figures by name."""
        return self.experiment.figures(self.results)

    def verdicts(self) -> pd.DataFrame:
        """The paper's claims, judged by this session's results."""
        return claims.judge(self.project, self.experiment.name, self.results)

    def publish(self) -> Path:
        """Writes tables, traces, figures and metrics, all of them or none; returns their folder.

        Into data/, if params.yaml describes the run; else into a folder of its own below
        build/runs/, with a report: see `place`. Raises DiskFull, DataFolderError, HarnessError if
        what describes the run was edited meanwhile, and BadParameter if points are missing, if they
        are of several versions of a server, or if figures might differ in their last bits from
        those of another processor; what was published before is there then.
        """
        if beyond := same_bits.beyond():
            raise BadParameter(
                f"NumPy was imported before harness and uses {', '.join(beyond)}, which others "
                "do not have: import harness first, then publish"
            )
        from harness import plots  # noqa: PLC0415 - who publishes nothing does without its libraries

        self._check_described()
        place, about, name = self.place, self._about(), self.experiment.name
        measured = self.results
        self._check_whole(measured.table)
        table = published.as_csv(measured.table)
        series = json.dumps(measured.series, indent=None, sort_keys=True) + "\n"
        # What is drawn and judged is what is written, so that anybody can do it again.
        written = published.read(self.bench.tier, table, series, place.traces)
        results = replace(measured, table=written.table, series=written.series)
        verdicts = claims.judge(self.project, name, results)
        figures = self.experiment.figures(results)
        about["files"] = published.digests(place, table, series)
        texts = {
            place.table: table,
            place.series: series,
            place.about: json.dumps(about, indent=1, sort_keys=True) + "\n",
        }
        with self._alone(), publication() as files:
            for shared in (place.table.parent, place.metrics.parent):
                clear_unfinished(shared)
            for path, text in texts.items():
                files.write(path, text.encode(), make_folder=True)
            self._publish_traces(results, place.traces, files)
            files.empty(place.figures)
            drawn = {each: plots.files(f, place.figures / each) for each, f in figures.items()}
            for path, data in (pair for each in drawn.values() for pair in each.items()):
                files.write(path, data)
            files.write(place.metrics, claims.metrics(verdicts).encode(), make_folder=True)
            if place.page is not None:
                title = f"{self.experiment.title}: {results.stamp}"
                below = captions.of(self.project, name, verdicts)
                page = run_page.html(title, verdicts, drawn, below, about)
                files.write(place.page, page.encode())
        return place.folder

    def _describe(self) -> str:
        """What of params.yaml, and of the claims where results are made anew for their sake, DVC
        will note down as what these results are of.
        """
        name, tier = self.experiment.name, self.bench.tier
        section = parameters.of_tier(self.project, name, tier).model_dump_json()
        simulated = tier == "simulated"
        judged = (self.project.published / "claims.yaml").read_text() if simulated else ""
        return "\n".join([section, json.dumps(parameters.of_notebooks(self.project)), judged])

    def _check_described(self) -> None:
        """DVC looks at what a stage depends on when it has ended. Raises HarnessError."""
        if self.place.page is not None:
            return
        if self.bench.tier == "simulated":
            code.check_unchanged(code.shown_of(self.experiment))
        if self._describe() != self._described:
            raise HarnessError(
                f"{self.experiment.name}, {self.bench.tier}: params.yaml or claims.yaml was edited "
                "since this run began, so that its results would go under what they are not of: "
                "run it again (finished points are kept)"
            )

    def _check_whole(self, table: pd.DataFrame) -> None:
        """That these are results of the whole run, and of one. Raises BadParameter."""
        if len(table) < len(self.points):
            raise BadParameter(
                f"{len(table)} of {len(self.points)} points are finished: run the others, too, "
                "before this is published"
            )
        if _SERVER in table and table[_SERVER].nunique() > 1:
            versions = ", ".join(map(str, sorted(table[_SERVER].unique())))
            raise BadParameter(
                f"some points are of another version of the server than others ({versions}): "
                "move this study's folder away from data/journal, and run it again"
            )

    def _about(self) -> dict[str, Any]:
        """What these results depend on: shown in the report, the same on every machine if the tier
        is simulated.
        """
        devices = {device: dict(self.bench.identity(device)) for device in self.bench.devices}
        return {
            "experiment": self.experiment.name,
            "tier": self.bench.tier,
            "scale": self.scale,
            **({"why_tier": self.why_tier} if self.why_tier else {}),
            "package": harness.__version__,
            "packages": _packages(),
            "code": self._code,
            "parameters": self.parameters.model_dump(mode="json"),
            "devices": devices,
        }

    def _publish_traces(self, results: Results, folder: Path, files: Publication) -> None:
        files.empty(folder)
        finished = self._journal.entries()
        for point in results.table.get("point", []):
            for name, source in self._journal.traces(finished[self._keys[point]]).items():
                files.copy(source, folder / name)

    def _trace(self, point: str) -> pd.DataFrame | None:
        path = self._journal.trace_path(self._keys[point])
        return pd.read_parquet(path) if path.is_file() else None

    @cached_property
    def _keys(self) -> dict[str, str]:
        """Of this session's points, by their ids."""
        return {point.id: self._key(point) for point in self.points}

    def _run_all(self, waiting: Sequence[Point], progress: tqdm[Any]) -> None:
        with _noted_interrupt() as interrupted, ThreadPoolExecutor(self.bench.parallel) as pool:
            batches = self.experiment.batches(waiting, self.bench.tier)
            running: set[Future[None]] = {pool.submit(self._run, b, progress) for b in batches}
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

    def _run(self, batch: Sequence[Point], progress: tqdm[Any]) -> None:
        begin = time.monotonic()
        for point, measured in self._measured(batch):
            self._keep(point, measured, time.monotonic() - begin)
            progress.set_postfix_str(point.label, refresh=False)
            progress.update()
            begin = time.monotonic()

    def _keep(self, point: Point, measured: Measurement, duration_s: float) -> None:
        about = {
            "duration_s": round(duration_s, 3),
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": fingerprint.machine(),
            **({"why_tier": self.why_tier} if self.why_tier else {}),
            **measured.about,
        }
        code.check_unchanged(self._reached)
        self._check_identity(point.cell.device)
        if measured.block_trace is not None:
            self._journal.keep_block_trace(self._key(point), measured.block_trace)
        self._journal.append(self._entry(point, measured, about), measured.trace)

    def _measured(self, batch: Sequence[Point]) -> Iterator[tuple[Point, Measurement]]:
        """Once more where other work on this machine has spoilt a run, but not for ever."""
        left, attempt = list(batch), 1
        while left:
            self.bench.attempt(attempt)
            run = self.experiment.run_batch(
                tuple(left), self.parameters, self.bench, self.project.raw
            )
            try:
                for measured in run:
                    yield left.pop(0), measured
                    attempt = 1
                    self.bench.attempt(attempt)
            except InvalidRun as error:
                if attempt == _ATTEMPTS:
                    label = left[0].label
                    raise InvalidRun(f"{label}: {error} ({_ATTEMPTS} attempts)") from error
                attempt += 1

    def _entry(self, point: Point, measured: Measurement, about: Mapping[str, Any]) -> Entry:
        return Entry(
            key=self._key(point),
            point=point.id,
            values=point.values,
            metrics={**measured.metrics, **measured.remarks, **self.bench.remarks},
            series=measured.series,  # type: ignore[arg-type]
            trace=bool(measured.trace),
            block_trace=measured.block_trace is not None,
            about=about,
        )

    def _key(self, point: Point) -> str:
        """Equal for what would give the same result, and only for that."""
        facts: dict[str, Any] = {
            "experiment": self.experiment.name,
            "tier": self.bench.tier,
            "values": dict(sorted(point.values.items())),
            "depends": dict(point.depends),
            "identity": dict(self._identity(point.cell.device)),
            "code": self._code,
            "input": self._input_digest,
        }
        if slowdown := self._slowdown_of(point.cell.device):
            facts["slowdown"] = slowdown
        if self.bench.tier == "simulated":
            facts["packages"] = _packages()
        elif not self._sees_requests:
            facts["block_traces"] = "none"  # so that with bpftrace it is measured again
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @cached_property
    def _sees_requests(self) -> bool:
        """Whether the kernel's requests are recorded where the kernel is real."""
        try:
            bpftrace.program()
        except MissingTool:
            return False
        return True

    def _slowdown_of(self, device: str) -> int:
        given = self._slowdown
        return given if isinstance(given, int) else given.get(device, 0)

    def _identity(self, device: str) -> Mapping[str, str]:
        if device not in self._identities:
            self._identities[device] = self.bench.identity(device)
        return self._identities[device]

    def _check_identity(self, device: str) -> None:
        """A key says what was there at the begin; a device is made of what is there then.

        Raises HarnessError.
        """
        if dict(self.bench.identity(device)) != dict(self._identity(device)):
            raise HarnessError(
                f"{device}: its profile, or what the machine says of it, changed since this run "
                "began, so that nobody could say which the last point is of: it is not kept, run "
                "it again"
            )

    @cached_property
    def _identities(self) -> dict[str, Mapping[str, str]]:
        return {}

    @cached_property
    def _input_digest(self) -> str:
        return self.experiment.input_digest(self.parameters, self.project.raw)

    @cached_property
    def _code(self) -> str:
        """Digest of all the code that a point's result passes through."""
        return self._reached.digest()

    @cached_property
    def _reached(self) -> code.Reached:
        return code.run_of(self.experiment, self.bench.tier)

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


@cache
def _packages() -> dict[str, str]:
    """Versions of those that compute."""
    return {name: metadata.version(name) for name in _COMPUTE}


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
