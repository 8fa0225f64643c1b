"""A recording's Parquet file: written a group of rows at a time, and counted again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import BadParameter, DataFolderError, TraceError, TraceIncomplete, UnknownName
from harness.probes import scripts
from harness.probes.probe import Probe
from harness.probes.proof import Tally, as_facts
from harness.system import new_files

METADATA_KEY: Final = b"flashlab.recording"
_GROUP_ROWS: Final = 262_144


class TraceFile:
    """The file while it is written. Until `publish` it is called `<stem>.incomplete.parquet`.

    Raises BadParameter for a name that does not end in .parquet.
    """

    def __init__(self, output: Path, schema: pa.Schema) -> None:
        if output.suffix != ".parquet":
            raise BadParameter(f"{output}: the trace is Parquet, end its name in .parquet")
        self.output = output
        self.partial = output.with_name(f"{output.stem}.incomplete.parquet")
        self._schema = schema
        self._pending: list[pa.Table] = []

    def open(self) -> None:
        """Makes the file. Raises DataFolderError, also if somebody else records to it now."""
        try:
            self._file = new_files.new_file_over(self.partial)
            self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd")
        except OSError as error:
            raise DataFolderError(
                f"{self.partial}: {error.strerror or error}: choose another place"
            ) from error

    def add(self, table: pa.Table) -> None:
        """Takes rows; writes when there are enough."""
        self._pending.append(table)
        if sum(map(len, self._pending)) >= _GROUP_ROWS:
            self._write()

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Writes what is left, and what there is to say of the recording."""
        self._write()
        self._writer.add_key_value_metadata({METADATA_KEY: json.dumps(facts).encode()})
        self._writer.close()
        self._file.flush()

    def publish(self) -> None:
        """Gives a complete recording its name; closes the file."""
        self.partial.replace(self.output)
        self.close()

    def close(self) -> None:
        """What was written so far stays readable under its incomplete name."""
        self._writer.close()
        self._file.close()

    def _write(self) -> None:
        table = pa.concat_tables(self._pending or [self._schema.empty_table()])
        self._pending = []
        if len(table):
            self._writer.write_table(table.unify_dictionaries())


def recorded_by(path: Path) -> Probe | None:
    """The probe that a trace was recorded with; None if it does not say it, or none of ours.

    Raises TraceError for what is no file.
    """
    _check_file(path)
    unsaid = (OSError, pa.ArrowException, ValueError, KeyError, UnknownName)
    with suppress(*unsaid), pq.ParquetFile(path, pre_buffer=False) as file:
        return scripts.find(_facts(file)["script"])
    return None


def check_file(path: Path) -> dict[str, Any]:
    """What a trace says of its recording, after counting its rows again.

    Raises TraceIncomplete if it was not complete, or if its rows are not those that were counted;
    TraceError if it is not a recording at all; UnknownName if its probe is none of ours.
    """
    _check_file(path)
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            facts = _facts(file)
            probe = scripts.find(facts["script"])
            tally = _counted_again(file, probe)
    except (OSError, pa.ArrowException, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise TraceError(str(path), 1, f"is not a recording: {reason}") from None
    problems = list(facts["problems"])
    if tally.rows != facts["rows"]:
        problems.append(f"{facts['rows']} rows were recorded, {tally.rows} are there")
    if probe.recountable and as_facts(tally) != facts["ops"]:
        problems.append(f"recorded were {facts['ops']}, there are {as_facts(tally)}")
    if problems:
        raise TraceIncomplete(str(path), problems)
    return facts


def _check_file(path: Path) -> None:
    """A pipe would let us wait for ever, a device might have no end."""
    if path.exists() and not path.is_file():
        raise TraceError(str(path), 1, "is not a file")


def _facts(file: pq.ParquetFile) -> dict[str, Any]:
    metadata = file.metadata.metadata or {}
    return dict(json.loads(metadata.get(METADATA_KEY) or b"no facts"))


def _counted_again(file: pq.ParquetFile, probe: Probe) -> Tally:
    tally = Tally()
    for batch in file.iter_batches(batch_size=_GROUP_ROWS):
        table = pa.Table.from_batches([batch])
        tally.rows += len(table)
        probe.count(table, tally)
    return tally
