"""Figures of speed in the pages, made from what `make bench` has measured.

    harness bench --document

The records of the groups that build/bench.json has replace those of the same groups in
data/bench.json, which is kept, with machine, commit and date of each group's measurement; the pages
are made from that file alone, so that anybody can see whether they say what was measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from harness.errors import BadParameter
from harness.paths import Project
from harness.runs.made_part import MadePart, row
from harness.system.files import write_atomically

COMMAND: Final = "harness bench --document"
_FIRST: Final = "reviewer"
"""The group that the page begins with."""

_READERS: Final = ("make quick", "make env", "make reproduce in", "its ")
"""How figures begin that README has, too: what a command takes."""

_HEADINGS: Final = ("figure", "measured", "lowest to highest", "goal", "holds")


def update(project: Project) -> list[Path]:
    """Takes over what was measured last, and writes the pages. Raises BadParameter if nothing was,
    DataFolderError for a page without its part.
    """
    measured = project.build / "bench.json"
    if not measured.is_file():
        raise BadParameter("nothing was measured here: make bench, or make bench ONLY=GROUP")
    kept = recorded(project)
    found: dict[str, dict[str, Any]] = {}
    for record in json.loads(measured.read_text(encoding="utf-8")):
        # Without `made`: by an earlier version, which did not say of which commit.
        if "made" in record and not record.get("is_claim"):
            group = found.setdefault(record["group"], {**record["made"], "figures": []})
            group["figures"].append(_plain(record))
    if not found:
        raise BadParameter(f"{measured.name} says of no figure when it was measured: make bench")
    kept |= found
    # Why a figure is missing may name a file: by its place in the checkout, not in this machine.
    text = json.dumps(kept, indent=1).replace(f"{project.root}/", "") + "\n"
    write_atomically(_file(project), text.encode(), make_folder=True)
    made = parts(project)
    for page, part in made.items():
        MadePart(page, COMMAND).write(part)
    return list(made)


def recorded(project: Project) -> dict[str, Any]:
    """By group: machine, commit, date, and the figures; empty if nothing was recorded."""
    file = _file(project)
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def parts(project: Project) -> dict[Path, str]:
    """What has to stand in each page, in Markdown: of the studies' figures those with a goal."""
    kept = recorded(project)
    return {project.validation: _all(kept), project.readme: _for_readers(kept)}


def written(page: Path) -> str:
    """What stands in a page now. Raises DataFolderError if it has no such part."""
    return MadePart(page, COMMAND).read()


def _all(kept: Mapping[str, Any]) -> str:
    lines: list[str] = []
    for group in sorted(kept, key=lambda name: (name != _FIRST, name)):
        of = kept[group]
        lines += [f"`make bench ONLY={group}`, {_where(of)}:", ""]
        lines += [row(_HEADINGS), row(["---"] * len(_HEADINGS))]
        shown = [f for f in of["figures"] if f["goal"] or group == _FIRST]
        lines += [row(_cells(figure)) for figure in shown] + [""]
    return "\n".join(lines) + "\n"


def _for_readers(kept: Mapping[str, Any]) -> str:
    of = kept.get(_FIRST, {"figures": []})
    figures = [
        f for f in of["figures"] if f["name"].startswith(_READERS) and f["value"] is not None
    ]
    if not figures:
        return "Not measured yet.\n"
    rows = [row(["what", "takes"]), row(["---", "---"])]
    rows += [row([f["name"], _amount(f["value"], f["unit"])]) for f in figures]
    return "\n".join([f"`make bench ONLY=reviewer`, {_where(of)}:", "", *rows, ""])


def _cells(figure: Mapping[str, Any]) -> list[str]:
    if figure["value"] is None:
        return [figure["name"], f"not measured: {figure['reason']}", "", figure["goal"], ""]
    spread = ""
    if figure["min"] != figure["max"]:
        spread = f"{figure['min']:.3g} to {figure['max']:.3g}"
    holds = {True: "yes", False: "**no**", None: ""}[figure["holds"]]
    return [figure["name"], _amount(figure["value"], figure["unit"]), spread, figure["goal"], holds]


def _amount(value: float, unit: str) -> str:
    if unit == "s" and value >= 100:
        return f"{int(value) // 60}:{int(value) % 60:02d} min"
    return f"{value:.3g} {unit}" if unit != "ratio" else f"{value:.3g}"


def _where(of: Mapping[str, Any]) -> str:
    return f"{of['machine']}, {of['date']}, commit {of['commit']}"


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is only for who looks closer: that stays in build/bench.json."""
    left_out = ("group", "made", "context", "command", "median")
    return {name: value for name, value in record.items() if name not in left_out}


def _file(project: Project) -> Path:
    return project.root / "data" / "bench.json"
