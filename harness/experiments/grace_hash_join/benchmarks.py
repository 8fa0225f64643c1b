"""Figures of the Grace hash join: the claims, and the engine beside fio and two databases."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
from rich.console import Console

from harness import _core
from harness.dbms import postgres
from harness.drives import fingerprint, scratch
from harness.errors import HarnessError, MissingTool
from harness.experiments.base import Runs
from harness.goals import Goal, within
from harness.tiers.base import DATA_OFFSET_BYTES
from harness.tiers.hardware import FileDevice
from harness.workloads.records import RECORD_BYTES
from harness.workloads.tpch import JoinInputs, expected_join, join_inputs

_COMMAND: Final = "make bench ONLY=grace_hash_join"
_RUNS: Final = 5
_MIB: Final = 1 << 20
_WARM_UP: Final = 1


def measure(runs: Runs, console: Console) -> Iterator[Goal]:
    """All figures of the group."""
    console.print("the claims, then the engine beside fio, PostgreSQL and DuckDB: minutes")
    yield from _claims(runs)
    project = runs.project
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="flashlab-bench-") as folder:
        place = Path(folder)
        place.chmod(0o711)
        inputs = join_inputs(project.raw, "paper")
        with Engine(place / "target", inputs, expected_join(project.raw, inputs)) as engine:
            for setting in _FIO_SETTINGS:
                yield _beside_fio(engine, place, setting)
            yield _beside(engine, _Postgres(place, inputs), "PostgreSQL", ">= 3", 32 * _MIB)
            yield _beside(engine, _DuckDb(place, inputs), "DuckDB", ">= 1.2", 160 * _MIB)


def _claims(runs: Runs) -> Iterator[Goal]:
    """One figure per claim of the paper, on the simulated tier: samples are the repetitions."""
    with runs.open("simulated") as session:
        for row in runs.judge(session.run()).itertuples():
            spread = [row.lowest, row.value, row.highest] if row.lowest is not None else [row.value]
            yield Goal(
                name=f"{row.id}: {row.statement}",
                is_claim=True,
                unit=row.unit,
                goal=within(*row.expected),
                command=_COMMAND,
                samples=[] if row.value is None else spread,
                missing="not run" if row.value is None else "",
            )


@dataclass(frozen=True)
class Join:
    """A setting of the engine: buffers in bytes."""

    read_buffer: int
    write_buffer: int
    queue_depth: int
    users: int = 1

    def spec(self) -> _core.JoinSpec:
        """For the core."""
        return _core.JoinSpec(
            algorithm=_core.Algorithm.grace,
            read_buffer_bytes=self.read_buffer,
            write_buffer_bytes=self.write_buffer,
            input_io_bytes=min(_MIB, self.read_buffer),
            queue_depth=self.queue_depth,
            trace=self.is_serial,
        )

    @property
    def is_serial(self) -> bool:
        """Whether it computes nothing while a transfer is under way."""
        return self.queue_depth == 1


class Engine:
    """The join engine on a scratch file with the inputs in place, with room for two users."""

    def __init__(self, target: Path, inputs: JoinInputs, expected: tuple[int, int]) -> None:
        self._target = target
        self._expected = expected
        self.orders, self.lineitem = len(inputs.orders), len(inputs.lineitem)
        self._inputs = inputs
        self._lineitem_at = DATA_OFFSET_BYTES + _aligned(self.orders * RECORD_BYTES)
        self._scratch_at = self._lineitem_at + _aligned(self.lineitem * RECORD_BYTES)
        self._each = _aligned((self.orders + self.lineitem) * RECORD_BYTES * 11 // 10)
        self._stack = ExitStack()

    def __enter__(self) -> Engine:
        size = self._scratch_at + 2 * self._each
        self._device = FileDevice(self._stack.enter_context(scratch.use(self._target, size)))
        self._device.place(DATA_OFFSET_BYTES, self._inputs.orders)
        self._device.place(self._lineitem_at, self._inputs.lineitem)
        # Scratch space that was never written would be cheaper to write than to write again.
        self.run(Join(16 * _MIB, _MIB // 16, 8, users=2))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, join: Join) -> list[dict[str, Any]]:
        """One dictionary of results per user, checked."""
        jobs = [
            _core.UserJob(
                build_offset_bytes=DATA_OFFSET_BYTES,
                build_records=self.orders,
                probe_offset_bytes=self._lineitem_at,
                probe_records=self.lineitem,
                scratch_begin_bytes=self._scratch_at + user * self._each,
                scratch_end_bytes=self._scratch_at + (user + 1) * self._each,
            )
            for user in range(join.users)
        ]
        users = _core.run_joins(self._device.storage, join.spec(), jobs, _core.Cancel())
        assert all((u["matches"], u["checksum"]) == self._expected for u in users)
        return list(users)

    def largest_within(self, memory_bytes: int) -> Join:
        """The largest read buffer whose join stays within a memory limit, all buffers counted."""
        for mib in range(memory_bytes // _MIB, 0, -1):
            join = Join(mib * _MIB, _MIB // 16, 16)
            if _core.join_memory_bytes(join.spec(), self.orders, block_bytes=4096) <= memory_bytes:
                return join
        raise AssertionError("no read buffer is small enough")


_FIO_SETTINGS: Final = (
    Join(16 * _MIB, 64 << 10, queue_depth=32),
    Join(16 * _MIB, 64 << 10, queue_depth=32, users=2),
    Join(16 * _MIB, 4 << 10, queue_depth=32),
    Join(16 * _MIB, 64 << 10, queue_depth=1),
)


def _beside_fio(engine: Engine, place: Path, join: Join) -> Goal:
    """Bytes per second of the engine over those of fio with the same I/O, phase by phase.

    Of the time that its transfers take, where it computes between them: fio computes nothing.
    """
    goal = ">= 0.95" if join.is_serial else ">= 0.9"
    name = (
        f"engine's bytes/s {'of transfer time ' if join.is_serial else ''}over fio's: "
        f"{join.write_buffer >> 10} KiB units, depth {join.queue_depth}, users {join.users}"
    )
    if shutil.which("fio") is None:
        return Goal(name, "ratio", goal, _COMMAND, missing="fio is not installed")
    file = place / "fio"
    _fio(file, join, ["--rw=write", "--bs=1M", "--size=2G", "--iodepth=8"], users=1)
    ratios, sides = [], []
    for i in range(_WARM_UP + _RUNS):
        users = engine.run(join)
        elapsed_s = max(user["elapsed_ns"] for user in users) / 1e9
        engine_s = _transfers_s(users) if join.is_serial else elapsed_s
        fio_s = _fio_seconds(file, join, users)
        if i >= _WARM_UP:
            ratios.append(fio_s / engine_s)
            seconds = {"engine_s": engine_s, "elapsed_s": elapsed_s, "fio_s": fio_s}
            sides.append({name: round(value, 3) for name, value in seconds.items()})
    file.unlink()
    return Goal(name, "ratio", goal, _COMMAND, ratios, context={"runs": sides, **_where(place)})


def _transfers_s(users: list[dict[str, Any]]) -> float:
    """From each transfer's submission to its completion, one after the other; the longest user."""
    traces = [user["trace"] for user in users]
    return max(float((t["completed_ns"] - t["submitted_ns"]).sum()) for t in traces) / 1e9


