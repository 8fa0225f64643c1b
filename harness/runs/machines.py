"""Which machine each study is measured on: what DVC's stages of the real tiers depend on.

One file for each, since the studies of a tier need not be measured on the same day, or machine.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from harness.drives import fingerprint
from harness.errors import UnknownName
from harness.paths import Project
from harness.runs import parameters
from harness.system.files import write_atomically


def write(project: Project, tier: str, studies: Collection[str] = ()) -> None:
    """Writes data/machines/STUDY.TIER.json of this machine, for all studies of a pipeline or some.

    Raises UnknownName for a tier that measures nothing, or a study that is not in its pipeline.
    """
    pipelines = {
        name: pipeline
        for name, pipeline in parameters.pipelines(project).items()
        if name != "simulated"
    }
    if tier not in pipelines:
        raise UnknownName("tier that measures", tier, sorted(pipelines))
    for study in studies:
        if study not in pipelines[tier]:
            raise UnknownName(f"study of the {tier} pipeline", study, sorted(pipelines[tier]))
    data = (json.dumps(fingerprint.machine(), indent=1) + "\n").encode()
    for study in studies or pipelines[tier]:
        write_atomically(folder(project) / f"{study}.{tier}.json", data, make_folder=True)


def folder(project: Project) -> Path:
    """Where these files lie."""
    return project.root / "data" / "machines"
