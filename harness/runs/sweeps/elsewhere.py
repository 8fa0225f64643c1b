"""Which of a sweep's machines also give what others measured on the same device.

Each measurement is taken for a claim, and judged with the machines of the sweep as its own claims
are: in how many it holds, and on which unknown that depends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from harness import experiments
from harness.devices.profiles import load_device
from harness.errors import BadParameter
from harness.experiments.elsewhere import Checked, Elsewhere
from harness.runs import code
from harness.runs.claims import Claim
from harness.runs.sweeps import tables
from harness.runs.sweeps.machines import Machine
from harness.runs.sweeps.recorded import Recorded
from harness.runs.sweeps.sweep import parquet
from harness.runs.sweeps.tables import ELSEWHERE
from harness.system.files import write_atomically


def of_study(study: str) -> Sequence[Elsewhere]:
    """What others measured on its devices; nothing for most studies."""
    experiment = experiments.find(study)
    return experiment.elsewhere if isinstance(experiment, Checked) else ()


def measured(study: str, machines: Iterable[Machine], workers: int = 1) -> pd.DataFrame:
    """A row per machine and measurement: `machine`, `claim`, `value` (NaN: cannot be asked).

    Machines with the same device are asked once, `workers` of them at a time. Raises BadParameter
    for a study without any.
    """
    wanted = of_study(study)
    if not wanted:
        raise BadParameter(f"{study}: nothing is on file that others measured on its devices")
    asked = [
        (machine.number, each, machine.profiles[each.device])
        for machine in machines
        for each in wanted
    ]
    once = {(each.id, profile): (each, profile) for _, each, profile in asked}
    # Threads: nearly all of it is the models' core, which lets others run meanwhile.
    with ThreadPoolExecutor(workers) as pool:
        found = pool.map(lambda one: _value(*one), once.values())
        shown = tqdm(found, f"{study}, measured elsewhere", len(once), unit="measurement")
        known = dict(zip(once, shown, strict=True))
    rows = [
        {"machine": number, "claim": each.id, "value": known[each.id, profile]}
        for number, each, profile in asked
    ]
    return pd.DataFrame(rows, columns=["machine", "claim", "value"]).astype({"value": "float64"})


def _value(each: Elsewhere, profile: bytes) -> float:
    with tempfile.TemporaryDirectory(prefix="elsewhere-") as folder:
        path = Path(folder) / f"{each.device}.yaml"
        path.write_bytes(profile)
        try:
            return each.measure(load_device(Path(folder), each.device))
        except BadParameter:
            return float("nan")


def code_of(study: str) -> str:
    """Digest of all that a measurement on the study's devices passes through."""
    return code.reached(sorted({each.measure.__module__ for each in of_study(study)})).digest()


def write(values: pd.DataFrame, points: Mapping[int, str], study: str, folder: Path) -> None:
    """Beside the sweep's own tables, of machines that have points (`points`: as `Sweep.points`).

    A row per machine and measurement: `points`, `claim`, `value`, and `code`, by which it was
    taken. A number says which machine is meant in its sweep alone.
    """
    table = values.assign(points=values.machine.map(points), code=code_of(study))
    table = table.loc[table.points != "", ["points", "claim", "value", "code"]]
    write_atomically(folder / ELSEWHERE, parquet(table), make_folder=True)


def read(folder: Path, study: str) -> pd.DataFrame | None:
    """What `write` has written there, of the sweep's machines and by the code of now: columns
    `machine`, `claim`, `value`, as `measured`; None if there is nothing.
    """
    path = folder / ELSEWHERE
    if not path.is_file():
        return None
    known = pd.read_parquet(path)
    if not {"points", "code"} <= set(known):  # an earlier version's
        return None
    machines, _, _ = tables.read(folder)
    known = known[known.code == code_of(study)].drop_duplicates(["points", "claim"])
    found = machines[["machine", "points"]].merge(known, on="points")
    return found[["machine", "claim", "value"]] if len(found) else None


def judged(recorded: Recorded, study: str, values: pd.DataFrame) -> Recorded:
    """The sweep with these measurements in the place of its claims."""
    return replace(recorded, claims=_claims(of_study(study)), values=values)


def _claims(wanted: Sequence[Elsewhere]) -> Mapping[str, Claim]:
    return {
        each.id: Claim(
            id=each.id,
            place=each.source,
            statement=each.statement,
            metric="",
            published=each.published,
            expected=each.expected,
            why=each.why,
        )
        for each in wanted
    }
