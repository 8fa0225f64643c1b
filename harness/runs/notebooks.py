"""Executing notebooks: parameters in, an executed copy and an HTML page out, progress passed on."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import papermill
from nbconvert import HTMLExporter
from nbconvert.preprocessors.coalescestreams import CoalesceStreamsPreprocessor
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from harness.errors import HarnessError, UnknownName
from harness.paths import Project


def names(project: Project) -> list[str]:
    """Names of all notebooks, in order."""
    return sorted(path.stem for path in project.notebooks.glob("*.ipynb"))


def execute(project: Project, name: str, parameters: Mapping[str, Any]) -> Path:
    """Executes notebooks/NAME.ipynb into the report folder; returns the HTML page.

    What the notebook prints is passed on, its progress bar included. Raises UnknownName, or the
    operating error that a cell ended with.
    """
    source = project.notebooks / f"{name}.ipynb"
    if not source.is_file():
        raise UnknownName("notebook", name, names(project))
    project.report.mkdir(parents=True, exist_ok=True)
    executed = project.report / f"{name}.ipynb"
    try:
        papermill.execute_notebook(
            source,
            executed,
            parameters=dict(parameters),
            cwd=project.notebooks,
            kernel_name="python3",
            progress_bar=False,
            log_output=False,
            stdout_file=sys.stdout,
            stderr_file=sys.stderr,
            request_save_on_cell_execute=True,
            config=Config({"KernelManager": {"transport": "ipc"}}),  # no port, not even on loopback
        )
    except PapermillExecutionError as error:
        raise HarnessError(f"notebook {name}, cell {error.exec_count}: {error.evalue}") from error
    return _render(executed)


def _render(executed: Path) -> Path:
    page = executed.with_suffix(".html")
    exporter = HTMLExporter(exclude_input_prompt=True, exclude_output_prompt=True)
    # A progress bar overwrites its line: only its last state belongs into the page.
    exporter.register_preprocessor(CoalesceStreamsPreprocessor, enabled=True)
    html, _ = exporter.from_notebook_node(nbformat.read(executed, as_version=4))
    page.write_text(html, encoding="utf-8")
    return page
