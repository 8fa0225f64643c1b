"""A sweep: a study on many machines, continued where it stopped, and published as Parquet.

Only this process writes to the journal. What is published is made of the journal and of what is
recorded in data/ of the same machines, machine by machine in their order: the same bytes however
many workers there were, and whoever was killed.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

import harness
from harness.errors import BadParameter, Interrupted
from harness.experiments.base import Results
from harness.paths import Project
from harness.runs import claims, parameters
from harness.runs.journal import Entry
from harness.runs.sweeps import journal as journals
from harness.runs.sweeps import kept, samples, tables
from harness.runs.sweeps.kept import FINISHED, REFUSED, Kept
from harness.runs.sweeps.machines import TIER, Machine, Maker
from harness.runs.sweeps.needless import Needless
from harness.runs.sweeps.pool import open_pool
from harness.runs.sweeps.recorded import ANOTHER_SCALE, at_larger_scale, decided_by_scale
from harness.runs.sweeps.samples import Design
from harness.runs.sweeps.tables import ABOUT, ANSWERS, CLAIMS, MACHINES, of_default
from harness.runs.sweeps.unknowns import Unknowns, Value, load
from harness.runs.sweeps.work import Outcome, Work, software
from harness.system.files import digests_of, publication

_REFUSED: Final = "refused"
"""A remark in the journal: why the model cannot be such a machine."""

_AHEAD: Final = 16
"""Machines whose first points are run before the others of one: more than workers have in hand."""


@dataclass(frozen=True)
class Asked:
    """What a user wants: so many machines (or as many as the unknowns' file says) of a design, or
    those of a file of samples; at a scale, or the unknowns' own.
    """

    machines: int | None = None
    design: Design = "sobol"
    samples: Path | None = None
    scale: str | None = None

    def values(self, unknowns: Unknowns) -> list[dict[str, Value]]:
        """The machines' values; the default machine is the first. Raises BadParameter."""
        if self.samples is not None:
            return samples.listed(unknowns, self.samples)
        draw = samples.totals if self.design == "totals" else samples.sobol
        return draw(unknowns, unknowns.machines if self.machines is None else self.machines)

    @property
    def drawn(self) -> Design:
        """How the machines were chosen."""
        return "list" if self.samples is not None else self.design


class Sweep:
    """A study's sweep. Raises HarnessError for bad unknowns or parameters."""

    def __init__(self, project: Project, study: str, asked: Asked | None = None) -> None:
        self.project, self.study = project, study
        self.asked = asked or Asked()
        self.unknowns = load(project, study)
        self.maker = Maker(project, study, self.unknowns, self.asked.scale)
        values = self.asked.values(self.unknowns)
        self.machines: list[Machine] = [self.maker.make(n, each) for n, each in enumerate(values)]
        self.journal = journals.of_study(project, study)

    @cached_property
    def keys(self) -> list[list[str]]:
        """Per machine, its points' keys in the order in which they are run."""
        return [[self.maker.key(machine, p) for p in machine.points] for machine in self.machines]

    @cached_property
    def points(self) -> dict[int, str]:
        """Number -> digest of the machine's points, by their keys; empty of one without any."""
        return {
            machine.number: kept.points_digest(keys) if keys else ""
            for machine, keys in zip(self.machines, self.keys, strict=True)
        }

    @cached_property
    def kept(self) -> dict[int, Kept]:
        """Number -> what is recorded in data/ of that machine."""
        folder = place(self.project, self.study, self.maker.scale, self.asked.drawn, publish=True)
        there = kept.read(folder, self._asked_for, self.unknowns.as_paper)
        found = {number: there.get(points) for number, points in self.points.items()}
        return {number: each for number, each in found.items() if each is not None}

    @cached_property
    def _asked_for(self) -> dict[str, str]:
        return kept.claims_digests(self.project, self.study)

    def run(
        self, workers: int = 1, scheduler: str = "", say: Callable[[str], None] = print
    ) -> list[str]:
        """Runs what neither journal nor record has; returns what failed and should not, in lines.

        Raises Interrupted on Ctrl-C, HarnessError if workers or scheduler are lost: what is
        finished is kept.
        """
        with self.journal.alone(lambda other: say(f"waiting for {other}")):
            finished = self.journal.entries()
            todo = self.todo(finished)
            if not todo:
                return []
            needless = Needless(
                {n: points for n, points in enumerate(self.keys) if n not in self.kept}
            )
            needless.refuse(key for key, entry in finished.items() if _is_refused(entry))
            with open_pool(workers, scheduler) as pool:
                say(f"dashboard: {pool.dashboard}")
                works = [work for work, _ in todo.values()]
                return self._record(pool.run(works, needless.__contains__), todo, needless)

    def todo(self, finished: Mapping[str, Entry]) -> dict[str, tuple[Work, Entry]]:
        """Key -> a point to be run, once, and its line of the journal without what it will give.

        Of a machine that is refused at a point, none that comes after it. A machine's first point
        is run some machines ahead of its others: whether it is refused is known before these are
        handed out.
        """
        todo: dict[str, tuple[Work, Entry]] = {}
        turns: dict[str, int] = {}
        for machine, keys in zip(self.machines, self.keys, strict=True):
            if machine.number in self.kept:
                continue
            for point, key in zip(machine.points, keys, strict=True):
                if _is_refused(finished.get(key)):
                    break
                if key not in finished and key not in todo:
                    assert machine.parameters is not None
                    work = Work(
                        key,
                        self.study,
                        point,
                        machine.parameters,
                        machine.profiles,
                        machine.host,
                        self.maker.bench_parameters,
                        self.maker.code,
                        self.maker.input(machine.parameters),
                        software(),
                        self.project.root,
                    )
                    todo[key] = (work, Entry(key, point.id, point.values, {}, {}, False, {}))
                    turns[key] = machine.number + (_AHEAD if key != keys[0] else 0)
        return {key: todo[key] for key in sorted(todo, key=turns.__getitem__)}

    def _record(
        self,
        batches: Iterable[Sequence[Outcome]],
        todo: Mapping[str, tuple[Work, Entry]],
        needless: Needless,
    ) -> list[str]:
        failed = []
        done: set[str] = set()
        spared: set[str] = set()
        with tqdm(
            total=len(todo),
            desc=f"{self.study}, {len(self.machines)} machines",
            unit="point",
            file=sys.stderr,
            mininterval=0.5,
            dynamic_ncols=True,
        ) as progress:
            try:
                for outcomes in batches:
                    sound = [each for each in outcomes if not each.failed]
                    if sound:
                        entries = [_entry(todo[each.key][1], each) for each in sound]
                        self.journal.append_all(entries)
                    failed += [
                        f"{todo[each.key][0].point.label}: {each.failed}"
                        for each in outcomes
                        if each.failed
                    ]
                    done |= {each.key for each in outcomes}
                    if refused := [each.key for each in outcomes if each.refused]:
                        spared |= (needless.refuse(refused) & todo.keys()) - done
                        progress.total = len(todo) - len(spared)
                    progress.update(len(outcomes))
            except KeyboardInterrupt:
                raise Interrupted(
                    f"interrupted: {progress.n} of {progress.total} points were finished and are "
                    "kept; run the same command again to continue"
                ) from None
        return failed

    @property
    def scale(self) -> str:
        """How large the runs are, as verdicts say it."""
        values = next((m.parameters for m in self.machines if m.parameters is not None), None)
        return parameters.scale_of(values) if values is not None else self.maker.scale

    def table(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """All machines, a row each, and their claims' values: of those whose points are all there.

        Machines: `machine` (its number), a column for each unknown, `state` (finished, refused,
        unfinished), `reason` and `points` (a digest of their keys; empty: none). Claims:
        `machine`, `claim`, `value` (NaN: the points that it needs are not in the sweep, or its
        metric has no value).
        """
        finished = self.journal.entries()
        rows, values = [], []
        with _Judge(self) as judge:
            for machine, keys in zip(self.machines, self.keys, strict=True):
                found = self._taken(machine, keys, finished) or judge.machine(
                    machine, [finished.get(key) for key in keys]
                )
                rows.append(
                    {
                        "machine": machine.number,
                        **machine.values,
                        "state": found.state,
                        "reason": found.reason,
                        "points": self.points[machine.number],
                    }
                )
                values += [
                    {"machine": machine.number, "claim": name, "value": value}
                    for name, value in found.values.items()
                ]
        frame = pd.DataFrame(values, columns=["machine", "claim", "value"])
        return pd.DataFrame(rows), frame.astype({"machine": "int64", "value": "float64"})

    def _taken(
        self, machine: Machine, keys: Sequence[str], finished: Mapping[str, Entry]
    ) -> Kept | None:
        """What is recorded of a machine, but of one whose points are all here, and which has not
        been asked for every claim that there is now.
        """
        there = self.kept.get(machine.number)
        if (
            there is None
            or there.state != FINISHED
            or self._asked_for.keys() <= there.values.keys()
        ):
            return there
        return None if all(key in finished for key in keys) else there

    def publish(self, folder: Path) -> pd.DataFrame:
        """Writes machines.parquet, claims.parquet and about.json, all of them or none.

        Answers that were made of something else go. Returns the machines. Raises BadParameter in
        place of a record of more of them.
        """
        machines, values = self.table()
        before = _machines_in(folder)
        recorded = folder.is_relative_to(self.project.root / "data")
        if recorded and _count(before) > _count(machines):
            raise BadParameter(
                f"{folder} has {_count(before)} finished machines, this sweep {_count(machines)}: "
                f"ask for as many (--machines {len(before) - 1}), or delete that folder first"
            )
        for name, unknown in self.unknowns.unknowns.items():
            if unknown.range is not None:
                machines[name] = machines[name].astype("float64")
        made = {MACHINES: parquet(machines), CLAIMS: parquet(values)}
        facts = {**self._about(machines, values), "files": digests_of(made)}
        made[ABOUT] = (json.dumps(facts, indent=1, sort_keys=True) + "\n").encode()
        with publication() as files:
            if (folder / ANSWERS).is_dir() and not _has(folder / ABOUT, made[ABOUT]):
                files.empty(folder / ANSWERS)
            for name, data in made.items():
                files.write(folder / name, data, make_folder=True)
        return machines

    def _about(self, machines: pd.DataFrame, values: pd.DataFrame) -> dict[str, Any]:
        states = machines.state.value_counts()
        asked = values.claim.value_counts()
        known = {claim.id: claim for claim in claims.load(self.project)[self.study].claims}
        larger, _ = at_larger_scale(self.project, self.study, self.scale, self.maker.code)
        return {
            "study": self.study,
            "tier": TIER,
            "scale": self.scale,
            "design": self.asked.drawn,
            "seed": samples.SEED,
            "machines": len(machines),
            **{state: int(states.get(state, 0)) for state in (FINISHED, REFUSED, "unfinished")},
            # Of a machine that was recorded before a claim was written nobody knows its value.
            "claims": {
                name: digest
                for name, digest in self._asked_for.items()
                if asked.get(name, 0) == states.get(FINISHED, 0)
            },
            "code": self.maker.code,
            ANOTHER_SCALE: decided_by_scale(known, of_default(values), larger),
            "default": self.maker.identity(self.machines[0]),
            "package": harness.__version__,
            kept.AS_PAPER: self.unknowns.as_paper,
            "unknowns": self.unknowns.digest,
        }


def place(project: Project, study: str, scale: str, design: Design, *, publish: bool) -> Path:
    """The folder of a sweep's tables: below data/ if it is to be published, else below build/."""
    below = project.root / "data" if publish else project.build
    return below / "sweeps" / f"{study}.{scale}.{design}"


def _machines_in(folder: Path) -> pd.DataFrame:
    """That are recorded there, as `Sweep.table` has them; none if nothing can be read."""
    try:
        return tables.read(folder)[0]
    except (OSError, ValueError):
        return pd.DataFrame(columns=["state", "points"])


def _has(path: Path, data: bytes) -> bool:
    """Whether that is what the file has; one that is not there has nothing."""
    return path.is_file() and path.read_bytes() == data


def _count(machines: pd.DataFrame) -> int:
    return int((machines.state == FINISHED).sum())


def _is_refused(entry: Entry | None) -> bool:
    return entry is not None and _REFUSED in entry.metrics


def _entry(point: Entry, outcome: Outcome) -> Entry:
    refused = {_REFUSED: outcome.refused} if outcome.refused else {}
    return replace(
        point,
        metrics={**outcome.metrics, **refused},
        series={name: list(values) for name, values in outcome.series.items()},
        about={"machine": dict(outcome.machine), "duration_s": round(outcome.seconds, 3)},
    )


def parquet(frame: pd.DataFrame) -> bytes:
    """The same bytes for the same rows: no index, and nothing of pandas' own in the header."""
    sink = io.BytesIO()
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


class _Judge:
    """Claims' values over one machine after the other, in one database."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._claims = claims.load(sweep.project)[sweep.study].claims
        empty = Results(TIER, pd.DataFrame(), {}, lambda _: None, scale=sweep.scale)
        self._judge = claims.Judge(sweep.project, sweep.study, empty)

    def __enter__(self) -> _Judge:
        self._judge.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._judge.__exit__(*error)

    def machine(self, machine: Machine, entries: Sequence[Entry | None]) -> Kept:
        """What a machine's points in the journal make of it; None: one is not there."""
        if machine.refused:
            return Kept(REFUSED, machine.refused, {})
        there = []
        for entry in entries:
            if entry is None:
                return Kept("unfinished", "", {})
            if _is_refused(entry):
                return Kept(REFUSED, str(entry.metrics[_REFUSED]), {})
            there.append(entry)
        return Kept(FINISHED, "", self._values(there))

    def _values(self, entries: Sequence[Entry]) -> dict[str, float]:
        """Claim -> value, of a machine's points."""
        as_paper = self._sweep.unknowns.as_paper
        rows = [
            {"scale": self._sweep.scale, **entry.values, **entry.metrics, "point": entry.point}
            for entry in entries
        ]
        table = pd.DataFrame(rows)
        if "variant" in table:
            table["variant"] = table.variant.replace(dict.fromkeys(as_paper, claims.BASE))
        series = {entry.point: entry.series for entry in entries}
        self._judge.turn_to(Results(TIER, table, series, lambda _: None, scale=self._sweep.scale))
        values = {claim.id: self._judge.value(claim, claims.BASE, None) for claim in self._claims}
        return {name: float("nan") if v is None else float(v) for name, v in values.items()}
