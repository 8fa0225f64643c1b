"""The report of one run that is not published: its verdicts, its figures, what it depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from harness.runs import claims
from harness.runs.captions import Caption

_SVG: Final = ".svg"


def html(
    title: str,
    verdicts: pd.DataFrame,
    figures: Mapping[str, Mapping[Path, bytes]],
    below: Mapping[str, Sequence[Caption]],
    about: Mapping[str, Any],
) -> str:
    """A page that needs no other file.

    `figures`: by name, the contents of each of its files. `below`: captions of those that have
    some.
    """
    pictures = [
        {"name": name, "svg": inline(data.decode()), "claims": below.get(name, ())}
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
        format_range=claims.format_range,
        said=claims.said,
        spread=claims.format_spread,
    )


def template(name: str) -> Template:
    """One of harness/templates; what it is not given is an error."""
    environment = Environment(
        loader=PackageLoader("harness", "templates"), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template(name)


def inline(svg: str) -> str:
    """The picture's own markup, without the XML prologue."""
    return svg[svg.index("<svg") :]
