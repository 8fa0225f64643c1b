"""Figures of MS-DJ's workload: TPC-C's load, throughput beside go-tpc's, and consistency."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd
from rich.console import Console

from harness.dbms import mysql
from harness.dbms.innodb import InnodbSettings
from harness.dbms.mysql import Server
from harness.devices.profiles import SsdProfile, load_device
from harness.devices.scaling import scaled_to
from harness.errors import BadParameter, HarnessError, MissingTool, ServerError, TraceError
from harness.experiments.base import Measurement, Point, Results, Runs
from harness.experiments.judged import judged
from harness.experiments.msdj_tpcc import go_tpc, grid, model
from harness.experiments.msdj_tpcc.grid import BASE
from harness.experiments.msdj_tpcc.replayed import Replayed, Requests, replay
from harness.goals import Goal
from harness.paths import Project
from harness.units import format_bytes
from harness.workloads.tpcc import consistency, driver, loading
from harness.workloads.tpcc.connections import Address
from harness.workloads.tpcc.driver import Job
from harness.workloads.tpcc.population import Population
from harness.workloads.tpcc.scale import Scale

_COMMAND: Final = "make bench ONLY=msdj_tpcc"
_EMULATED: Final = "make emulated"
_WAREHOUSES: Final = 10
_CONNECTIONS: Final = 8
_PROCESSES: Final = 2
_MEASURED_S: Final = 20
_ROUNDS: Final = 4
_KILL_AFTER_S: Final = 5.0
_CONDITIONS: Final = 12
_SETTINGS: Final = InnodbSettings(
    buffer_pool_bytes=2 << 30, redo_bytes=1 << 30, io_capacity_pages_per_s=2000
)
_LOAD: Final = f"TPC-C, load of {_WAREHOUSES} warehouses"
_RATIO: Final = (
    f"TpmC over go-tpc's, {_WAREHOUSES} warehouses, {_CONNECTIONS} connections, undelayed device"
)
_WRITE_BUFFERS: Final = ("2 MiB", "4 MiB", "16 MiB")
"""The emulated drive's, and two that its collections do not fill as soon."""

_TIME_SAVED: Final = "time that a stream saves the drive"
_WAF_SAVED: Final = "write amplification that it saves"
_HOLDING: Final = "TPC-C, consistency conditions that hold, fewest"


def measure(runs: Runs, console: Console) -> Iterator[Goal]:
    """All figures of the group: the model, then one server on a plain folder, loaded once."""
    yield from _modelled(runs, console)
    yield from _aged_apart(runs, console)
    yield from _emulated(runs)
    yield from _replayed(runs, console)
    yield from _on_server(runs.project, console)


def _modelled(runs: Runs, console: Console) -> Iterator[Goal]:
    """The paper's grid at its full size, run now, and the claims that it decides."""
    with runs.open("simulated", scale="paper") as session:
        points = [point for point in session.points if point.values["variant"] == BASE]
        console.print(f"{len(points)} points of 150 GB and five hours, in virtual time")
        bench = session.bench.models
        assert bench is not None

        def one(point: Point) -> tuple[Measurement, float]:
            begin = time.monotonic()
            return model.run_point(grid.Cell.of(point), {}, bench), time.monotonic() - begin

        begin = time.monotonic()
        with ThreadPoolExecutor(bench.parallel) as pool:
            found = list(pool.map(one, points))
        elapsed_s = time.monotonic() - begin
    took_s = [t for _, t in found]
    yield _figure("150 GB, five hours, one mode, two at a time", took_s, "<= 240", "s")
    yield _figure(f"150 GB, five hours, {len(points)} points", [elapsed_s], "", "s")
    each_us = [took / _transactions(run) * 1e6 for run, took in found]
    yield _figure("150 GB, a transaction of the model, two at a time", each_us, "<= 30", "us")
    pairs = list(zip(points, found, strict=True))
    table = pd.DataFrame([{**p.values, **run.metrics, "point": p.id} for p, (run, _) in pairs])
    series = {p.id: run.series for p, (run, _) in pairs}
    results = Results("simulated", table, series, lambda _: None)
    yield from judged(runs, results, _COMMAND, "it is decided by another tier or by variants")


