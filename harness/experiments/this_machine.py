"""A host profile of this machine for the models: what a database's software finds here.

Software's own time is measured and given by whoever compares; the kernel's costs are in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.paths import Project
from harness.system.files import write_atomically


def plain(value: object) -> dict[str, object]:
    """A profile's value that is this machine's."""
    return {"value": value, "source": "this machine"}


def write_profile(
    project: Project,
    name: str,
    *,
    title: str,
    memory: str,
    dirty_ratio: float,
    copy_cpu: Mapping[str, object],
    sections: Mapping[str, Mapping[str, Any]],
) -> Path:
    """Writes the profile `name` into the build folder and returns its path.

    `memory` and `dirty_ratio` are the page cache's (writing in the background begins at half of
    that), `copy_cpu` its time per block, `sections` what the study's software costs.
    """
    page_cache = {
        "memory": plain(memory),
        "client_memory": plain("0 B"),
        "read_ahead": plain("128 KiB"),
        "dirty_background": plain(dirty_ratio / 2),
        "dirty": plain(dirty_ratio),
        "queue_limit": plain(128),
        "allocation": plain("8 MiB"),
        "segment": plain("1 GiB"),
        "copy_cpu": dict(copy_cpu),
        "file_system_begin": plain(0.0),
    }
    return write_bare_profile(
        project, name, title=title, sections={"page_cache": page_cache, **sections}
    )


def write_bare_profile(
    project: Project, name: str, *, title: str, sections: Mapping[str, Mapping[str, Any]]
) -> Path:
    """The same for software that goes past the page cache."""
    profile = {
        "title": title,
        "kind": "host",
        "parameters": {
            "cores": plain(2),
            "submit_cpu": plain("0 ns"),
            "complete_cpu": plain("0 ns"),
            "max_request": plain("512 KiB"),
            "io_scheduler": plain("none"),
        },
        **{key: dict(section) for key, section in sections.items()},
    }
    path = project.build / "hosts" / f"{name}.yaml"
    text = yaml.safe_dump(profile, sort_keys=False)
    write_atomically(path, text.encode(), make_folder=True)
    return path
