"""The journal: what is in it stays, what was cut short does not count."""

from __future__ import annotations

import json
import os
import threading
import zlib
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.runs.journal import Entry, Journal


def entry(name: str, *, trace: bool = False) -> Entry:
    return Entry(
        key=name,
        point=f"p-{name}",
        values={"n": 1},
        metrics={"elapsed_s": 1.5},
        series={"h": [1, 2]},
        trace=trace,
        about={},
    )


def test_entries_come_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new")
    journal.check_writable()
    for name in "ab":
        journal.append(entry(name), {})
    assert journal.entries() == {"a": entry("a"), "b": entry("b")}
    assert Journal(tmp_path / "other").entries() == {}


@pytest.mark.parametrize("cut", [1, 2, 20, 100])
def test_a_line_that_was_cut_short_is_dropped_and_the_next_is_not(tmp_path: Path, cut: int) -> None:
    journal = Journal(tmp_path)
    for name in "abc":
        journal.append(entry(name), {})
    file = tmp_path / "journal.jsonl"
    file.write_bytes(file.read_bytes()[:-cut])
    survivors = set(journal.entries())
    assert survivors == ({"a", "b", "c"} if cut == 1 else {"a", "b"})
    journal.append(entry("d"), {})
    assert set(journal.entries()) == survivors | {"d"}


@given(position=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_damaged_byte_costs_its_line_at_most(position: int, value: int, tmp_path: Path) -> None:
    folder = tmp_path / f"{position}-{value}"
    folder.mkdir(exist_ok=True)
    (folder / "journal.jsonl").unlink(missing_ok=True)
    journal = Journal(folder)
    for name in "abc":
        journal.append(entry(name), {})
    file = folder / "journal.jsonl"
    data = bytearray(file.read_bytes())
    data[position % len(data)] = value
    file.write_bytes(data)
    found = journal.entries()
    assert len(found) >= 1
    assert all(found[key] == entry(key) for key in found)


def test_a_point_without_its_trace_does_not_count(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(entry("a", trace=True), {"lba": np.arange(5), "op": np.zeros(5, np.uint8)})
    assert set(journal.entries()) == {"a"}
    journal.trace_path("a").unlink()
    assert journal.entries() == {}


def test_a_point_run_again_with_other_code_leaves_the_first_its_trace(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    of_one_point = [replace(entry(key, trace=True), point="p") for key in "ab"]
    for number, each in enumerate(of_one_point):
        journal.append(each, {"lba": np.full(3, number)})
    read = {
        key: pq.read_table(path).column("lba").to_pylist()
        for key, found in journal.entries().items()
        for name, path in journal.traces(found).items()
        if name == "p.parquet"
    }
    assert read == {"a": [0, 0, 0], "b": [1, 1, 1]}


def test_block_requests_are_taken_over_from_another_file_system(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.check_writable()
    recorded = Path("/dev/shm") / f"flashlab-{os.getpid()}.parquet"
    if not recorded.parent.is_dir() or recorded.parent.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system")
    recorded.write_bytes(b"rows")
    journal.keep_block_trace("a", recorded)
    assert not recorded.exists()
    assert journal.entries() == {}  # nothing counts before its line
    journal.append(replace(entry("a"), block_trace=True), {})
    assert [p.read_bytes() for p in journal.traces(journal.entries()["a"]).values()] == [b"rows"]
    journal.block_trace_path("a").unlink()
    assert journal.entries() == {}


def _line(body: object) -> bytes:
    text = json.dumps(body)
    return f"{zlib.crc32(text.encode()):08x} {text}\n".encode()


def _changed(**fields: object) -> dict[str, object]:
    return {**asdict(entry("b")), **fields}


@pytest.mark.parametrize(
    "body",
    [
        _changed(colour="red"),
        {"key": "b"},
        _changed(values=[]),
        _changed(key=["b"]),
        _changed(trace="no"),
        [],
        7,
        "b",
        None,
    ],
)
def test_a_line_of_another_version_does_not_count(tmp_path: Path, body: object) -> None:
    """It is whole, by its checksum, but has not the fields that we know."""
    journal = Journal(tmp_path)
    journal.append(entry("a"), {})
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(_line(body))
        nested = b"[" * 100_000 + b"]" * 100_000
        file.write(f"{zlib.crc32(nested):08x} ".encode() + nested + b"\n")
    journal.append(entry("c"), {})
    assert set(journal.entries()) == {"a", "c"}


def test_one_works_on_a_journal_and_the_other_waits_for_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new")
    said: list[str] = []
    order: list[str] = []

    def second() -> None:
        with journal.alone(said.append):
            order.append("second")

    with journal.alone(said.append):
        thread = threading.Thread(target=second)
        thread.start()
        while not said:
            assert thread.is_alive()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert said == [f"process {os.getpid()}"]
