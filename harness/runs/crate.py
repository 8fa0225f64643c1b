"""A release's description for machines: a Workflow Run RO-Crate (ro-crate-metadata.json).

Every figure is the result of an action, which names the notebook that made it (code, at a commit),
the parameters and seeds, the profiles of drives and host, and the machine. The workflow is DVC's.

Profiles: RO-Crate 1.1, Workflow RO-Crate 1.0, Workflow Run RO-Crate 0.5 and Process Run Crate 0.5
(https://www.researchobject.org/workflow-run-crate).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocrate.model import ContextEntity
from rocrate.rocrate import ROCrate

PROFILES: Final = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate 0.5",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate 0.5",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate 1.0",
}
_TERMS: Final = "https://w3id.org/ro/terms/workflow-run/context"
_FORMATS: Final = {
    ".csv": "text/csv",
    ".ipynb": "application/x-ipynb+json",
    ".json": "application/json",
    ".md": "text/markdown",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".yaml": "application/yaml",
}
_SEEDS: Final = ("seed", "repetition")
"""Columns of tables that say what was varied at random; of the first that is there."""


_MEASURED: Final = "; parameters that only the models read are those of the simulation beside it"


@dataclass(frozen=True)
class Made:
    """A study's results on a tier, as they lie in the archive; paths are below its folder.

    `about`: what they depend on (runs/session). `seeds`: column and values of the table, if it has
    one. `commit`: of the code, or of the record where a machine has measured; `is_of_now`: whether
    code, parameters and profiles are those of then, else `profiles` is empty and the notebook that
    ran is that commit's. `results` are tables and metrics, `figures` pictures, each of `table`.
    """

    study: str
    tier: str
    title: str
    is_of_now: bool
    commit: str
    notebook: str
    table: str
    about: Mapping[str, Any]
    seeds: tuple[str, Sequence[int]] | None
    profiles: Sequence[str]
    machine: Mapping[str, str]
    results: Sequence[str]
    figures: Sequence[str]

    @property
    def id(self) -> str:
        """Of its action."""
        return f"#{self.study}.{self.tier}"


@dataclass(frozen=True)
class Origin:
    """The release itself: what it is called, its licence (SPDX), commit and the commit's date."""

    name: str
    version: str
    description: str
    licence: str
    commit: str
    date: str
    files: Mapping[str, str]
    """What else is in the archive, and what it is; with dvc.yaml, the workflow, and params.yaml."""


def write(folder: Path, origin: Origin, made: Sequence[Made]) -> None:
    """Writes ro-crate-metadata.json into a release's folder, in which all files are already."""
    crate = ROCrate(version="1.1")
    crate.metadata.extra_contexts.append(_TERMS)
    _describe(crate, origin)
    for name, text in origin.files.items():
        _file(crate, folder, name, description=text)
    actions = [_action(crate, folder, each, origin) for each in made]
    _workflow(crate, folder, origin, made)
    crate.root_dataset["mentions"] = [crate.dereference("#run"), *actions]
    document = json.dumps(crate.metadata.generate(), indent=1, sort_keys=True) + "\n"
    (folder / "ro-crate-metadata.json").write_text(document)


def seeds_of(columns: Mapping[str, Sequence[int]]) -> tuple[str, list[int]] | None:
    """The column of a table that says what was random, and its values, ascending."""
    for name in _SEEDS:
        if name in columns:
            return name, sorted({int(value) for value in columns[name]})
    return None


def _describe(crate: ROCrate, origin: Origin) -> None:
    licence = _entity(
        crate, f"https://spdx.org/licenses/{origin.licence}", "CreativeWork", name=origin.licence
    )
    root = crate.root_dataset
    root["name"], root["description"] = origin.name, origin.description
    root["version"], root["datePublished"] = origin.version, origin.date
    root["license"] = licence
    root["conformsTo"] = [
        _entity(crate, address, "CreativeWork", name=name, version=name.rpartition(" ")[2])
        for address, name in PROFILES.items()
    ]


