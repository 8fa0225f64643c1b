"""Every request as a live device's model saw it, in a Parquet file; and its exact replay.

Columns: time_ns (int64, the model's time), op (uint8: 0 read, 1 write, 2 trim, 3 flush), lba and
sectors (int64, of 512 B), stream (uint16), fua (bool). The file's metadata hold the device's spec,
and its counters at the record's end. It has its name only when it is whole: a device that was
killed leaves a file that ends in .part. Beside it lies the model's state at the record's beginning.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from harness import _core
from harness.devices.live.spec import LiveSpec
from harness.devices.model import Device, Run
from harness.errors import BadParameter, DataFolderError, TargetError, TraceError
from harness.system import new_files

_SPEC: Final = b"flashlab.spec"
_CHANGED: Final = b"flashlab.changed"
_END: Final = b"flashlab.end"
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
    """Receives what a device records, in a thread of its own, in bounded memory.

    `made` is told of each file, and its descriptor, before anything is in it. Raises TargetError if
    there is no folder for it or something has its name already.
    """

    def __init__(
        self,
        device: _core.LiveDevice,
        path: Path,
        spec: LiveSpec,
        made: Callable[[Path, int], None] = lambda *_: None,
    ) -> None:
        self._device = device
        self._made = made
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._spec = spec
        self._changed: list[str] = []
        self._files: list[BinaryIO] = []
        try:
            self._begin()
        except OSError as error:
            self._give_up()
            raise TargetError(f"{path}: {error.strerror}: choose another place") from error
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._drain, name="recording")
        self._thread.start()

    def _begin(self) -> None:
        """Files that are new, and locked until they are whole: nobody else records to them."""
        part = self._new_file(self._part)
        if os.path.lexists(self._path):  # only now nobody finishes another record of that name
            raise FileExistsError(errno.EEXIST, "something of that name exists")
        initial = self._new_file(initial_path(self._path))
        initial.write(self._device.save(then_record=True))
        initial.flush()
        self._writer = pq.ParquetWriter(part, SCHEMA, compression="zstd")

    def _new_file(self, path: Path) -> BinaryIO:
        self._files.append(new_files.new_file(path))
        self._made(path, self._files[-1].fileno())
        return self._files[-1]

    def _give_up(self) -> None:
        """The device may record already, and nobody would take that away."""
        self._device.end_record()
        self._device.take_records()
        for file in self._files:
            Path(file.name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # a full disk
                file.close()

    def note_change(self, what: str) -> None:
        """The model was told something that is no request: a replay will not be exact."""
        self._changed.append(what)

    def close(self) -> None:
        """Waits until nothing is in flight, writes the rest and gives the file its name.

        Raises DataFolderError if it cannot be written, and then it has not got its name; because of
        FileExistsError if it is whole, and somebody else has taken that.
        """
        end = self._device.end_record()
        self._ending.set()
        self._thread.join()
        if lost := end["live"]["lost_records"]:
            self._changed.append(f"{lost} requests were not recorded")
        counted = {"time_ns": end["now_ns"], "counters": end["device"]}
        try:
            self._writer.add_key_value_metadata(
                {
                    _SPEC: self._spec.model_dump_json(),
                    _CHANGED: "; ".join(self._changed),
                    _END: json.dumps(counted),
                }
            )
            self._writer.close()
            for file in self._files:
                file.flush()
            new_files.name_new(self._part, self._path)
            for file in self._files:
                file.close()
        except FileExistsError as error:
            for file in self._files:
                file.close()
            raise DataFolderError(
                f"{self._path} has come to be meanwhile, and is not touched: the record, which is "
                f"whole, is {self._part}: rename it, and {initial_path(self._path).name} with it"
            ) from error
        except OSError as error:
            raise DataFolderError(f"cannot write the record {self._path}: {error}") from error

    def _drain(self) -> None:
        ending = False
        while not ending:
            ending = self._ending.wait(_PERIOD_S)
            records = self._device.take_records()
            try:
                self._write(records)
            except OSError as error:  # a record with gaps is told from a whole one
                self._changed.append(f"requests could not be written to it ({error})")

    def _write(self, records: dict[str, Any]) -> None:
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
class Replayed:
    """A device after a replay; `recorded` are the live one's counters at the end of the record."""

    device: Device
    run: Run
    recorded: dict[str, int]

    def differences(self) -> dict[str, tuple[int, int]]:
        """Counters that are not the same: recorded and replayed."""
        counters = self.device.counters
        return {
            name: (value, counters[name])
            for name, value in self.recorded.items()
            if counters[name] != value
        }


def initial_path(path: Path) -> Path:
    """Where the model's state at the start of a record lies."""
    return path.with_name(path.name + ".initial")


def replay(path: Path, *, queue_depth: int = 0, rows: bool = False) -> Replayed:
    """The device after the recorded requests, in virtual time, from the state that it began with.

    It has gone on to the moment at which the record ended: its counters and its map are the live
    device's of then, to the last one. With a `queue_depth` the requests' times are ignored, and so
    many are kept outstanding, as by a host that takes no time. `rows` records every request. Raises
    TraceError for a record that is damaged, or that something else than requests has influenced.
    """
    try:
        file = pq.ParquetFile(path)
        metadata = file.metadata.metadata or {}
        spec = LiveSpec.model_validate_json(metadata[_SPEC])
        end = json.loads(metadata[_END])
        changed = metadata[_CHANGED].decode()
        initial = initial_path(path).read_bytes()
    except (OSError, KeyError, ValueError, pa.ArrowInvalid) as error:
        raise TraceError(str(path), 0, f"is no record of a live device: {error}") from error
    if changed:
        raise TraceError(str(path), 0, f"cannot be replayed exactly: {changed}")
    device = Device(spec.device_profile(), seed=spec.seed)
    try:
        device.restore(initial)
    except BadParameter as error:
        raise TraceError(str(initial_path(path)), 0, f"does not fit the record: {error}") from error
    start_ns = device.now_ns
    chunks = (_chunk(batch, start_ns) for batch in file.iter_batches())
    exact = queue_depth == 0
    run = device.replay(
        chunks,
        queue_depth=queue_depth,
        until_ns=end["time_ns"] - start_ns if exact else None,
        as_submitted=exact,
        rows=rows,
    )
    return Replayed(device, run, dict(end["counters"]))


def _chunk(batch: pa.RecordBatch, start_ns: int) -> _Chunk:
    columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in SCHEMA.names}
    columns["time_ns"] = columns["time_ns"] - start_ns
    return _Chunk(**columns)
