"""Where a trace's requests lie: against a count of sectors; files' extents against their data."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import loop_device
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BadParameter, TargetError
from harness.probes import fiemap, places, scripts
from harness.system import filesystems, mounts

Request = tuple[int, int, str]
SECTOR = 512
PLACES = {"a": [(0, 10), (30, 31)], "b": [(10, 20)], "far": [(60, 90)], "unseen": [(200, 210)]}
"""In sectors."""

REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 99), st.integers(1, 40), st.sampled_from(["read", "write", "discard"])
    ),
    min_size=1,
    max_size=40,
)


def in_bytes(ranges: dict[str, list[tuple[int, int]]]) -> dict[str, list[tuple[int, int]]]:
    return {name: [(b * SECTOR, e * SECTOR) for b, e in each] for name, each in ranges.items()}


def trace_of(requests: list[Request], path: Path) -> Path:
    rows = [
        {
            "issued_ns": number,
            "latency_ns": 1,
            "completed_ns": number + 1,
            "lba": lba,
            "sectors": sectors,
            "op": op,
            "flags": "",
            "error": False,
        }
        for number, (lba, sectors, op) in enumerate([*requests, (0, 0, "flush")])
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=scripts.BLOCK_IO), path)
    return path


def place_of(sector: int) -> str:
    for name, ranges in PLACES.items():
        if any(begin <= sector < end for begin, end in ranges):
            return name
    return places.REST


@given(requests=REQUESTS)
def test_every_sector_is_counted_where_it_lies(requests: list[Request], tmp_path: Path) -> None:
    found = places.by_place(trace_of(requests, tmp_path / "t.parquet"), in_bytes(PLACES))
    begun = Counter((place_of(lba), op) for lba, _, op in requests)
    lying = Counter((place_of(s), op) for lba, n, op in requests for s in range(lba, lba + n))
    rows = {(r.place, r.op): (r.requests, r.bytes) for r in found.itertuples()}
    assert rows == {key: (begun[key], lying[key] * SECTOR) for key in lying}
    assert found.requests.sum() == len(requests)
    order = [*PLACES, places.REST]
    assert [order.index(p) for p in found.place] == sorted(order.index(p) for p in found.place)


def test_accesses_are_divided_by_the_regions_size(tmp_path: Path) -> None:
    """A journal of 8 sectors that is written three times, and a home of 32 written once."""
    journal = [(lba, 4, "write") for _ in range(3) for lba in (0, 4)]
    home = [(8 + 8 * i, 8, "write") for i in range(4)]
    trace = trace_of([*journal, *home, (8, 8, "read"), (9, 1, "discard")], tmp_path / "t.parquet")
    ranges = {"journal": [(0, 4 * SECTOR), (4 * SECTOR, 8 * SECTOR)]}
    found = places.accesses_per_lba(trace, ranges, 40 * SECTOR).set_index("place")
    assert list(found.index) == ["journal", places.REST]
    assert list(found.requests) == [6, 5]
    assert list(found.size_bytes) == [8 * SECTOR, 32 * SECTOR]
    assert list(found.requests_per_lba) == [6 / 8, 5 / 32]
    assert list(found.accesses_per_lba) == [3.0, 40 / 32]
    assert list(found.writes_per_lba) == [3.0, 1.0]
    alone = places.accesses_per_lba(trace, ranges)
    assert list(alone.place) == ["journal"]


def test_a_place_that_was_never_touched_has_no_accesses(tmp_path: Path) -> None:
    trace = trace_of([(0, 4, "write")], tmp_path / "t.parquet")
    found = places.accesses_per_lba(trace, {"far": [(4096, 8192)]}, 8192)
    assert isinstance(found, pd.DataFrame)
    assert list(found.accesses_per_lba) == [0.0, 0.5]


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ({"a": [(0, 1024)], "b": [(512, 2048)]}, "places a and b overlap at 512 B"),
        ({"a": [(0, 1024), (0, 512)]}, "overlap"),
        ({"a": [(0, 100)]}, "a: 0 to 100 B must begin and end at a multiple of 512"),
        ({"a": [(512, 512)]}, "not be empty"),
        ({"a": [(-512, 512)]}, "must begin"),
        ({places.REST: [(0, 512)]}, "may not be called"),
    ],
)
def test_places_that_cannot_be_are_refused(
    ranges: dict[str, list[tuple[int, int]]], said: str, tmp_path: Path
) -> None:
    trace = trace_of([(0, 1, "read")], tmp_path / "t.parquet")
    with pytest.raises(BadParameter, match=said):
        places.by_place(trace, ranges)


def test_a_device_is_not_smaller_than_its_places(tmp_path: Path) -> None:
    trace = trace_of([(0, 1, "read")], tmp_path / "t.parquet")
    with pytest.raises(BadParameter, match="larger together"):
        places.accesses_per_lba(trace, {"a": [(0, 1024)]}, 512)


def test_pages_are_counted_by_their_number_in_the_file(tmp_path: Path) -> None:
    """A file of three pages in two pieces, the second of which comes first on the device."""
    block, page = 4096, 16384
    file = [(10 * block, 16 * block), (2 * block, 8 * block)]
    requests = [
        (10 * 8, 4 * 8, "write"),  # page 0
        (14 * 8, 2 * 8, "write"),  # half of page 1
        (2 * 8, 6 * 8, "write"),  # the other half, and page 2
        (4 * 8, 1 * 8, "write"),  # a quarter of page 2
        (10 * 8, 4 * 8, "read"),
        (0, 2 * 8, "write"),  # before it
        (16 * 8, 9 * 8, "write"),  # behind it
    ]
    trace = trace_of([*requests], tmp_path / "t.parquet")
    found = places.page_writes(trace, {"file": file, "other": [(20 * block, 25 * block)]}, page)
    assert list(found["file"]) == [1.0, 1.0, 1.25]
    assert list(found["other"]) == [1.0, 0.25]
    for pages, ranges in ((1000, file), (page, [(512, 8192)])):
        with pytest.raises(BadParameter, match="must be multiples of 4096"):
            places.page_writes(trace, {"file": ranges}, pages)


@given(requests=REQUESTS)
def test_pages_of_all_places_are_all_that_was_written(
    requests: list[Request], tmp_path: Path
) -> None:
    """In whole blocks: against a count of each."""
    whole = [(8 * lba, 8 * sectors, op) for lba, sectors, op in requests]
    trace = trace_of(whole, tmp_path / "t.parquet")
    ranges = {"all": [(0, 200 * 4096)]}
    [found] = places.page_writes(trace, ranges, 4096).values()
    touched = Counter(b for lba, n, op in requests for b in range(lba, lba + n) if op == "write")
    assert [int(n) for n in found] == [touched[block] for block in range(200)]


# --- files


def content_at(device: Path, ranges: list[tuple[int, int]]) -> bytes:
    with device.open("rb", buffering=0) as disk:
        return b"".join(os.pread(disk.fileno(), end - begin, begin) for begin, end in ranges)


@pytest.mark.servers
@pytest.mark.root
def test_a_files_extents_hold_its_data(tmp_path: Path) -> None:
    data = os.urandom((3 << 20) + 100)
    with loop_device(tmp_path, 64 << 20) as device, filesystems.ext4(device) as folder:
        file = folder / "file"
        file.write_bytes(data)
        whole = fiemap.file_extents(file)
        part = fiemap.file_extents(file, 4096, 20480)
        (folder / "sparse").touch()
        os.truncate(folder / "sparse", 1 << 20)
        with (folder / "sparse").open("r+b") as sparse:
            sparse.seek(512 << 10)
            sparse.write(b"x" * 4096)
        [hole] = fiemap.file_extents(folder / "sparse")
        mounts.sync(folder)
        assert content_at(device, whole)[: len(data)] == data
        assert sum(end - begin for begin, end in whole) == len(data)
        assert content_at(device, part) == data[4096:20480]
        assert content_at(device, [hole]) == b"x" * 4096
        assert fiemap.file_extents(folder / "sparse", 0, 4096) == []


@pytest.mark.servers
@pytest.mark.root
def test_a_file_in_many_pieces_is_found_whole(tmp_path: Path) -> None:
    """More pieces than one question is answered with."""
    with loop_device(tmp_path, 64 << 20) as device, filesystems.ext4(device) as folder:
        with (folder / "file").open("wb") as file:
            for number in range(1200):
                file.seek(number * 8192)
                file.write(number.to_bytes(4, "little") * 1024)
        ranges = fiemap.file_extents(folder / "file")
        mounts.sync(folder)
        data = content_at(device, ranges)
        found = [int.from_bytes(data[i * 4096 : i * 4096 + 4], "little") for i in range(1200)]
        assert found == list(range(1200))
        assert sum(end - begin for begin, end in ranges) == 1200 * 4096


@pytest.mark.servers
@pytest.mark.root
def test_a_file_system_without_places_says_so() -> None:
    with pytest.raises(TargetError, match="does not say where it lies"):
        fiemap.file_extents(Path("/proc/self/status"), 0, 4096)
