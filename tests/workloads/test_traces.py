"""Block I/O trace readers: round trips, borders, errors with their line, memory, real tools."""

from __future__ import annotations

import gzip
import json
import struct
import subprocess
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import need
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from harness.errors import BadParameter, DataFolderError, HarnessError, TraceError, UnknownName
from harness.workloads import traces
from harness.workloads.traces import Chunk, Op, text
from harness.workloads.traces.base import COLUMNS

TABLES = ("npz", "npy", "parquet")
TEXTS = ("fio2", "fio3", "blkparse", "msr")


@dataclass(frozen=True)
class Wanted:
    """One request, as a reader should give it."""

    time_ns: int
    op: Op
    lba: int
    sectors: int
    fua: bool = False
    stream: int = 0


def joined(chunks: Iterator[Chunk] | list[Chunk]) -> dict[str, NDArray[Any]]:
    pieces = list(chunks)
    return {name: np.concatenate([getattr(c, name) for c in pieces]) for name in COLUMNS}


def columns_of(wanted: list[Wanted]) -> dict[str, NDArray[Any]]:
    return {
        name: np.array([getattr(w, name) for w in wanted], dtype) for name, dtype in COLUMNS.items()
    }


def outcome(chunks: Iterator[Chunk]) -> tuple[list[Chunk], TraceError | None]:
    """The chunks up to the end or an error, and the error."""
    got: list[Chunk] = []
    try:
        got.extend(chunks)
    except TraceError as error:
        return got, error
    return got, None


def check(chunks: Iterator[Chunk] | list[Chunk], wanted: list[Wanted]) -> None:
    for name, values in joined(chunks).items():
        expected = columns_of(wanted)[name]
        assert values.dtype == expected.dtype
        np.testing.assert_array_equal(values, expected, err_msg=name)


# How a request looks in each text; 'times' are in what the format can say.


def fio3_line(w: Wanted) -> str:
    name = {Op.FLUSH: "datasync"}.get(w.op, w.op.name.lower())
    return f"{w.time_ns // 1000} /dev/sdb {name} {w.lba * 512} {w.sectors * 512}"


def fio2_line(w: Wanted) -> str:
    return fio3_line(w).split(" ", 1)[1]


def blkparse_line(w: Wanted, event: str = "Q") -> str:
    rwbs = {Op.READ: "R", Op.WRITE: "W", Op.TRIM: "D", Op.FLUSH: "FN"}[w.op] + "F" * w.fua
    extent = "" if w.op == Op.FLUSH else f"{w.lba} + {w.sectors} "
    seconds, nanos = divmod(w.time_ns, 10**9)
    return (
        f"  8,16   3 {7:8d} {seconds:5d}.{nanos:09d} {697:5d} {event:>2s} {rwbs:>3s} {extent}[a b]"
    )


FILE_TIME = 128166372003061629


def msr_line(w: Wanted) -> str:
    name = w.op.name.capitalize()
    return f"{FILE_TIME + w.time_ns // 100},usr,0,{name},{w.lba * 512},{w.sectors * 512},417"


LINE: dict[str, Callable[[Wanted], str]] = {
    "fio2": fio2_line,
    "fio3": fio3_line,
    "blkparse": blkparse_line,
    "msr": msr_line,
}
HEAD = {
    "fio2": ["fio version 2 iolog", "/dev/sdb add", "/dev/sdb open"],
    "fio3": ["fio version 3 iolog", "0 /dev/sdb add", "0 /dev/sdb open"],
    "blkparse": [],
    "msr": [],
}
TICK_NS = {"fio2": 1_000_000, "fio3": 1000, "blkparse": 1, "msr": 100} | dict.fromkeys(TABLES, 1)


def lines_of(kind: str, wanted: list[Wanted]) -> list[str]:
    lines, before = list(HEAD[kind]), 0
    for w in wanted:
        if kind == "fio2" and w.time_ns > before:
            lines.append(f"/dev/sdb wait {w.time_ns // 1_000_000} 0")
            before = w.time_ns
        lines.append(LINE[kind](w))
    return lines


