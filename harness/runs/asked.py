"""What a study's run is asked for: one set of names, for notebooks, commands and pipelines.

The parameters cell of every study's notebook has these names, so `papermill -p` and `harness
notebook -p` take them; `harness run` has options of these names; and section `notebook` of
params.yaml is what the pipelines ask for (`dvc exp run -S notebook.scale=smoke`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, field_validator

from harness.errors import BadParameter, UnknownName
from harness.paths import Project
from harness.runs import parameters
from harness.runs.parameters import first_line
from harness.runs.session import Options

_INJECTED: Final = "# Parameters\n"
"""How papermill begins the cell that it adds."""


Texts = Annotated[dict[str, str], BeforeValidator(parameters.texts)]


class Wanted(BaseModel):
    """The parameters cell.

    `tier`: simulated, emulated, hardware, or auto (see runs/choice). `scale`: smoke, small, medium
    or paper; None: as params.yaml has it. Of tier hardware: `drives`, claimed drives by the study's
    names for its devices, and `journals`, claimed namespaces for their journals; or `file`, a file
    to make or a loop device. `devices`: other profiles, `overrides`: single parameters of them.
    `settings`: the study's own parameters. `publish`: into data/, if params.yaml describes the run.
    """

    model_config = ConfigDict(extra="forbid")

    tier: str = "simulated"
    scale: str | None = None
    drives: Texts = {}
    journals: Texts = {}
    file: Path | None = None
    devices: Texts = {}
    settings: Texts = {}
    overrides: Texts = {}
    publish: bool = True

    @field_validator("file")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        """A notebook's kernel works in another folder than whoever asks for the notebook."""
        return None if path is None else path.absolute()

    @field_validator("devices")
    @classmethod
    def _absolute_profiles(cls, devices: Texts) -> Texts:
        """Of profiles that are given as files."""
        return parameters.absolute_profiles(devices)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """As somebody gave it. Raises UnknownName, BadParameter."""
        check_names(given)
        try:
            return cls.model_validate(dict(given))
        except (ValidationError, yaml.YAMLError) as error:
            raise BadParameter(f"parameter {first_line(error)}") from error

    def options(self, **more: Any) -> Options:
        """For a session; `more`: what else one may be asked for."""
        own = self.model_dump(exclude={"tier", "file", "publish"})
        return Options(target=self.file, **own, **more)

    def given(self) -> dict[str, Any]:
        """All of it, as a notebook may be given it: also what nobody asked for, since its own cell
        may have been saved with something else.
        """
        return self.model_dump(mode="json")


def of_pipelines(project: Project, given: Mapping[str, Any]) -> Wanted:
    """What params.yaml has the pipelines ask for, and what is given in its place.

    Raises UnknownName, BadParameter.
    """
    return Wanted.of({**parameters.of_notebooks(project), **given})


def check_names(names: Iterable[str]) -> None:
    """Raises UnknownName for what no parameters cell has."""
    for name in names:
        if name not in Wanted.model_fields:
            raise UnknownName("parameter", name, Wanted.model_fields)


def check_injected(cells: Iterable[str]) -> None:
    """The names in cells (sources) that papermill has added, of which it only warns.

    Raises UnknownName.
    """
    for source in cells:
        if source.startswith(_INJECTED):
            check_names(assigned(source))


def assigned(source: str) -> list[str]:
    """The names that a cell gives values to."""
    found = (
        node for node in ast.parse(source).body if isinstance(node, ast.Assign | ast.AnnAssign)
    )
    targets = [t for n in found for t in (n.targets if isinstance(n, ast.Assign) else [n.target])]
    return [target.id for target in targets if isinstance(target, ast.Name)]
