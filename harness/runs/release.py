"""A release: one archive with all that is needed to check the results, and to make them again.

In it: the sources as a git bundle, what DVC has of results, figures and traces as a ready remote,
the lock files, figures and tables as files to look at, and a Workflow Run RO-Crate (runs/crate)
that says what each was made from.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

from harness import experiments
from harness.errors import DataFolderError, UnknownName
from harness.paths import Project
from harness.runs import code, parameters, places, published, summary
from harness.runs.crate import Made, Origin, seeds_of
from harness.system.programs import find_program

_TIERS: Final = ("simulated", "emulated")
"""What is published of them is the authors'; a claimed drive's results are its owner's."""

_BUNDLE: Final = "repository.bundle"
_REMOTE: Final = "remote"
_FILES: Final = {
    "CITATION.cff": "how to cite the package and the papers",
    "LICENSE": "the licence",
    "data/published/claims.yaml": "all claims, with what was published and what is expected",
    "dvc.lock": "digests of all inputs and results of the workflow",
    "params.yaml": "the parameters of all studies",
    "pyproject.toml": "the package and what it needs",
    "uv.lock": "the Python packages, locked",
}
_PAGE: Final = """# {name}

{description} Of commit {commit}.

```
git clone {bundle} flashlab && cd flashlab
make env
.venv/bin/dvc remote add --local -d release ../{remote}
.venv/bin/dvc pull {stages}
                            # tables, figures and traces as they were made
```

To make them again: `make reproduce` in a second clone, without the pull, after which DVC would have
nothing to run. `git status` says nothing if they are the same.

Figures and tables lie in `data/` to be looked at; `ro-crate-metadata.json` (a Workflow Run
RO-Crate) says of each which notebook, parameters, seeds, profiles and machine made it. What was
measured by an earlier code names its commit, which is in {bundle}: its notebook and profiles are
those of then.
"""


def write(project: Project, archive: Path, studies: Sequence[str] = ()) -> Path:
    """Writes the release of these studies, by default all of the pipelines, as a tar file.

    Raises UnknownName for a study that the pipeline has not, and DataFolderError if something is
    not committed, or if results are missing or not of the present code; nothing is written then.
    """
    from harness.runs import crate  # noqa: PLC0415 - its library is for those who make releases

    pipelines = parameters.pipelines(project)
    known = list(dict.fromkeys(study for tier in _TIERS for study in pipelines[tier]))
    for study in studies:
        if study not in known:
            raise UnknownName("study of the pipelines", study, known)
    chosen = [study for study in known if study in studies or not studies]
    _check(project, [study for study in chosen if study in pipelines["simulated"]])
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="release-", dir=archive.parent) as place:
        folder = Path(place) / archive.stem
        folder.mkdir()
        origin = _origin(project)
        _bundle(project, folder / _BUNDLE)
        stages = _stages(project, chosen)
        _push(project, folder / _REMOTE, stages)
        page = _PAGE.format(**vars(origin), bundle=_BUNDLE, remote=_REMOTE, stages=" ".join(stages))
        (folder / "README.md").write_text(page)
        for name in (*_FILES, "dvc.yaml"):
            _copy(project, folder, project.root / name)
        made = [_made(project, folder, study, tier) for study, tier in _published(project, chosen)]
        crate.write(folder, origin, made)
        _pack(folder, archive)
    return archive


def _check(project: Project, studies: Sequence[str]) -> None:
    if changed := _git(project, "status", "--porcelain").splitlines():
        raise DataFolderError(
            f"{len(changed)} files are not committed ({changed[0][3:]}): commit, then release"
        )
    stale = [study for study in studies if not _is_present(project, study)]
    if stale:
        raise DataFolderError(
            f"results of {', '.join(stale)} are missing or not of the present code: "
            "make reproduce, commit, then release"
        )


def _is_present(project: Project, study: str) -> bool:
    """Whether its results are what its stage made last, of the code that is here."""
    path = project.code / f"{study}.simulated.json"
    digests = code.of_tier(project, experiments.find(study), "simulated")
    if not path.is_file() or json.loads(path.read_text()) != digests:
        return False
    status: dict[str, Any] = json.loads(_dvc(project, "status", "--json", f"simulated@{study}"))
    return not status


def _origin(project: Project) -> Origin:
    package = tomllib.loads((project.root / "pyproject.toml").read_text())["project"]
    commit, date = _git(project, "log", "-1", "--format=%H %cI").split()
    files = {
        **_FILES,
        "README.md": "how to use this archive",
        _BUNDLE: "the sources, with their history, as a git bundle",
    }
    return Origin(
        name=f"{package['name']} {package['version']}",
        version=package["version"],
        description=f"{package['description']}.",
        licence=package["license"],
        commit=commit,
        date=date,
        files=files,
    )