def save_npz(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    with path.open("wb") as file:  # given a path, numpy would add a suffix
        np.savez(file, allow_pickle=False, **columns)


def save_npy(path: Path, columns: NDArray[Any]) -> None:
    with path.open("wb") as file:
        np.save(file, columns)


def write(path: Path, kind: str, wanted: list[Wanted]) -> Path:
    columns = columns_of(wanted)
    if kind == "npz":
        save_npz(path, columns)
    elif kind == "npy":
        records = np.zeros(len(wanted), [(name, dtype) for name, dtype in COLUMNS.items()])
        for name, values in columns.items():
            records[name] = values
        save_npy(path, records)
    elif kind == "parquet":
        pq.write_table(pa.table(columns), path, row_group_size=5)
    else:
        path.write_text("\n".join(lines_of(kind, wanted)) + "\n")
    return path


@st.composite
def wanteds(draw: st.DrawFn, kind: str) -> list[Wanted]:
    """A valid trace that the format can say, beginning at time 0."""
    ops = [Op.READ, Op.WRITE] if kind == "msr" else list(Op)
    steps = draw(st.lists(st.integers(0, 10**6) | st.just(0), min_size=1, max_size=30))
    times = np.cumsum([0, *steps[1:]]) * TICK_NS[kind]
    made = []
    for time in times.tolist():
        op = draw(st.sampled_from(ops))
        lba = draw(st.integers(0, 2**53) | st.integers(0, 4096)) if op != Op.FLUSH else 0
        sectors = draw(st.integers(1, 2**23)) if op != Op.FLUSH else 0
        says_fua = op == Op.WRITE and kind not in ("fio2", "fio3", "msr")
        stream = draw(st.integers(0, 65535)) if kind in TABLES else 0
        made.append(Wanted(time, op, lba, sectors, says_fua and draw(st.booleans()), stream))
    return made


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BLOCK_BYTES", 200)


@pytest.mark.parametrize("kind", [*TEXTS, *TABLES])
@given(data=st.data())
def test_what_is_written_is_read(
    tmp_path: Path, small_blocks: None, kind: str, data: st.DataObject
) -> None:
    wanted = data.draw(wanteds(kind))
    chunk_requests = data.draw(st.integers(1, 40))
    path = write(tmp_path / "trace", kind, wanted)
    assert traces.detect(path) == kind
    chunks = list(traces.read(path, chunk_requests=chunk_requests))
    check(chunks, wanted)
    assert {len(c) for c in chunks[:-1]} <= {chunk_requests}
    assert 1 <= len(chunks[-1]) <= chunk_requests


@pytest.mark.parametrize("kind", ["blkparse"])
@given(data=st.data())
def test_any_format_converts_to_parquet(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    wanted = data.draw(wanteds(kind))
    path = write(tmp_path / "trace", kind, wanted)
    converted = tmp_path / "trace.parquet"
    assert traces.write_parquet(traces.read(path, chunk_requests=7), converted) == len(wanted)
    check(traces.read(converted), wanted)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


SOME = [
    Wanted(0, Op.READ, 8, 8),
    Wanted(2_000_000, Op.WRITE, 0, 1),
    Wanted(2_000_000, Op.WRITE, 4096, 256),
    Wanted(7_000_000, Op.READ, 16, 8),
]


def test_first_line(tmp_path: Path) -> None:
    path = write(tmp_path / "trace", "fio2", SOME)
    # lines: three of the head, read, wait, write, write, wait, read
    assert [c.first_line for c in traces.read(path, chunk_requests=1)] == [4, 6, 7, 9]
    table = write(tmp_path / "table", "parquet", SOME)
    assert [c.first_line for c in traces.read(table, chunk_requests=3)] == [1, 4]


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed_text(tmp_path: Path, kind: str, codec: str) -> None:
    plain = write(tmp_path / "trace", kind, SOME)
    path = tmp_path / "trace.z"
    with pa.CompressedOutputStream(str(path), codec) as stream:
        stream.write(plain.read_bytes())
    assert traces.detect(path) == kind
    check(traces.read(path), SOME)


def test_gzip_in_several_members(tmp_path: Path) -> None:
    data = write(tmp_path / "trace", "msr", SOME).read_bytes()
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(data[:50]) + gzip.compress(data[50:]))
    check(traces.read(path), SOME)


def test_cut_gzip(tmp_path: Path) -> None:
    data = write(tmp_path / "trace", "msr", SOME).read_bytes()
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(data)[:-20])
    with pytest.raises(TraceError, match="cannot be read"):
        list(traces.read(path))


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("change", ["crlf", "no last newline", "blank lines"])
def test_line_ends(tmp_path: Path, small_blocks: None, kind: str, change: str) -> None:
    lines = lines_of(kind, SOME)
    text = {
        "crlf": "\r\n".join([*lines, ""]),
        "no last newline": "\n".join(lines),
        "blank lines": "\n".join([lines[0], "", *lines[1:], "", ""]),
    }[change]
    path = tmp_path / "trace"
    path.write_bytes(text.encode())
    check(traces.read(path), SOME)


