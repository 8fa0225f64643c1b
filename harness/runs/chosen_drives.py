"""The drives of `make hardware`: chosen once, shown to by a plan, then taken by every study."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness import experiments
from harness.drives import conditions, fingerprint, guard
from harness.drives.queue_settings import deciding
from harness.errors import BadParameter, HarnessError
from harness.experiments.base import Experiment
from harness.paths import Project
from harness.runs import hardware_plan, parameters
from harness.runs.hardware_plan import DrivePlan
from harness.runs.session import pipelines_options
from harness.system.files import write_atomically


def write(
    project: Project, path: Path, drives: Mapping[str, str], journals: Mapping[str, str]
) -> None:
    """What studies call the drives, as what they are claimed, and which these are: a stage depends
    on the file, and what one drive has given is not another's that is claimed as the first was.

    Raises UnknownName, TargetError for a drive that is not claimed, or is not there.
    """
    chosen = {
        "drives": dict(drives),
        "journals": dict(journals),
        "are": {name: _which(project, name) for name in (*drives.values(), *journals.values())},
    }
    write_atomically(path, (json.dumps(chosen, indent=1, sort_keys=True) + "\n").encode())


def _which(project: Project, name: str) -> dict[str, str]:
    """A claimed drive's facts, its firmware among them, and when it was claimed; and under which
    conditions it is measured, as far as results are kept apart by them.
    """
    claim, drive = guard.find(name, project)
    return {
        **fingerprint.of_drive(drive),
        **conditions.of_drive(drive.node),
        **{f"queue_{setting}": value for setting, value in deciding(drive.name).items()},
        "claimed_at": claim.claimed_at,
    }


def chosen_drives_of(study: str, path: Path) -> dict[str, dict[str, str]]:
    """`drives` and `journals` of the file, as far as a study has a use for them.

    Raises BadParameter without the file, or if it has no drive for the study.
    """
    try:
        chosen = json.loads(path.read_text(encoding="utf-8"))
        found = {
            "drives": of_study(study, chosen["drives"]),
            "journals": journals_of(study, chosen["journals"]),
        }
    except (OSError, ValueError, KeyError) as error:
        raise BadParameter(f"{path}: no drives are chosen: harness hardware choose") from error
    if not found["drives"]:
        raise BadParameter(f"{study}: none of {', '.join(chosen['drives'])} has a role in it")
    return found


def of_study(study: str, drives: Mapping[str, str]) -> dict[str, str]:
    """Those that have a role in it."""
    names = {role.device for role in _study(study).roles}
    return {device: claimed for device, claimed in drives.items() if device in names}


def journals_of(study: str, journals: Mapping[str, str]) -> dict[str, str]:
    """Those of a study that has a use for a journal apart; another's results are not of them."""
    apart = {role.device for role in _study(study).roles if role.with_fdp}
    return {device: claimed for device, claimed in journals.items() if device in apart}


def plans(
    project: Project, drives: Mapping[str, str], journals: Mapping[str, str]
) -> Iterator[tuple[str, list[DrivePlan] | str]]:
    """Of every study of the pipeline: what it would do to its drives, or why it cannot run.

    Raises BadParameter for a name that no study has a role for. Writes nothing.
    """
    studies = parameters.pipelines(project)["hardware"]
    _check_names(studies, [*drives, *journals])
    for study in studies:
        own = of_study(study, drives)
        if not own:
            yield study, "none of these drives has a role in it"
            continue
        options = pipelines_options(project).model_copy(
            update={"drives": own, "journals": journals_of(study, journals)}
        )
        try:
            yield study, hardware_plan.plan(project, study, options)
        except HarnessError as error:
            yield study, str(error)


def unused_journals(
    study: str, plan: Iterable[DrivePlan], journals: Mapping[str, str]
) -> list[str]:
    """Drives of a study whose journals apart no point of its plan writes to."""
    used = {each.name for each in plan}
    own = journals_of(study, journals)
    return [device for device in own if hardware_plan.journal_of(device) not in used]


def _check_names(studies: Iterable[str], names: Iterable[str]) -> None:
    known = {role.device for study in studies for role in _study(study).roles}
    for name in names:
        if name not in known:
            raise BadParameter(f"no study has a drive {name!r}; known: {', '.join(sorted(known))}")


def _study(name: str) -> Experiment:
    return experiments.find(name)