def _bundle(project: Project, file: Path) -> None:
    """HEAD and, if there is one, the branch that it is on: what a clone of it checks out."""
    branch = _git(project, "branch", "--show-current").strip()
    _git(project, "bundle", "create", "--quiet", str(file), "HEAD", *filter(None, [branch]))


def _stages(project: Project, studies: Sequence[str]) -> list[str]:
    """DVC's names of what these studies' results are the outputs of; of what was measured, where
    its traces are here: in a clone they may never have been pulled.
    """
    simulated, emulated = (parameters.pipelines(project)[tier] for tier in _TIERS)
    found = [f"simulated@{study}" for study in studies if study in simulated]
    for study in studies:
        place = places.published(project, study, "emulated")
        if study in emulated and place.traces.is_dir() and place.notebook.is_file():
            found.append(f"data/dvc.yaml:emulated@{study}")
    return found


def _push(project: Project, folder: Path, stages: Sequence[str]) -> None:
    _run(project, [str(project.root / "tools" / "release-data"), str(folder), *stages])


def _published(project: Project, studies: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Studies and tiers with results."""
    for study in studies:
        for tier in _TIERS:
            if places.published(project, study, tier).about.is_file():
                yield study, tier


def _made(project: Project, folder: Path, study: str, tier: str) -> Made:
    """Copies a study's published files into the archive and says what they are."""
    place = places.published(project, study, tier)
    about = published.about(project, study, tier) or {}
    chosen = parameters.of_tier(project, study, tier)
    is_of_now = summary.label(project, study, tier) == tier
    devices = chosen.bench.devices.values() if is_of_now else ()
    names = [(project.profiles, name) for name in devices]
    if tier == "simulated":
        names.append((project.profiles / "hosts", chosen.bench.host))
    results = [place.table, place.series, place.about, place.metrics]
    notebook = project.notebooks / f"{parameters.pipelines(project)[tier].get(study, '')}.ipynb"
    title = experiments.find(study).title
    return Made(
        study=study,
        tier=tier,
        title=title,
        is_of_now=is_of_now,
        commit=_git(project, "log", "-1", "--format=%H", *_whose(project, place, tier)).strip(),
        notebook=_copy(project, folder, notebook) if is_of_now else _named(project, notebook),
        table=_copy(project, folder, place.table),
        about=about,
        seeds=seeds_of(pd.read_csv(place.table).to_dict("list")),
        profiles=[_copy(project, folder, path / f"{name}.yaml") for path, name in names],
        machine=_machine(about),
        results=[_copy(project, folder, path) for path in results if path.is_file()],
        figures=[
            _copy(project, folder, path) for path in sorted(place.figures.glob("*.[ps][nv]g"))
        ],
    )


def _whose(project: Project, place: places.Place, tier: str) -> list[str]:
    """What was simulated is of the present code; what was measured, of when it was recorded."""
    return [] if tier == "simulated" else ["--", str(place.about.relative_to(project.root))]


def _machine(about: dict[str, Any]) -> dict[str, str]:
    """What the devices' identities say of where they were; nothing of models in virtual time."""
    facts = {name: value for device in about["devices"].values() for name, value in device.items()}
    return {name: value for name, value in facts.items() if name not in ("profile", "host")}


def _copy(project: Project, folder: Path, path: Path) -> str:
    name = _named(project, path)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, folder / name)
    return name


def _named(project: Project, path: Path) -> str:
    return path.relative_to(project.root).as_posix()


def _pack(folder: Path, archive: Path) -> None:
    """Without whose it was and when: the same release is the same bytes, but for git's packing."""

    def anybody(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    part = folder.parent / archive.name
    with tarfile.open(part, "w") as file:
        file.add(folder, folder.name, filter=anybody)
    part.replace(archive)


def _git(project: Project, *arguments: str) -> str:
    return _run(project, [find_program("git"), *arguments])


def _dvc(project: Project, *arguments: str) -> str:
    return _run(project, [str(Path(sys.executable).with_name("dvc")), *arguments])


def _run(project: Project, command: Sequence[str]) -> str:
    """What a program prints. Raises DataFolderError with the last line of what it has to say."""
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise DataFolderError(f"{Path(command[0]).name}: {said[-1] if said else 'failed'}")
    return done.stdout