@given(tokens=st.lists(st.from_regex(r"\A[0-9]{1,25}\Z|\A[!-~]{1,21}\Z"), min_size=1))
def test_numbers_and_words_are_those_of_python(tokens: list[str]) -> None:
    block = text.lex((" ".join(tokens) + "\n").encode(), 1, " ")
    every = np.arange(len(tokens))
    values, good = block.integers(every)
    words = block.words(every)
    for i, token in enumerate(tokens):
        fits = token.isdigit() and len(token) <= 19 and int(token) < 2**63
        assert good[i] == fits, token
        if fits:
            assert values[i] == int(token)
        assert words[i] == (text.word(token) if len(token) <= 8 else 0)
        starts, ends = block.starts[[i]], block.ends[[i]]
        assert block.equal(starts, ends, token.encode())[0]
        assert not block.equal(starts, ends, (token + "x").encode())[0]


@pytest.mark.parametrize("kind", TEXTS)
@given(data=st.data())
def test_a_damaged_text_is_read_or_refused(
    tmp_path: Path, small_blocks: None, kind: str, data: st.DataObject
) -> None:
    lines = lines_of(kind, SOME * 4) if kind != "fio3" else lines_of(kind, SOME)
    damaged = bytearray("\n".join(lines).encode())
    at = data.draw(st.integers(0, len(damaged) - 1))
    cut = data.draw(st.integers(0, 3))
    damaged[at : at + cut] = data.draw(st.binary(max_size=3) | st.sampled_from([b" ", b"\n", b","]))
    path = tmp_path / "trace"
    path.write_bytes(bytes(damaged))
    chunks, error = outcome(traces.read(path, kind, chunk_requests=3))
    for chunk in chunks:
        assert (chunk.sectors[chunk.op != Op.FLUSH] > 0).all()
    if error:
        assert 1 <= error.line <= damaged.count(b"\n") + 2
        assert "\n" not in str(error)


# ---- what a format leaves open


def read_text(folder: Path, lines: list[str], **options: Any) -> dict[str, NDArray[Any]]:
    path = folder / "trace"
    path.write_text("\n".join(lines) + "\n")
    return joined(traces.read(path, **options))


def test_bytes_are_rounded_outwards(tmp_path: Path) -> None:
    lines = [
        *HEAD["fio3"],
        "0 /dev/sdb read 511 2",
        "0 /dev/sdb write 512 1",
        "0 /dev/sdb read 1 512",
    ]
    found = read_text(tmp_path, lines, capacity_bytes=1024)
    assert found["lba"].tolist() == [0, 1, 0]
    assert found["sectors"].tolist() == [2, 1, 2]


FIO2_WAITS = [
    *HEAD["fio2"],
    "/dev/sdb wait 40 0",
    "/dev/sdb read 0 512",
    "/dev/sdb wait 100 0",
    "/dev/sdb read 0 512",
    "/dev/sdb wait 70 0",
    "/dev/sdb sync 512 0",
]


def test_waits_as_fio_does(tmp_path: Path) -> None:
    found = read_text(tmp_path, FIO2_WAITS)
    assert found["time_ns"].tolist() == [0, 60_000_000, 60_000_000]
    assert found["op"].tolist() == [Op.READ, Op.READ, Op.FLUSH]


def test_waits_as_fios_manual_says(tmp_path: Path) -> None:
    found = read_text(tmp_path, FIO2_WAITS, wait="previous-us")
    assert found["time_ns"].tolist() == [0, 100_000, 170_000]


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [("fio3", "/dev/sdb", "/dev/sdc"), ("blkparse", "8,16", "259,0"), ("msr", "usr_0", "usr_1")],
)
def test_several_files_need_offsets(tmp_path: Path, kind: str, first: str, second: str) -> None:
    written = {"usr_0": ",usr,0,", "usr_1": ",usr,1,"}
    lines = lines_of(kind, SOME)
    old, new = written.get(first, first), written.get(second, second)
    lines[-1] = lines[-1].replace(old, new)
    with pytest.raises(TraceError, match="offsets") as caught:
        read_text(tmp_path, lines)
    assert caught.value.line == len(lines)
    found = read_text(tmp_path, lines, offsets={first: 0, second: 2**30})
    assert found["lba"].tolist() == [8, 0, 4096, 16 + 2**21]
    with pytest.raises(TraceError, match="not in offsets") as caught:
        read_text(tmp_path, lines, offsets={first: 0})
    assert caught.value.line == len(lines)