def _aged_apart(runs: Runs, console: Console) -> Iterator[Goal]:
    """The pipeline's points, the aged region where no file lies: the paper does not say where."""
    with runs.open("simulated") as session:
        cells = [grid.Cell.of(point) for point in session.points]
        bench = session.bench.models
    assert bench is not None
    found = [
        replace(cell, aged_under_files=False)
        for cell in cells
        if cell.variant == BASE and cell.repetition == 0
    ]
    console.print(f"{len(found)} points of the pipeline's, the aged region behind the files")
    with ThreadPoolExecutor(bench.parallel) as pool:
        ran = pool.map(lambda cell: model.run_point(cell, {}, bench), found)
        for cell, measured in zip(found, ran, strict=True):
            journal = format_bytes(cell.journal_bytes)
            what = f"aged region behind the files, {cell.mode}, journal {journal}"
            waf = float(measured.metrics["waf_ratio"])
            yield _figure(f"{what}: write amplification", [waf], "", "ratio")


def _transactions(run: Measurement) -> float:
    """Those of the measured time: what was before it is work, too, and no excuse."""
    return sum(v for name, v in run.metrics.items() if name.endswith("_transactions"))


def _emulated(runs: Runs) -> Iterator[Goal]:
    """The authors' run beside its simulation."""
    what = "write amplification, emulated against simulated, largest deviation"
    try:
        table = runs.compare()
    except BadParameter as error:
        yield Goal(f"msdj_tpcc: {what}", "ratio", "<= 0.15", _EMULATED, missing=str(error))
        return
    deviation = float((table.waf_ratio - 1.0).abs().max())
    yield Goal(f"msdj_tpcc: {what}", "ratio", "<= 0.15", _EMULATED, [deviation])


def _replayed(runs: Runs, console: Console) -> Iterator[Goal]:
    """The same requests with and without a stream, by drives that differ in their write buffer."""
    table = runs.published("emulated").table
    if table.empty:
        return
    with runs.open("emulated") as session:
        bench = session.bench
        drives = {name: (bench.profile_name(name), bench.overrides) for name in bench.devices}
    for size_bytes, points in table[table["mode"] == "msdj"].groupby("journal_bytes"):
        console.print(f"the recorded requests of {len(points)} runs, replayed")
        for buffer in _WRITE_BUFFERS:
            what = f"recorded requests, journal {format_bytes(size_bytes)}, buffer {buffer}"
            try:
                pairs = [
                    _apart_and_mixed(runs.project, p, drives, buffer)
                    for p in points.to_dict("records")
                ]
            except TraceError as error:
                for saved in (_TIME_SAVED, _WAF_SAVED):
                    name = f"msdj_tpcc: {what}: {saved}"
                    yield Goal(name, "ratio", "", _COMMAND, missing=str(error))
                continue
            time_saved = [1 - apart.elapsed_s / mixed.elapsed_s for apart, mixed in pairs]
            yield _figure(f"{what}: {_TIME_SAVED}", time_saved, "", "ratio")
            waf_saved = [1 - apart.waf_ratio / mixed.waf_ratio for apart, mixed in pairs]
            yield _figure(f"{what}: {_WAF_SAVED}", waf_saved, "", "ratio")


def _apart_and_mixed(
    project: Project,
    point: Mapping[str, Any],
    drives: Mapping[str, tuple[str, Mapping[str, str]]],
    buffer: str,
) -> tuple[Replayed, Replayed]:
    """A run's requests with the journal in a stream of its own, and without. Raises TraceError."""
    trace = project.raw / "msdj_tpcc" / "emulated" / f"{point['point']}.block.parquet"
    requests = Requests.of(trace)
    journal = requests.journal_of(int(point["journal_bytes"]))
    name, overrides = drives[str(point["device"])]

    def on(placement: str) -> Replayed:
        changed = {**overrides, "write_buffer": buffer, "placement": placement}
        profile = load_device(project.profiles, name, changed)
        assert isinstance(profile, SsdProfile)
        return replay(scaled_to(profile, int(point["device_bytes"])), requests, journal)

    return on("range"), on("none")


def _on_server(project: Project, console: Console) -> Iterator[Goal]:
    try:
        mysql.find_programs()
    except HarnessError as error:
        for what, goal in ((_LOAD, "< 60"), (_RATIO, ">= 1"), (_HOLDING, "== 12")):
            yield Goal(f"msdj_tpcc: {what}", "", goal, _COMMAND, missing=str(error))
        return
    with mysql.new_folder(mysql.folder_below(project.raw)) as folder:
        yield from _measured(folder, project, console)