def _fio_seconds(file: Path, join: Join, users: list[dict[str, Any]]) -> float:
    """How long fio takes to move as many bytes as the engine did, with the same sizes and depth."""

    def moved(phase: str, op: str) -> int:
        return sum(int(user["io"][phase][op]["bytes"]) for user in users)

    unit, chunk = join.write_buffer, min(_MIB, join.read_buffer)
    reads = round(100 * unit / (unit + chunk)) or 1  # of requests, so that the bytes are equal
    mixed = [
        "--rw=rw",
        f"--bs={chunk},{unit}",
        f"--rwmixread={reads}",
        "--size=2G",
        f"--io_size={2 * moved('partition', 'read') // join.users}",
    ]
    scattered = ["--rw=randread", f"--bs={unit}", "--size=2G"]
    scattered.append(f"--io_size={moved('join', 'read') // join.users}")
    partition = moved("partition", "read") + moved("partition", "write")
    rate = _fio(file, join, mixed, join.users), _fio(file, join, scattered, join.users)
    return partition / rate[0] + moved("join", "read") / rate[1]


def _fio(file: Path, join: Join, options: list[str], users: int) -> float:
    """Bytes per second. Registered buffers, as the engine has them."""
    depth = (
        [] if any(o.startswith("--iodepth") for o in options) else [f"--iodepth={join.queue_depth}"]
    )
    command = [
        *("fio", "--name=bench", f"--filename={file}", "--ioengine=io_uring", "--direct=1"),
        *("--fixedbufs=1", "--output-format=json", "--thread", "--group_reporting"),
        *(f"--numjobs={users}", *depth, *options),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(f"fio: {done.stderr.strip().splitlines()[-1:]}")
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    return float(job["read"]["bw_bytes"] + job["write"]["bw_bytes"])


class _Postgres:
    """The same join in PostgreSQL: rows of the same width, work_mem as the limit."""

    def __init__(self, place: Path, inputs: JoinInputs) -> None:
        self._place, self._inputs = place, inputs
        self._stack = ExitStack()

    def start(self, memory_bytes: int) -> Callable[[], float]:
        settings = {
            "shared_buffers": "128MB",
            "work_mem": f"{memory_bytes >> 10}kB",
            "hash_mem_multiplier": "1",
            "max_parallel_workers_per_gather": "0",
            "enable_mergejoin": "off",
            "enable_nestloop": "off",
            "jit": "off",
            "max_wal_size": "4GB",
        }
        server = self._stack.enter_context(postgres.run(self._place, settings))
        self._db = self._stack.enter_context(server.connect())
        for name, rows in (("orders", self._inputs.orders), ("lineitem", self._inputs.lineitem)):
            self._load(name, rows)
        self.version = f"PostgreSQL {server.version}"
        self._check_spills()
        return self._run

    def close(self) -> None:
        self._stack.close()

    def _load(self, name: str, rows: np.ndarray[Any, Any]) -> None:
        self._db.execute(
            f"CREATE TABLE {name} (key int8, row int8, first int4, second int4, signature int8,"
            " padding bytea)"
        )
        copy = f"COPY {name} FROM STDIN (FORMAT binary)"
        with self._db.cursor() as cursor, cursor.copy(copy) as sink:
            sink.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
            for at in range(0, len(rows), 1 << 16):
                sink.write(_binary_rows(rows[at : at + (1 << 16)]))
            sink.write(b"\xff\xff")
        self._db.execute(f"VACUUM ANALYZE {name}")

    def _check_spills(self) -> None:
        plan = self._db.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {_QUERY}").fetchone()
        text = json.dumps(plan)
        if '"Hash Batches"' not in text or '"Hash Batches": 1,' in text:
            raise HarnessError("PostgreSQL's hash join did not spill: nothing to compare")

    def _run(self) -> float:
        begin = time.monotonic()
        self._db.execute(_QUERY).fetchone()
        return time.monotonic() - begin


class _DuckDb:
    """The same join in DuckDB: its own table format, memory_limit as the limit, one core, as the
    engine has.
    """

    def __init__(self, place: Path, inputs: JoinInputs) -> None:
        self._place, self._inputs = place, inputs
        self.version = f"DuckDB {duckdb.__version__}"
        self._db: duckdb.DuckDBPyConnection | None = None

    def start(self, memory_bytes: int) -> Callable[[], float]:
        file = self._place / "duck.db"
        with duckdb.connect(str(file)) as loading:
            loading.execute("SET memory_limit = '4GiB'")
            for name, rows in (
                ("orders", self._inputs.orders),
                ("lineitem", self._inputs.lineitem),
            ):
                arrays = {c: np.ascontiguousarray(rows[c]) for c in rows.dtype.names or ()}
                loading.register("source", pa.table(arrays))
                columns = f"CREATE TABLE {name} AS SELECT *, repeat('0', 96)::BLOB AS padding"
                loading.execute(f"{columns} FROM source")
        self._db = duckdb.connect(str(file))
        self._db.execute(f"SET memory_limit = '{memory_bytes >> 20}MiB'")
        self._db.execute(f"SET temp_directory = '{self._place / 'duck.tmp'}'")
        self._db.execute("SET preserve_insertion_order = false")
        self._db.execute("SET threads = 1")
        return self._run

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    def _run(self) -> float:
        assert self._db is not None
        begin = time.monotonic()
        self._db.execute(_QUERY.replace("length", "octet_length")).fetchall()
        return time.monotonic() - begin


# Every column of both sides is carried through the join, the padding too.
_QUERY: Final = """
    SELECT count(*), sum(o.row + l.row), sum(length(o.padding) + length(l.padding)),
           sum(o.first + l.first), sum(o.second + l.second), min(o.signature), max(l.signature)
    FROM orders o JOIN lineitem l ON o.key = l.key
"""


def _beside(
    engine: Engine, other: _Postgres | _DuckDb, name: str, goal: str, memory_bytes: int
) -> Goal:
    """The other system's time over the engine's, same data and memory, runs in turn."""
    title = f"{name}'s time over the engine's, {memory_bytes >> 20} MiB each"
    try:
        run_other = other.start(memory_bytes)
    except MissingTool as error:
        return Goal(title, "ratio", goal, _COMMAND, missing=str(error))
    try:
        join = engine.largest_within(memory_bytes)
        ratios, sides = [], []
        for i in range(_WARM_UP + _RUNS):
            engine_s = engine.run(join)[0]["elapsed_ns"] / 1e9
            other_s = run_other()
            if i >= _WARM_UP:
                ratios.append(other_s / engine_s)
                sides.append({"engine_s": round(engine_s, 3), "other_s": round(other_s, 3)})
        context = {"runs": sides, "other": other.version, "cpus": os.cpu_count()}
        return Goal(title, "ratio", goal, _COMMAND, ratios, context=context)
    finally:
        other.close()


def _binary_rows(rows: np.ndarray[Any, Any]) -> bytes:
    """Rows in PostgreSQL's binary COPY format: per column its size, then its big-endian bytes."""
    fields = [
        ("key", ">i8"),
        ("row", ">i8"),
        ("first", ">i4"),
        ("second", ">i4"),
        ("signature", ">i8"),
    ]
    layout: list[tuple[str, Any]] = [("n", ">i2")]
    for name, kind in fields:
        layout += [(f"{name}_size", ">i4"), (name, kind)]
    layout += [("padding_size", ">i4"), ("padding", "V96")]
    out = np.zeros(len(rows), dtype=np.dtype(layout))
    out["n"] = len(fields) + 1
    for name, kind in fields:
        out[f"{name}_size"] = np.dtype(kind).itemsize
        out[name] = rows[name].astype(kind.replace(">", "<"), casting="unsafe")
    out["padding_size"] = 96
    return out.tobytes()


def _aligned(size: int) -> int:
    return -(-size // _MIB) * _MIB


def _where(place: Path) -> dict[str, str]:
    return {**fingerprint.machine(), **fingerprint.storage_of(place)}


_JOINS: Final[dict[str, Any]] = {
    "scale": "small",
    "settings": {
        "repetitions": "1",
        "read_buffers": "[4 MiB, 16 MiB]",
        "write_buffers": "[4 KiB, 64 KiB]",
        "users": "[1, 2]",
        "algorithms": "[grace]",
        "queue_depths": "[1]",
    },
}


def on_live_devices(runs: Runs, console: Console) -> Iterator[Goal]:
    """The join on emulated disk and flash, beside the same points in virtual time."""
    command = "make bench ONLY=live_device"
    console.print("the join on emulated disk and flash")
    try:
        with runs.open("emulated", **_JOINS) as session:
            session.run()
        table = runs.compare(**_JOINS)
    except HarnessError as error:
        yield Goal("Grace join, emulated over simulated", "", "", command, missing=str(error))
        return
    for device, rows in table.groupby("device"):
        for phase in ("partition", "join"):
            what = f"Grace join on {device}: {phase} phase, emulated over simulated"
            ratios = rows[f"{phase}_s_ratio"].tolist()
            yield Goal(what, "ratio", ">= 0.9 and <= 1.1", command, ratios)
    unit = f"of {int(table.ios_compared.sum())} counts"
    differing = [float(table.ios_differ.sum())]
    what = "Grace join: I/O counts that differ, emulated and simulated"
    yield Goal(what, unit, "== 0", command, differing)


BENCHMARKS: Final = {"grace_hash_join": (measure,), "live_device": (on_live_devices,)}
