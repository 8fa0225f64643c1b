"""Every request as a live device's model saw it, in a Parquet file; and its exact replay.

Columns: time_ns (int64, the model's time), op (uint8: 0 read, 1 write, 2 trim, 3 flush), lba and
sectors (int64, of 512 B), stream (uint16), fua (bool). The file's metadata hold the device's spec.
It has its name only when it is whole: a device that was killed leaves a file that ends in .part.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from harness import _core
from harness.devices.live.spec import LiveSpec
from harness.devices.model import Device, Run
from harness.errors import TraceError

_SPEC: Final = b"flashlab.spec"
_CHANGED: Final = b"flashlab.changed"
_PERIOD_S: Final = 0.05
SCHEMA: Final = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("op", pa.uint8()),
        ("lba", pa.int64()),
        ("sectors", pa.int64()),
        ("stream", pa.uint16()),
        ("fua", pa.bool_()),
    ]
)


class Recording:
    """Receives what a device records, in a thread of its own, in bounded memory."""

    def __init__(self, device: _core.LiveDevice, path: Path, spec: LiveSpec) -> None:
        self._device = device
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._initial = initial_path(path)
        self._spec = spec
        self._changed: list[str] = []
        self._initial.write_bytes(device.save(then_record=True))
        self._writer = pq.ParquetWriter(self._part, SCHEMA, compression="zstd")
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._drain, name="recording")
        self._thread.start()

    def note_change(self, what: str) -> None:
        """The model was told something that is no request: a replay will not be exact."""
        self._changed.append(what)

    def close(self) -> None:
        """Writes the rest and gives the file its name; nothing may be in flight any more."""
        self._ending.set()
        self._thread.join()
        lost = self._device.snapshot()["live"]["lost_records"]
        if lost:
            self._changed.append(f"{lost} requests were not recorded")
        self._writer.add_key_value_metadata(
            {_SPEC: self._spec.model_dump_json().encode(), _CHANGED: "; ".join(self._changed)}
        )
        self._writer.close()
        self._part.rename(self._path)

    def _drain(self) -> None:
        while not self._ending.wait(_PERIOD_S):
            self._write()
        self._write()

    def _write(self) -> None:
        records = self._device.take_records()
        if len(records["time_ns"]) == 0:
            return
        records["fua"] = records["fua"].astype(bool)
        self._writer.write_table(pa.table(records, schema=SCHEMA))


@dataclass(frozen=True)
class _Chunk:
    """See harness.devices.model.TraceChunk."""

    time_ns: Any
    op: Any
    lba: Any
    sectors: Any
    stream: Any
    fua: Any


@dataclass(frozen=True)
class Replay:
    """A device after a replay, and what the replay did to it."""

    device: Device
    run: Run


def initial_path(path: Path) -> Path:
    """Where the model's state at the start of a record lies."""
    return path.with_name(path.name + ".initial")


def replay(
    path: Path, *, queue_depth: int = 0, until_ns: int | None = None, rows: bool = False
) -> Replay:
    """The recorded requests on the model in virtual time, from the state that it began with.

    With `queue_depth` 0 each request arrives when it did, and the device counts exactly what the
    live one did up to the model's time `until_ns`; otherwise so many are kept outstanding, as under
    a host that takes no time. Raises TraceError for a record that is damaged, or that something
    else than requests has influenced.
    """
    try:
        file = pq.ParquetFile(path)
        metadata = file.metadata.metadata or {}
        spec = LiveSpec.model_validate_json(metadata[_SPEC])
        changed = metadata[_CHANGED].decode()
    except (OSError, KeyError, ValueError, pa.ArrowInvalid) as error:
        raise TraceError(str(path), 0, f"is no record of a live device: {error}") from error
    if changed:
        raise TraceError(str(path), 0, f"cannot be replayed exactly: {changed}")
    device = Device(spec.device_profile(), seed=spec.seed)
    device.restore(initial_path(path).read_bytes())
    begin_ns = device.now_ns
    run = device.replay(
        (_chunk(batch, begin_ns) for batch in file.iter_batches()),
        queue_depth=queue_depth,
        until_ns=None if until_ns is None else until_ns - begin_ns,
        rows=rows,
    )
    return Replay(device, run)


def _chunk(batch: pa.RecordBatch, begin_ns: int) -> _Chunk:
    columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in SCHEMA.names}
    columns["time_ns"] = columns["time_ns"] - begin_ns
    return _Chunk(**columns)
