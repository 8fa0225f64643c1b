"""The report of one run that is not published: its verdicts, its figures, what it depends on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from harness.runs import claims

_SVG: Final = ".svg"


def html(
    title: str,
    verdicts: pd.DataFrame,
    figures: Mapping[str, Mapping[Path, bytes]],
    about: Mapping[str, Any],
) -> str:
    """A page that needs no other file. `figures`: by name, the contents of each of its files."""
    pictures = [
        (name, inline(data.decode()))
        for name, files in figures.items()
        for path, data in files.items()
        if path.suffix == _SVG
    ]
    return template("run.html").render(
        title=title,
        verdicts=list(verdicts.itertuples()),
        count=claims.count(verdicts),
        figures=pictures,
        about=about,
        format_value=claims.format_value,
        format_range=format_range,
    )


def template(name: str) -> Template:
    """One of harness/templates; what it is not given is an error."""
    environment = Environment(
        loader=PackageLoader("harness", "templates"), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template(name)


def format_range(expected: tuple[float, float]) -> str:
    """'7 .. 13'."""
    return f"{expected[0]:g} .. {expected[1]:g}"


def inline(svg: str) -> str:
    """The picture's own markup, without the XML prologue."""
    return svg[svg.index("<svg") :]