def _measured(folder: Path, project: Project, console: Console) -> Iterator[Goal]:
    with mysql.run(folder, _SETTINGS) as server:
        address = {**server.address, "database": loading.DATABASE}
        checks = _Checks(address)
        context: dict[str, object] = {"server": server.release.series}
        console.print(f"{_LOAD}, {server.release.series}")
        begin = time.monotonic()
        loading.load(address, Population(Scale(_WAREHOUSES)), processes=_PROCESSES)
        yield _figure(_LOAD, [time.monotonic() - begin], "< 60", "s", context)
        checks.check()
        yield from _beside_go_tpc(server, address, checks, project, console)
        console.print("a run during which the server is killed")
        _killed_run(server, address)
    with mysql.run(folder, _SETTINGS) as server:
        recovered = _Checks({**server.address, "database": loading.DATABASE})
        recovered.check()
        loading_job = Job(_CONNECTIONS, _PROCESSES, warm_up_s=0, measured_s=_KILL_AFTER_S)
        driver.run(recovered.address, loading_job, watch=server.check)
        recovered.check()
    yield _figure(f"{_HOLDING}, after the load and each run", checks.holding, "== 12", "conditions")
    what = f"{_HOLDING}, after a killed run and recovery, and after the next run"
    yield _figure(what, recovered.holding, "== 12", "conditions")
    yield _figure("TPC-C, time that all twelve checks take, longest", [max(checks.took_s)], "", "s")


@dataclass
class _Checks:
    """How many of the conditions hold, each time that they are checked, and what that took."""

    address: Address
    holding: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)

    def check(self) -> None:
        begin = time.monotonic()
        found = consistency.check(self.address)
        self.took_s.append(time.monotonic() - begin)
        assert len(found) == _CONDITIONS
        self.holding.append(sum(not condition.violations for condition in found))


def _figure(
    what: str,
    samples: list[float],
    goal: str,
    unit: str,
    context: dict[str, object] | None = None,
) -> Goal:
    return Goal(f"msdj_tpcc: {what}", unit, goal, _COMMAND, samples, context=context or {})


def _beside_go_tpc(
    server: Server, address: Address, checks: _Checks, project: Project, console: Console
) -> Iterator[Goal]:
    """Both in turns on the same data, each round in the other order; the ratio of each round."""
    try:
        peer, missing = go_tpc.built(project.build / "go-tpc"), ""
    except MissingTool as error:
        peer, missing = None, str(error)
    ours: list[float] = []
    theirs: list[float] = []
    for turn in range(_ROUNDS):
        console.print(f"round {turn + 1} of {_ROUNDS}, {_MEASURED_S} s each")
        for mine in (True, False) if turn % 2 == 0 else (False, True):
            if mine:
                ours.append(_our_tpmc(server, address))
            elif peer is not None:
                args = (server.socket, loading.DATABASE, _WAREHOUSES, _CONNECTIONS, _MEASURED_S)
                theirs.append(go_tpc.run(peer, *args))
            checks.check()
    yield _figure("TPC-C, TpmC on an undelayed device", ours, "", "1/min")
    if peer is None:
        yield Goal(f"msdj_tpcc: {_RATIO}", "ratio", ">= 1", _COMMAND, missing=missing)
        return
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    context: dict[str, object] = {
        "our_tpmc": statistics.median(ours),
        "go_tpc_tpmc": statistics.median(theirs),
        "server": server.release.series,
    }
    yield _figure(_RATIO, ratios, ">= 1", "ratio", context)


def _our_tpmc(server: Server, address: Address) -> float:
    """Without a warm-up, since the other has none."""
    job = Job(_CONNECTIONS, _PROCESSES, warm_up_s=0, measured_s=_MEASURED_S)
    return driver.run(address, job, watch=server.check).metrics["tpmc"]


def _killed_run(server: Server, address: Address) -> None:
    job = Job(_CONNECTIONS, _PROCESSES, warm_up_s=0, measured_s=10 * _KILL_AFTER_S)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(driver.run, address, job)
        time.sleep(_KILL_AFTER_S)  # how long it runs, not a wait for something
        server.kill()
        with suppress(ServerError):
            running.result()


BENCHMARKS: Final = {"msdj_tpcc": (measure,)}
