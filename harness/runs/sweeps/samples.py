"""Which machines a sweep takes: a low-discrepancy sample, one for total effects, or a list."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import scipy
import yaml
from numpy.typing import NDArray
from SALib.sample import sobol as saltelli

from harness.errors import BadParameter
from harness.runs.sweeps.unknowns import Unknowns, Value
from harness.system.documents import read_yaml

Design = Literal["sobol", "totals", "list"]
"""`sobol`: fills the space evenly. `totals`: blocks of D + 2 machines that differ in single
unknowns, from which total effects follow. `list`: named by somebody."""

SEED: Final = 20261123
_MOST: Final = 1 << 20


def sobol(unknowns: Unknowns, count: int) -> list[dict[str, Value]]:
    """The default machine, then `count` of a scrambled Sobol' sequence (Owen, 1998).

    A longer sample begins with the shorter one. Raises BadParameter for a count that is none.
    """
    _check(count, least=0)
    names = list(unknowns.unknowns)
    sampler = scipy.stats.qmc.Sobol(len(names), rng=np.random.default_rng(SEED))
    # A whole power of two: anything less is not balanced, and SciPy says so.
    shares = sampler.random_base2(max(count - 1, 1).bit_length())[:count]
    return [unknowns.default, *(_machine(unknowns, row) for row in shares)]


def totals(unknowns: Unknowns, count: int) -> list[dict[str, Value]]:
    """The default machine, then whole blocks of D + 2, at most `count` of them together.

    Saltelli's sample of A, B and their mixtures (SALib), without second order. Raises BadParameter
    for less than a block.
    """
    _check(count)
    names = list(unknowns.unknowns)
    blocks = count // (len(names) + 2)
    if not blocks:
        raise BadParameter(
            f"{count} machines: total effects of {len(names)} unknowns take blocks of "
            f"{len(names) + 2}"
        )
    problem = {"num_vars": len(names), "names": names, "bounds": [[0.0, 1.0]] * len(names)}
    rows = saltelli.sample(
        problem, 1 << (blocks - 1).bit_length(), calc_second_order=False, seed=SEED
    )
    shares = rows[: blocks * (len(names) + 2)]
    return [unknowns.default, *(_machine(unknowns, row) for row in shares)]


def listed(unknowns: Unknowns, path: Path) -> list[dict[str, Value]]:
    """The default machine, then those of a YAML list of mappings, defaults for what they leave out.

    Raises BadParameter, UnknownName.
    """
    try:
        given: Any = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadParameter(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise BadParameter(f"{path}: write a list of mappings, unknown: value")
    return [unknowns.default, *(unknowns.check(each) for each in given)]


def shares(unknowns: Unknowns, machines: list[dict[str, Value]]) -> NDArray[np.float64]:
    """Where the machines' values lie in their ranges: float64, (machines, unknowns), 0 to 1."""
    rows = [[each.share(m[name]) for name, each in unknowns.unknowns.items()] for m in machines]
    return np.asarray(rows, dtype=np.float64).reshape(len(machines), len(unknowns.unknowns))


def _machine(unknowns: Unknowns, row: NDArray[np.float64]) -> dict[str, Value]:
    return unknowns.at(dict(zip(unknowns.unknowns, map(float, row), strict=True)))


def _check(count: int, least: int = 1) -> None:
    if not least <= count <= _MOST:
        raise BadParameter(f"{count} machines: take {least} to {_MOST}")