def _workflow(crate: ROCrate, folder: Path, origin: Origin, made: Sequence[Made]) -> None:
    """DVC's pipeline, and the run of it that these results are."""
    language = _entity(
        crate, "#dvc", "ComputerLanguage", name="DVC", url={"@id": "https://dvc.org"}
    )
    simulated = [each for each in made if each.tier == "simulated"]
    workflow = _file(
        crate,
        folder,
        "dvc.yaml",
        kinds=("SoftwareSourceCode", "ComputationalWorkflow"),
        name="simulated tier of all papers",
        programmingLanguage=language,
        version=origin.commit,
        hasPart=[crate.dereference(name) for name in sorted({each.notebook for each in simulated})],
    )
    crate.root_dataset["mainEntity"] = workflow
    results = sorted({name for each in simulated for name in (*each.results, *each.figures)})
    _entity(
        crate,
        "#run",
        "CreateAction",
        name="dvc repro",
        instrument=workflow,
        description="all stages of the simulated tier that this archive has",
        object=crate.dereference("params.yaml"),
        result=[crate.dereference(name) for name in results],
        endTime=origin.date,
    )


def _action(crate: ROCrate, folder: Path, made: Made, origin: Origin) -> ContextEntity:
    notebook = _notebook(crate, folder, made, origin)
    profiles = [_file(crate, folder, name) for name in made.profiles]
    machine = _machine(crate, made)
    results = [_file(crate, folder, name) for name in made.results]
    figures = [
        _file(
            crate,
            folder,
            name,
            about=crate.dereference(made.table),
            isBasedOn=[crate.dereference(made.table), notebook, *profiles],
        )
        for name in made.figures
    ]
    return _entity(
        crate,
        made.id,
        "CreateAction",
        name=f"{made.title}, tier {made.tier}",
        description=f"of commit {made.commit}{'' if made.tier == 'simulated' else _MEASURED}",
        instrument=notebook,
        object=[*_parameters(crate, made), *profiles, machine],
        result=[*results, *figures],
    )


def _notebook(crate: ROCrate, folder: Path, made: Made, origin: Origin) -> ContextEntity:
    """What ran: a file of the archive, or that of an earlier commit, which is in the bundle."""
    kind, title = "SoftwareSourceCode", made.title
    if made.is_of_now:
        return _file(crate, folder, made.notebook, kinds=(kind,), name=title, version=origin.commit)
    return _entity(crate, f"#{made.commit}/{made.notebook}", kind, name=title, version=made.commit)


def _parameters(crate: ROCrate, made: Made) -> Iterator[ContextEntity]:
    """A value for each parameter, the code's commit and digest, and what was random."""
    given = {**made.about["parameters"], "commit": made.commit}
    given |= {name: made.about[name] for name in ("code", "core") if name in made.about}
    column, values = made.seeds or ("seed", "fixed in the code")
    given[column] = values
    for name, value in sorted(given.items()):
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        yield _entity(crate, f"{made.id}.{name}", "PropertyValue", name=name, value=text)


def _machine(crate: ROCrate, made: Made) -> ContextEntity:
    said = ", ".join(f"{name} {value}" for name, value in sorted(made.machine.items()))
    if not said:
        said = "any: in virtual time the same bits everywhere"
    return _entity(crate, f"{made.id}.machine", "PropertyValue", name="machine", value=said)


def _file(
    crate: ROCrate, folder: Path, path_name: str, kinds: Sequence[str] = (), **properties: Any
) -> ContextEntity:
    """The entity of a file in the archive; made once, and then given what else is known of it."""
    path = folder / path_name
    assert path.is_file(), path_name
    found = crate.dereference(path_name)
    if found is None:
        kind = _FORMATS.get(path.suffix, "application/octet-stream")
        size = str(path.stat().st_size)
        facts: dict[str, Any] = {"name": path_name, "contentSize": size, "encodingFormat": kind}
        facts |= {"@type": ["File", *kinds]} if kinds else {}
        found = crate.add_file(path, path_name, properties=facts)
    for key, value in properties.items():
        found[key] = value
    return found


def _entity(crate: ROCrate, identity: str, kind: str, **properties: Any) -> ContextEntity:
    entity = crate.add(ContextEntity(crate, identity, {"@type": kind}))
    for key, value in properties.items():
        entity[key] = value
    return entity
