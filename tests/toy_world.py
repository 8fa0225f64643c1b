"""A checkout that has the toy study of tests/runs/toy: its parameters and its claim."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from harness.paths import Project

_PACKAGE: Final = Path(__file__).parent / "runs" / "toy"
_CLAIM: Final = {
    "id": "toy-depth",
    "place": "nowhere",
    "statement": "eight at a time are faster",
    "figure": "reads",
    "metric": "SELECT max(iops) / min(iops) FROM r",
    "published": "2",
    "expected": [2.0, 100.0],
    "why": "a flash drive has many dies",
}


def environment() -> dict[str, str]:
    """Of a process that knows the study."""
    return {**os.environ, "PYTHONPATH": str(_PACKAGE)}


@contextmanager
def gated(folder: Path, points: int) -> Iterator[dict[str, str]]:
    """For the environment of a process: in it so many points are run, and the next ones wait for as
    long as the block runs.
    """
    pipe = folder / "gate"
    os.mkfifo(pipe)
    fd = os.open(pipe, os.O_RDWR)
    try:
        os.write(fd, bytes(points))  # each takes one
        yield {"TOY_GATE": str(pipe)}
    finally:
        os.close(fd)


def furnish(checkout: Project, *more_claims: dict[str, Any]) -> None:
    """Parameters, a line in the pipeline, and claims, in place of all other papers'."""
    params = yaml.safe_load(checkout.params.read_text())
    bench = {"devices": {"drive": "samsung_980_1tb"}, "host": "server_2017"}
    params["toy"] = {"simulated": {"bench": bench, "parameters": {"depths": [1, 8]}}}
    params["pipeline"]["simulated"]["toy"] = "70_toy"
    checkout.params.write_text(yaml.safe_dump(params, sort_keys=False))
    relation = "SELECT * FROM results WHERE variant = $variant AND $repetition IS NULL"
    claims = [_CLAIM, *({**_CLAIM, **each} for each in more_claims)]
    paper = {"title": "Toy", "reference": "none", "relation": relation, "claims": claims}
    (checkout.published / "claims.yaml").write_text(yaml.safe_dump({"toy": paper}))
