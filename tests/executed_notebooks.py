"""What an executed notebook shows: its figures, or why there is none, and its claims' verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def figures(executed: Path) -> Iterator[tuple[str, str]]:
    """Each figure that the notebook asks for: "" if it was drawn, else what stands there."""
    for cell in json.loads(executed.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and source.startswith("session.figure("):
            [shown] = [out for out in cell["outputs"] if out["output_type"] == "execute_result"]
            drawn = "<img" in "".join(shown["data"].get("text/html", ""))
            yield source.split('"')[1], "" if drawn else "".join(shown["data"]["text/markdown"])


def drawn(executed: Path) -> tuple[int, dict[str, str]]:
    """How many figures were drawn; of the others, which say in one line what they would need."""
    shown = dict(figures(executed))
    explained = {name: text for name, text in shown.items() if text}
    for name, text in explained.items():
        assert text.startswith(f"No figure *{name}* here"), text
        assert "it needs" in text
        assert "\n" not in text
    return len(shown) - len(explained), explained


def judged(metrics: Path) -> list[str]:
    """The claims that have a verdict."""
    found: dict[str, Any] = json.loads(metrics.read_text())
    return [name for name, each in found.items() if each["verdict"] != "not judged"]
