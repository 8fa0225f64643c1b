"""From what a probe's script prints to the rows of the recorded span, while it prints it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from harness.probes.bpftrace import Bpftrace
from harness.probes.lines import JsonMaps, Lines, Output
from harness.probes.probe import Probe
from harness.probes.proof import Moved, Printed, Tally
from harness.probes.span import Span
from harness.probes.trace_file import TraceFile

_READ_BYTES: Final = 1 << 18
_PIECE_BYTES: Final = 1 << 20


class Decoder:
    """Takes the output as it comes. The rows of the span go to the file; all are counted.

    output: what else was printed. tally: what was counted. begin_sector: where the device begins on
    the drive that the script sees.
    """

    def __init__(self, probe: Probe, span: Span, file: TraceFile, begin_sector: int) -> None:
        self.output: Output = JsonMaps() if probe.json else Lines(probe.fields)
        self.tally = Tally()
        self._probe = probe
        self._span = span
        self._file = file
        self._begin_sector = begin_sector
        # The first time, libraries load more of themselves: while rows wait would be too late.
        zero = [pa.array([0], pa.int64())] * probe.fields
        probe.count(probe.decode(zero), Tally())

    def feed(self, data: bytes) -> None:
        """Takes the next piece."""
        for raw in self.output.feed(data):
            self._keep(self._probe.decode(raw))

    def close(self) -> None:
        """Takes what was left without an end of line."""
        for raw in self.output.close():
            self._keep(self._probe.decode(raw))

    def finish(self, errors: Sequence[str]) -> Printed:
        """Takes what the script still had when it ended, and what bpftrace said beside it."""
        ending = self._probe.ending(self.output, self._span)
        for table in [*ending.printed, *ending.others]:
            self._keep(table)
        self.tally.merge(ending.moved)
        said = Lines(0)
        list(said.feed("".join(line + "\n" for line in errors).encode()))
        printed = self.output.rows_printed()
        flushes = self.tally.ops.get("flush", Moved()).ios
        return Printed(
            lost=max(self.output.lost, said.lost),
            bad=self.output.bad,
            ended=self.output.ended,
            rows=None if printed is None else printed + sum(map(len, ending.others)),
            empty_writes=ending.empty_writes,
            flushes_unseen=max(0, ending.flushes_begun - flushes),
        )

    def _keep(self, table: pa.Table) -> None:
        """Counts and writes the rows of the span; the others are only counted."""
        inside = self._relative(self._span.rows(table, self._probe.times))
        self.tally.rows += len(table)
        self.tally.outside += len(table) - len(inside)
        self._probe.count(inside, self.tally)
        self._file.add(inside)

    def _relative(self, table: pa.Table) -> pa.Table:
        """LBAs count from where the device begins, if that is a part of a drive."""
        if not self._begin_sector or "lba" not in table.column_names:
            return table
        at = table.column_names.index("lba")
        return table.set_column(
            at, table.schema.field(at), pc.subtract(table["lba"], self._begin_sector)
        )


class Reader:
    """The thread that reads until bpftrace ends."""

    def __init__(self, child: Bpftrace, decoder: Decoder) -> None:
        self._child = child
        self._decoder = decoder
        self._attached = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="probe reader", daemon=True)
        self._thread.start()

    def attached(self, timeout_s: float) -> bool:
        """Waits until all is attached: bpftrace hands on what BEGIN printed only then."""
        return self._attached.wait(timeout_s) and self._decoder.output.ready

    def join(self) -> BaseException | None:
        """Waits for the end, after which the decoder is the caller's; what went wrong."""
        self._thread.join()
        return self._failure

    def _read(self) -> None:
        try:
            for text in self._pieces():
                self._decoder.feed(text)
                if self._decoder.output.ready:
                    self._attached.set()
            self._decoder.close()
        except BaseException as error:
            self._failure = error
            self._child.interrupt()
            while self._child.output.read(_READ_BYTES):
                pass
        finally:
            self._attached.set()

    def _pieces(self) -> Iterator[bytes]:
        """The output in pieces of some size: taking a small one apart costs as much as a large."""
        waiting = bytearray()
        while data := self._child.output.read(_READ_BYTES):
            waiting += data
            if len(waiting) >= _PIECE_BYTES or not self._attached.is_set():
                yield bytes(waiting)
                waiting.clear()
        yield bytes(waiting)