BLKPARSE = """\
  8,0    0        1     0.000000500   697  Q   R 100 + 8 [my proc]
  8,0    1        2     0.000001000   697  Q WFS 300 + 16 [my proc]
  8,0    1        3     0.000001100   697  G WFS 300 + 16 [my proc]
  8,0    0        0     0.000001200     0  m   N cfq anything at all
  8,0    0        4     0.000003000   697  Q FWFS 400 + 8 [my proc]
  8,0    0        5     0.000004000   697  Q FWS [my proc]
  8,0    0        6     0.000006000   697  Q  DS 500 + 2048 [my proc]
  8,0    0        7     0.000006500   697  D RAM 600 + 8 [my proc]
  8,0    0        8     0.000006600   697  D   R 36 (12 00 00 00 24 00 ..) [my proc]
  8,0    0        9     0.000006700   697  D   N [my proc]
  8,0    0       10     0.000006900   697  A   R 100 + 8 <- (8,1) 36
  8,0    0       11     0.000007000   697  C RAM 600 + 8 [0]
  8,0    0       12     0.000008000   697  C  FN 0 [0]
CPU0 (sda):
 Reads Queued:           4,        8KiB\t Writes Queued:           5,     1040KiB

Throughput (R/W): 0KiB/s / 0KiB/s
""".splitlines()


def rows(found: dict[str, NDArray[Any]]) -> list[tuple[int, ...]]:
    """Requests as (time_ns, op, lba, sectors, fua)."""
    return list(zip(*(found[n].tolist() for n in ("time_ns", "op", "lba", "sectors", "fua"))))  # noqa: B905


def test_blkparse_events(tmp_path: Path, small_blocks: None) -> None:
    assert rows(read_text(tmp_path, BLKPARSE)) == [
        (0, Op.READ, 100, 8, False),
        (500, Op.WRITE, 300, 16, True),
        (2500, Op.FLUSH, 0, 0, False),
        (2500, Op.WRITE, 400, 8, True),
        (3500, Op.FLUSH, 0, 0, False),
        (5500, Op.TRIM, 500, 2048, False),
    ]
    assert rows(read_text(tmp_path, BLKPARSE, event="D")) == [(0, Op.READ, 600, 8, False)]
    assert rows(read_text(tmp_path, BLKPARSE, event="C")) == [
        (0, Op.READ, 600, 8, False),
        (1000, Op.FLUSH, 0, 0, False),
    ]


@pytest.mark.parametrize("block_bytes", [200, 1 << 20])
def test_two_blkparse_texts_in_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(text, "BLOCK_BYTES", block_bytes)
    with pytest.raises(TraceError, match=f":{len(BLKPARSE) + 1}: an event after"):
        read_text(tmp_path, BLKPARSE * 2)


def test_msr_column_names_are_skipped(tmp_path: Path) -> None:
    head = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime"
    found = read_text(tmp_path, [head, *lines_of("msr", SOME)])
    assert found["time_ns"].tolist() == [w.time_ns for w in SOME]


# ---- errors: in any position, on chunk borders too

GOOD = [Wanted(i * 1_000_000, Op.WRITE, 8 * i, 8) for i in range(40)]
CAPACITY = 512 * 8 * 41

