"""Executing notebooks: parameters in, an executed copy and an HTML page out, progress passed on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from harness.errors import HarnessError, UnknownName
from harness.paths import Project
from harness.runs import asked, parameters
from harness.runs.choice import choose
from harness.runs.chosen_drives import chosen_drives_of
from harness.runs.session import place_of
from harness.system.files import told, write_atomically

PUT_BACK_S: Final = 1200.0
"""How long a kernel may take to end: it empties, unmounts and gives back drives first."""


def names(project: Project) -> list[str]:
    """Names of all notebooks, in order."""
    return sorted(path.stem for path in project.notebooks.glob("*.ipynb"))


def of_studies(project: Project) -> dict[str, str]:
    """The notebooks that run a study in one of the pipelines, each with the study."""
    pipelines = parameters.pipelines(project)
    return {name: study for each in pipelines.values() for study, name in each.items()}


def run(
    project: Project, name: str, given: Mapping[str, Any], chosen_drives: Path | None = None
) -> Path:
    """Executes a notebook with what the pipelines give to it, and with `given` in its place.

    `chosen_drives`: a file of drives (runs/chosen_drives), of which the study takes those that it
    has a role for. The notebook of a study goes beside its run's results, others into the report
    folder. Returns its HTML page. Raises UnknownName for a parameter that it has not, and what
    `execute` raises.
    """
    _source(project, name)
    study = of_studies(project).get(name)
    if study is None:
        if given:
            raise UnknownName(f"parameter of notebook {name}", min(given), [])
        return execute(project, name, {})
    drives = chosen_drives_of(study, chosen_drives) if chosen_drives else {}
    wanted = asked.of_pipelines(project, {**_only_tier(project, study), **drives, **given})
    chosen = choose(project, study, wanted.tier, wanted.options())
    place = place_of(
        project, study, chosen.tier, chosen.options, publish=wanted.publish and not chosen.why
    )
    if place.notebook.parent == project.report:
        return execute(project, name, wanted.given())
    return execute(project, name, wanted.given(), place.notebook)


def _only_tier(project: Project, study: str) -> dict[str, str]:
    """The tier of a study that cannot be simulated: nobody has to ask for it."""
    tiers = [tier for tier, studies in parameters.pipelines(project).items() if study in studies]
    return {} if "simulated" in tiers else {"tier": tiers[0]}


def execute(
    project: Project, name: str, given: Mapping[str, Any], executed: Path | None = None
) -> Path:
    """Executes notebooks/NAME.ipynb, by default into the report folder; returns the HTML page.

    What the notebook prints is passed on, its progress bar included. Raises UnknownName, DiskFull,
    DataFolderError, or the operating error that a cell ended with.
    """
    source = _source(project, name)
    executed = executed or project.report / f"{name}.ipynb"
    page = _page(project, executed)
    with told(executed.parent):
        for folder in (executed.parent, page.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with _part_of(executed) as part:
            _execute(source, part, project, given)
        return _render(executed, page, project.report / "index.html")


def _source(project: Project, name: str) -> Path:
    source = project.notebooks / f"{name}.ipynb"
    if not source.is_file():
        raise UnknownName("notebook", name, names(project))
    return source


def _page(project: Project, executed: Path) -> Path:
    """Beside it; but data/ has what pipelines keep, and a page is not among it."""
    folder = project.report if executed.parent == project.executed else executed.parent
    return folder / f"{executed.stem}.html"


@contextmanager
def _part_of(executed: Path) -> Iterator[Path]:
    """Where papermill may write after each cell; what it has written for good, errors of cells
    included, is `executed` then.
    """
    part = executed.with_name(f".{executed.stem}-{os.getpid()}.ipynb")
    try:
        yield part
        part.replace(executed)
    except HarnessError:  # of a cell: the executed notebook shows it
        part.replace(executed)
        raise
    finally:
        part.unlink(missing_ok=True)


def _execute(source: Path, part: Path, project: Project, given: Mapping[str, Any]) -> None:
    # Seconds to import, which who asks for the names alone does not pay.
    import papermill
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    with TemporaryDirectory(prefix="flashlab-kernel-") as sockets:
        # No port, not even on loopback; and what a killed run leaves does not lie in notebooks/.
        kernel = {"transport": "ipc", "ip": f"{sockets}/ipc", "shutdown_wait_time": PUT_BACK_S}
        try:
            papermill.execute_notebook(
                source,
                part,
                parameters=dict(given),
                cwd=project.notebooks,
                kernel_name="python3",
                progress_bar=False,
                log_output=False,
                stdout_file=sys.stdout,
                stderr_file=sys.stderr,
                request_save_on_cell_execute=True,
                config=Config({"KernelManager": kernel}),
            )
        except PapermillExecutionError as error:
            raise HarnessError(
                f"notebook {source.stem}, cell {error.exec_count}: {error.evalue}"
            ) from error


def _render(executed: Path, page: Path, report: Path) -> Path:
    import nbformat
    from jinja2 import FileSystemLoader
    from nbconvert import HTMLExporter
    from nbconvert.preprocessors.coalescestreams import CoalesceStreamsPreprocessor
    from traitlets.config import Config

    templates = Path(str(resources.files("harness") / "templates"))
    kinds = HTMLExporter().default_config.NbConvertBase.display_data_priority
    # Sliders do nothing in a page: their words do.
    shown = [kind for kind in kinds if "widget" not in kind]
    exporter = HTMLExporter(
        config=Config({"NbConvertBase": {"display_data_priority": shown}}),
        extra_loaders=[FileSystemLoader(templates)],
        extra_template_basedirs=[str(templates)],
        template_name="notebook",
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    # A progress bar overwrites its line: only its last state belongs into the page.
    exporter.register_preprocessor(CoalesceStreamsPreprocessor, enabled=True)
    way = os.path.relpath(report, page.parent)
    html, _ = exporter.from_notebook_node(
        nbformat.read(executed, as_version=4), resources={"report": way}
    )
    write_atomically(page, html.encode())
    return page
