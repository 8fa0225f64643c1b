"""Which machines a sweep takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.errors import BadParameter, HarnessError
from harness.runs.sweeps import samples
from harness.runs.sweeps.unknowns import Unknown, Unknowns

KNOWN = Unknowns(
    title="T",
    scale="s",
    unknowns={
        "linear": Unknown(
            what="a", sets={"host a": "{}"}, range=(10, 20), default=12, prior="p", excluded=""
        ),
        "log": Unknown(
            what="b",
            sets={"host b": "{} us"},
            range=(1, 10_000),
            form="log",
            whole=True,
            default=100,
            prior="p",
            excluded="",
        ),
        "choice": Unknown(
            what="c",
            choices={"x": {"host c": "1"}, "y": {"host c": "2"}, "z": {"host c": "3"}},
            default="y",
            prior="p",
            excluded="",
        ),
    },
)


def test_a_longer_sample_begins_with_the_shorter_one() -> None:
    short, long = samples.sobol(KNOWN, 5), samples.sobol(KNOWN, 200)
    assert short == long[:6]
    assert short[0] == KNOWN.default
    assert len(long) == 201


def test_a_sample_fills_the_ranges_evenly() -> None:
    shares = samples.shares(KNOWN, samples.sobol(KNOWN, 256)[1:])
    assert shares.shape == (256, 3)
    counts, _ = np.histogram(shares[:, 0], bins=8, range=(0, 1))
    assert counts.min() >= 30, counts
    values = [machine["choice"] for machine in samples.sobol(KNOWN, 256)[1:]]
    assert all(values.count(name) in range(80, 92) for name in "xyz")
    logs = sorted(float(m["log"]) for m in samples.sobol(KNOWN, 256)[1:])
    assert 80 < logs[128] < 125  # half of them below the geometric mean


def test_blocks_for_total_effects_differ_in_single_unknowns() -> None:
    first, *rest = samples.totals(KNOWN, 23)
    assert first == KNOWN.default
    assert len(rest) == 20  # 4 blocks of 5
    for begin in range(0, 20, 5):
        a, *mixed, b = rest[begin : begin + 5]
        for name, each in zip(KNOWN.unknowns, mixed, strict=True):
            assert each == a | {name: b[name]}


@pytest.mark.parametrize("count", [-1, 1 << 30])
def test_impossible_counts(count: int) -> None:
    with pytest.raises(BadParameter):
        samples.sobol(KNOWN, count)


def test_the_default_machine_alone() -> None:
    assert samples.sobol(KNOWN, 0) == [KNOWN.default]


def test_less_than_a_block() -> None:
    with pytest.raises(BadParameter, match="blocks of 5"):
        samples.totals(KNOWN, 4)


def test_machines_that_somebody_names(tmp_path: Path) -> None:
    path = tmp_path / "machines.yaml"
    path.write_text("- {log: 7, choice: z}\n- {linear: 11}\n")
    assert samples.listed(KNOWN, path) == [
        KNOWN.default,
        {"linear": 12, "log": 7, "choice": "z"},
        {"linear": 11, "log": 100, "choice": "y"},
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "- 3",
        "- {linear: 9}",
        "- {choice: w}",
        "- {choice: [y]}",
        "- {other: 1}",
        "- {1: 2}",
        "- {log: x}",
        "- {log: }",
        "- {log: [1, 2]}",
        "- {log: true}",
        "- {log: .nan}",
        "[",
        "\x00",
    ],
)
def test_bad_lists(tmp_path: Path, text: str) -> None:
    path = tmp_path / "machines.yaml"
    path.write_text(text)
    with pytest.raises(HarnessError):
        samples.listed(KNOWN, path)


def test_texts_and_shares_of_values() -> None:
    for share in (0.0, 0.2, 0.5, 1.0):
        for each in KNOWN.unknowns.values():
            value = each.at(share)
            assert each.at(each.share(value)) == value
    assert KNOWN.texts({"linear": 10.5, "log": 3, "choice": "x"}) == {
        "host a": "10.5",
        "host b": "3 us",
        "host c": "1",
    }