BAD_LINES = [
    ("fio2", "nonsense", "malformed line 'nonsense'"),
    ("fio2", "/dev/sdb read 0", "malformed line"),
    ("fio2", "/dev/sdb erase 0 512", "unknown action 'erase'"),
    ("fio2", "/dev/sdb read x 512", "offset is not a whole number: 'x'"),
    ("fio2", "/dev/sdb read 0 -512", "length is negative: '-512'"),
    ("fio2", "/dev/sdb read 0 0", "a read of size zero"),
    ("fio2", f"/dev/sdb read {2**63} 512", "offset does not fit 64 bits"),
    ("fio2", f"/dev/sdb read {2**63 - 1} 512", "end does not fit 64 bits"),
    ("fio2", f"/dev/sdb wait {2**62} 0\n/dev/sdb read 0 512", r"(?s)nanoseconds"),
    ("fio2", f"/dev/sdb read {CAPACITY} 1", "past the end of a device of 328 sectors"),
    ("fio2", "/dev/sdx read 0 512", "second file, '/dev/sdx' after /dev/sdb"),
    ("fio3", "fio version 3 iolog", "malformed line"),
    ("fio3", "9999999 /dev/sdb wait 10 0", "unknown action 'wait'"),
    ("fio3", "1.5 /dev/sdb read 0 512", "timestamp is not a whole number: '1.5'"),
    ("fio3", "-5 /dev/sdb read 0 512", "timestamp is negative"),
    ("fio3", f"{2**63} /dev/sdb read 0 512", "timestamp does not fit"),
    ("fio3", f"{2**62} /dev/sdb read 0 512", "does not fit 64 bits in nanoseconds"),
    ("fio3", "0 /dev/sdb rename", "unknown action 'rename'"),
    ("blkparse", "nonsense", "malformed line"),
    ("blkparse", "  8,16   3 7 0.0 697  Q   R 0 + 8 [x]", "malformed line"),
    ("blkparse", "  8,16   3 7 9.000000000 697  K   R 0 + 8 [x]", "unknown action 'K'"),
    ("blkparse", "  8,16   3 7 9.00000000x 697  Q   R 0 + 8 [x]", "time is not a whole number"),
    ("blkparse", f"  8,16   3 7 {10**10}.000000000 697  Q   R 0 + 8 [x]", "nanoseconds"),
    ("blkparse", "  8,16   3 7 9.000000000 697  Q   R -8 + 8 [x]", "sector is negative"),
    ("blkparse", "  8,16   3 7 9.000000000 697  Q   R 8 + 0 [x]", "a read of size zero"),
    ("blkparse", "  8,16   3 7 9.000000000 697  Q   R 8 +", "sectors is not a whole number"),
    ("blkparse", "  8,16   3 7 9.000000000 697  Q   R [x]", "malformed line"),
    ("blkparse", "  8,17   3 7 9.000000000 697  Q   R 0 + 8 [x]", "second device, '8,17'"),
    ("blkparse", "  8,16   3 7 9.000000000 697  Q   D 321 + 8 [x]", "LBA 328 is past the end"),
    ("blkparse", f"  8,16 3 7 9.000000000 697 Q R {2**63 - 1} + 8 [x]", "end does not fit 64"),
    ("msr", "nonsense", "malformed line"),
    ("msr", f"{FILE_TIME + 10**9},usr,0,Read,0,512", "malformed line"),
    ("msr", f"{FILE_TIME + 10**9},usr,0,Read,,0,512,7", "malformed line"),
    ("msr", f"{FILE_TIME + 10**9},usr,0,Read,0,512,", "malformed line"),
    ("msr", f",{FILE_TIME + 10**9},usr,0,Read,0,512,7", "malformed line"),
    ("msr", f"{FILE_TIME + 10**9},usr,0,Read,0,512,7,", "malformed line"),
    ("msr", ",,,", "malformed line"),
    ("msr", f"{FILE_TIME + 10**9},usr,0,Trim,0,512,7", "Type is 'Trim'; known: Read, Write"),
    ("msr", f"{FILE_TIME + 10**9},usr,zero,Read,0,512,7", "DiskNumber is not a whole number"),
    ("msr", f"{FILE_TIME + 10**9},usr,0,Read,0,-512,7", "Size is negative"),
    ("msr", f"{FILE_TIME + 10**9},usr,0,Read,0,0,7", "a read of size zero"),
    ("msr", f"{FILE_TIME + 10**9},usr,0,Read,0,512,x", "ResponseTime is not a whole number"),
    ("msr", f"{10**18},usr,0,Read,0,512,7", "does not fit 64 bits in nanoseconds"),
    ("msr", f"{FILE_TIME + 10**9},usr,2,Read,0,512,7", "second disk, 'usr,2'"),
    ("msr", f"{FILE_TIME + 10**9},usr,0,Read,{CAPACITY},512,7", "LBA 328 is past the end"),
]


@pytest.mark.parametrize(("kind", "bad", "message"), BAD_LINES)
@pytest.mark.parametrize("blocks", [200, 1 << 20])
def test_a_bad_line_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    bad: str,
    message: str,
    blocks: int,
) -> None:
    """Chunks of 8 requests: the bad one is inside, last or first of a chunk, or the trace's end."""
    monkeypatch.setattr(text, "BLOCK_BYTES", blocks)
    path = tmp_path / "trace"
    for before in (7, 8, 9, 40):
        lines = lines_of(kind, GOOD[:before])
        wrong_line = len(lines) + 1 + bad.count("\n")
        lines = [*lines, *bad.split("\n"), *lines_of(kind, GOOD)[len(lines) :]]
        path.write_text("\n".join(lines) + "\n")
        got: list[Chunk] = []
        with pytest.raises(TraceError, match=message) as caught:
            got.extend(traces.read(path, kind, capacity_bytes=CAPACITY, chunk_requests=8))
        assert (caught.value.path, caught.value.line) == (str(path), wrong_line)
        assert str(caught.value) == f"{path}:{wrong_line}: {caught.value.message}"


def consume(chunks: Iterator[Chunk]) -> tuple[list[Chunk], TraceError]:
    got, error = outcome(chunks)
    assert error, "nothing was refused"
    return got, error


