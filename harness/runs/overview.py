"""`harness report`: the pages that show everything, made anew if what they show has changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from rich.console import Console

import harness
from harness.drives import fingerprint
from harness.paths import Project
from harness.runs import checkout, fresh, parameters, times
from harness.system.files import write_atomically

_INDEX: Final = "index"
_SAID: Final = ".claims.txt"


def make(project: Project, console: Console) -> Path:
    """Executes the notebooks that no study owns, writes the report, and prints the claims.

    Each of them only if something that it shows has changed since. Returns the report's page.
    """
    made = fresh.Made(project.report)
    _execute_all(project, made)
    page, said = project.report / "index.html", project.report / _SAID
    digest = _index_digest(project, console)  # before it is written: what comes then is not in it
    if not (made.is_fresh(_INDEX, digest, page) and said.is_file()):
        _write(project, said, console)
        made.note(_INDEX, digest)
    console.file.write(said.read_text(encoding="utf-8"))
    return page


def _index_digest(project: Project, console: Console) -> str:
    """The page lists which notebooks there are; the claims are printed for this terminal."""
    pages = sorted({_INDEX, *(path.stem for path in project.report.glob("*.html"))})
    stages = [str(stage) for stage in times.read(project) if stage.name != times.REPORT]
    shown = (str(console.width), str(console.is_terminal), checkout.commit(project))
    return _digest(project, [], *shown, *pages, *stages)


def _of_no_study(project: Project) -> list[str]:
    """Notebooks that no stage executes."""
    stages = {name for each in parameters.pipelines(project).values() for name in each.values()}
    return sorted(
        path.stem for path in project.notebooks.glob("*.ipynb") if path.stem not in stages
    )


def _execute_all(project: Project, made: fresh.Made) -> None:
    """Side by side: a notebook's kernel is a process of its own, and has one thread."""
    digests = {
        name: _digest(project, [project.notebooks / f"{name}.ipynb"])
        for name in _of_no_study(project)
    }
    stale = [
        name
        for name, digest in digests.items()
        if not made.is_fresh(name, digest, project.report / f"{name}.html")
    ]
    if not stale:
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {name: pool.submit(_execute, project, name) for name in stale}
        try:
            for name, execution in running.items():
                execution.result()
                made.note(name, digests[name])
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _execute(project: Project, name: str) -> None:
    from harness.runs import notebooks

    try:
        notebooks.execute(project, name, {})
    finally:
        with suppress(RuntimeError):  # there is none if nothing was executed
            asyncio.get_event_loop().close()  # which Jupyter has made for this thread


def _write(project: Project, said: Path, console: Console) -> None:
    from harness.runs import report, summary

    summary.write_counts(project)
    report.write(project)
    with console.capture() as captured:
        summary.print_to(project, console)
    write_atomically(said, captured.get().encode(), make_folder=True)


def _digest(project: Project, also: Iterable[Path], *texts: str) -> str:
    """Of everything that can be shown: results, claims, profiles, this package, this machine."""
    data = [project.results, project.figures, project.published, project.profiles, project.params]
    data += [project.root / each for each in ("hardware/unknowns", "data/sweeps", "build/sweeps")]
    data += sorted(project.metrics.glob("*.json"))  # what is below is written by the report itself
    package = Path(harness.__file__).parent
    return fresh.digest([*data, package, *also], str(fingerprint.machine()), *texts)