@pytest.mark.parametrize("kind", [*TEXTS, *TABLES])
def test_chunks_before_the_error_are_given(tmp_path: Path, small_blocks: None, kind: str) -> None:
    for before in range(1, 40):
        bad = Wanted(GOOD[before].time_ns, Op.READ, CAPACITY // 512, 8)
        wanted = [*GOOD[:before], bad, *GOOD[before + 1 :]]
        path = write(tmp_path / "trace", kind, wanted)
        got, error = consume(traces.read(path, capacity_bytes=CAPACITY, chunk_requests=4))
        assert error.line == (
            len(lines_of(kind, wanted[: before + 1])) if kind in TEXTS else before + 1
        )
        assert len(got) <= before // 4
        if got:
            check(got, GOOD[: 4 * len(got)])


@pytest.mark.parametrize("kind", ["fio3", "blkparse", "msr", *TABLES])
def test_time_that_runs_backwards(tmp_path: Path, small_blocks: None, kind: str) -> None:
    for at in (1, 7, 8, 39):
        late = [Wanted(w.time_ns + 10**9, *(w.op, w.lba, w.sectors)) for w in GOOD]
        late[at] = GOOD[at]
        path = write(tmp_path / "trace", kind, late)
        _, error = consume(traces.read(path, chunk_requests=8))
        assert "backwards" in error.message
        assert error.line == at + 1 + len(HEAD.get(kind, []))


def test_the_first_of_several_mistakes_is_named(tmp_path: Path) -> None:
    lines = lines_of("msr", GOOD)
    lines[20] = "nonsense"
    lines[10] = lines[10].replace(",4096,417", ",0,417")
    path = tmp_path / "trace"
    path.write_text("\n".join(lines))
    _, error = consume(traces.read(path))
    assert (error.line, error.message) == (11, "a write of size zero")


@pytest.mark.parametrize("kind", [*TEXTS, *TABLES])
def test_no_requests(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "trace", kind, [])
    with pytest.raises(TraceError, match="no requests"):
        list(traces.read(path))


def test_only_file_actions_are_no_requests(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=":1: no requests"):
        read_text(tmp_path, [*HEAD["fio2"], "/dev/sdb close"])


def test_an_unknown_format(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("\n\nonce upon a time\n")
    with pytest.raises(TraceError, match=r":3: format not recognised; known: blkparse, fio2"):
        traces.read(path)
    with pytest.raises(UnknownName, match="unknown trace format 'csv'; known: blkparse, fio2"):
        traces.read(path, "csv")
    path.write_bytes(bytes(range(256)) * 9)
    with pytest.raises(TraceError, match="not recognised"):
        traces.read(path)


def test_a_line_without_end_is_no_trace(tmp_path: Path, small_blocks: None) -> None:
    with pytest.raises(TraceError, match=r":4: a line of more than 200 bytes"):
        read_text(tmp_path, [*HEAD["fio2"], "x" * 1000, *map(fio2_line, GOOD)])


@pytest.mark.parametrize("kind", [None, *TEXTS, *TABLES])
def test_a_file_that_is_not_there(tmp_path: Path, kind: str | None) -> None:
    with pytest.raises(TraceError, match=r"nowhere:1: cannot be read"):
        list(traces.read(tmp_path / "nowhere", kind))
    with pytest.raises(TraceError, match="cannot be read"):
        list(traces.read(tmp_path, kind))


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_that_is_none(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "trace", kind, GOOD)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"nonsense", b""):
        path.write_bytes(damaged)
        with pytest.raises(TraceError):
            list(traces.read(path, kind))


def test_options_that_cannot_be(tmp_path: Path) -> None:
    path = write(tmp_path / "trace", "msr", SOME)
    wrong: list[dict[str, Any]] = [
        {"chunk_requests": 0},
        {"capacity_bytes": 100},
        {"event": "Q"},
        {"wait": "start-ms"},
        {"offsets": {"usr_0": 100}},
        {"offsets": {"usr_0": -512}},
    ]
    for options in wrong:
        with pytest.raises(BadParameter):
            traces.read(path, **options)
    unknown: list[tuple[str, dict[str, str]]] = [
        ("blkparse", {"event": "X"}),
        ("fio2", {"wait": "x"}),
    ]
    for kind, option in unknown:
        with pytest.raises(UnknownName):
            traces.read(path, kind, **option)  # type: ignore[arg-type]


# ---- tables


@pytest.mark.parametrize("kind", TABLES)
def test_optional_columns(tmp_path: Path, kind: str) -> None:
    save_table(tmp_path / "trace", kind, {n: columns_of(GOOD)[n] for n in list(COLUMNS)[:4]})
    check(traces.read(tmp_path / "trace"), GOOD)


def save_table(path: Path, kind: str, columns: dict[str, NDArray[Any]]) -> None:
    if kind == "npz":
        save_npz(path, columns)
    elif kind == "parquet":
        pq.write_table(pa.table(columns), path)
    else:
        records = np.zeros(
            len(columns["lba" if "lba" in columns else "op"]),
            [(n, a.dtype) for n, a in columns.items()],
        )
        for name, values in columns.items():
            records[name] = values
        save_npy(path, records)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("name", list(COLUMNS))
def test_a_wrong_dtype(tmp_path: Path, kind: str, name: str) -> None:
    columns = columns_of(GOOD)
    columns[name] = columns[name].astype(np.int32)
    save_table(tmp_path / "trace", kind, columns)
    with pytest.raises(TraceError, match=f":1: column {name} is .*int32; make it") as caught:
        list(traces.read(tmp_path / "trace"))
    assert caught.value.line == 1


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("name", list(COLUMNS)[:4])
def test_a_missing_column(tmp_path: Path, kind: str, name: str) -> None:
    columns = columns_of(GOOD)
    columns["other"] = columns.pop(name)
    save_table(tmp_path / "trace", kind, columns)
    with pytest.raises(TraceError, match=f":1: column {name} is missing"):
        list(traces.read(tmp_path / "trace"))


BAD_VALUES = [
    ("time_ns", -1, "negative time -1"),
    ("op", 4, "op is 4; known"),
    ("op", 3, "a flush with sectors"),
    ("lba", -1, "negative LBA -1"),
    ("sectors", 0, "a write of size zero"),
    ("sectors", -8, "negative size -8"),
    ("lba", 2**63 - 1, "does not fit 64 bits"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD_VALUES)
@pytest.mark.parametrize("row", [1, 8, 9, 40])
def test_a_bad_value(name: str, value: int, message: str, row: int) -> None:
    columns = columns_of(GOOD)
    columns[name][row - 1] = value
    with pytest.raises(TraceError, match=f"arrays:{row}: .*{message}"):
        list(traces.from_arrays(columns, chunk_requests=8))


def test_arrays_of_unequal_length() -> None:
    columns = columns_of(GOOD)
    columns["sectors"] = columns["sectors"][:-1]
    with pytest.raises(TraceError, match="mine:40: column sectors ends before the others"):
        traces.from_arrays(columns, name="mine")


def test_arrays_in_memory_are_not_shared() -> None:
    columns = columns_of(GOOD)
    chunk = next(traces.from_arrays(columns))
    chunk.lba[0] = 77
    assert columns["lba"][0] == 0


def test_a_null_in_parquet(tmp_path: Path) -> None:
    columns: dict[str, Any] = dict(columns_of(GOOD))
    columns["lba"] = pa.array([None if i == 30 else i for i in range(40)], pa.int64())
    pq.write_table(pa.table(columns), tmp_path / "trace", row_group_size=7)
    with pytest.raises(TraceError, match=":31: column lba is null"):
        list(traces.read(tmp_path / "trace"))


def test_a_parquet_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DataFolderError, match="cannot write"):
        traces.write_parquet(traces.from_arrays(columns_of(GOOD)), tmp_path / "no" / "folder")
    target = tmp_path / "trace.parquet"
    bad = columns_of([*GOOD, Wanted(0, Op.READ, 0, 8)])
    with pytest.raises(HarnessError, match="backwards"):
        traces.write_parquet(traces.from_arrays(bad, chunk_requests=4), target)
    assert list(tmp_path.iterdir()) == []


# ---- memory


def generate(path: Path, kind: str, requests: int) -> None:
    """A text of so many requests, written piece by piece."""
    random = np.random.default_rng(1)
    with path.open("w") as file:
        file.writelines(line + "\n" for line in HEAD[kind])
        for start in range(0, requests, 10_000):
            lbas = random.integers(0, 2**28, min(10_000, requests - start)).tolist()
            made = (
                Wanted(10**6 * (start + i), Op(i % 2), lba, 8, False) for i, lba in enumerate(lbas)
            )
            file.writelines(LINE[kind](w) + "\n" for w in made)


def peak_bytes(path: Path, chunk_requests: int, requests: int) -> int:
    tracemalloc.start()
    try:
        seen = sum(len(c) for c in traces.read(path, chunk_requests=chunk_requests))
        assert seen == requests
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", TEXTS)
def test_memory_does_not_grow_with_the_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(text, "BLOCK_BYTES", 1 << 16)
    peaks = []
    for requests in (8_000, 40_000):
        generate(tmp_path / "trace", kind, requests)
        peaks.append(peak_bytes(tmp_path / "trace", 2048, requests))
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_memory_of_tables_does_not_grow(tmp_path: Path, kind: str) -> None:
    peaks = []
    for requests in (200_000, 1_600_000):
        columns = columns_of(GOOD[:1])
        columns = {n: np.repeat(a, requests) for n, a in columns.items()}
        path = tmp_path / "trace"
        if kind == "npz":
            save_npz(path, columns)
        else:
            traces.write_parquet(traces.from_arrays(columns, chunk_requests=50_000), path)
        del columns
        arrow = 0
        tracemalloc.start()
        for _ in traces.read(path, chunk_requests=50_000):
            arrow = max(arrow, pa.total_allocated_bytes())
        peaks.append(tracemalloc.get_traced_memory()[1] + arrow)
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", TEXTS)
def test_a_million_requests_in_bounded_memory(tmp_path: Path, kind: str) -> None:
    generate(tmp_path / "trace", kind, 1_000_000)
    assert peak_bytes(tmp_path / "trace", 262_144, 1_000_000) < 80 * 2**20


# ---- real tools


def fio_job(folder: Path, *options: str) -> dict[str, Any]:
    """Runs fio and returns its account of the job."""
    command = [need("fio"), "--name=job", "--output-format=json", "--thread", *options]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    job: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    return job


@pytest.mark.builds
@pytest.mark.parametrize(
    "options",
    [
        ("--ioengine=psync", "--rw=randrw", "--fsync=16", "--fdatasync=20"),
        ("--ioengine=psync", "--rw=write", "--thinktime=100us"),
        ("--ioengine=null", "--rw=trimwrite", "--filename=target"),
    ],
    ids=["random", "thinking", "trims"],
)
def test_iologs_that_fio_writes(tmp_path: Path, options: tuple[str, ...]) -> None:
    sizes = ("--size=1m", "--bs=4k", "--write_iolog=iolog")
    job = fio_job(tmp_path, *sizes, *options)
    path = tmp_path / "iolog"
    found = joined(traces.read(path, capacity_bytes=2**20))
    for name, op in (("read", Op.READ), ("write", Op.WRITE), ("trim", Op.TRIM)):
        assert (found["op"] == op).sum() == job[name]["total_ios"]
        assert found["sectors"][found["op"] == op].sum() * 512 == job[name]["io_bytes"]
    flushes = sum(" sync " in x or " datasync " in x for x in path.read_text().splitlines())
    assert (found["op"] == Op.FLUSH).sum() == flushes
    # If the unit were another, the job would have taken a thousandth, or a thousand times, of this.
    assert found["time_ns"][-1] < (job["job_runtime"] + 1000) * 1_000_000
    if "--thinktime=100us" in options:
        assert found["time_ns"][-1] >= 255 * 100_000


@pytest.mark.builds
def test_iologs_of_version_2_that_fio_replays(tmp_path: Path) -> None:
    lines = lines_of("fio2", [w for w in SOME if w.op != Op.FLUSH])
    (tmp_path / "iolog").write_text("\n".join(lines).replace("/dev/sdb", "target") + "\n")
    job = fio_job(tmp_path, "--ioengine=null", "--read_iolog=iolog", "--size=64m")
    found = joined(traces.read(tmp_path / "iolog"))
    for name, op in (("read", Op.READ), ("write", Op.WRITE)):
        assert (found["op"] == op).sum() == job[name]["total_ios"]


# include/uapi/linux/blktrace_api.h: categories, actions, and an event's form
CATEGORY = {c: 1 << i for i, c in enumerate("RWFSqricfpnAMDdU")}
ACTION = {"Q": 1, "G": 3, "D": 7, "C": 8}


def blktrace_event(number: int, time_ns: int, action: str, flags: str, w: Wanted) -> bytes:
    category = sum(CATEGORY[flag] for flag in flags)
    header = (0x65617407, number, time_ns, w.lba, w.sectors * 512, ACTION[action] | category << 16)
    return struct.pack("<IIQQIIIIIHH", *header, 697, 8 << 20 | 16, 0, 0, 0)


@pytest.mark.builds
@pytest.mark.parametrize("event", ["Q", "D", "C"])
def test_text_that_blkparse_writes(tmp_path: Path, event: str) -> None:
    blkparse = need("blkparse")
    wanted = [
        ("R", Wanted(0, Op.READ, 100, 8)),
        ("WS", Wanted(1000, Op.WRITE, 200, 8)),
        ("WSU", Wanted(2000, Op.WRITE, 300, 16, True)),
        ("F", Wanted(3000, Op.FLUSH, 0, 0)),
        ("WFS", Wanted(4000, Op.FLUSH, 0, 0)),
        ("WD", Wanted(5000, Op.TRIM, 2**40, 2048)),
        ("RAM", Wanted(6_000_000_000, Op.READ, 600, 8)),
    ]
    events = [
        blktrace_event(1 + i, 1_700_000_000 + w.time_ns, event, flags, w)
        for i, (flags, w) in enumerate(wanted)
    ]
    other = blktrace_event(99, 1_700_000_000 + 10**10, "G", "R", Wanted(0, Op.READ, 1, 8))
    (tmp_path / "made.blktrace.0").write_bytes(b"".join(events) + other)
    done = subprocess.run(
        [blkparse, "-i", "made"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    path = tmp_path / "text"
    path.write_text(done.stdout)
    assert "CPU0" in done.stdout
    check(traces.read(path, event=event), [w for _, w in wanted])
