"""Commands that pages tell somebody to type: which they are, and whether they can be meant."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import typer
from conftest import REPOSITORY

from harness.commands.main import app

OVERWRITES = re.compile(
    r"hardware (claim|prepare) |--drive |RUN=yes"
    r"|^(mke2fs|mkfs|blkdiscard|wipefs|dd|hdparm|sgdisk|parted) "
    r"|^nvme (delete-ns|create-ns|format|sanitize|dsm|write|write-zeroes|set-feature) "
    r"|^fio .*--filename=.?(/dev/|\$)"
)
"""What may overwrite a drive, unless it is a plan."""


REFUSED: Any = typer.BadParameter.__mro__[2]
"""What parsing raises for anything that it does not understand."""


def blocks(page: Path) -> list[tuple[str, list[str]]]:
    """Of each block of commands: the paragraph before it, and its lines without their comments."""
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
    text = page.read_text()
    found = []
    for block in fence.finditer(text):
        if block[1] in ("", "sh"):
            before = text[: block.start()].rstrip("\n").rpartition("\n")[2]
            found.append((before, [strip(line) for line in block[2].splitlines() if line]))
    return found


def strip(line: str) -> str:
    """Without a comment, a prompt, and who runs it."""
    return re.sub(r"^(\$ )?(sudo )?", "", re.sub(r"\s+# .*", "", line)).strip()


def is_destructive(line: str) -> bool:
    """Whether it overwrites a claimed drive, or lets it be."""
    return bool(OVERWRITES.search(line)) and "--plan" not in line


def fault(line: str) -> str:
    """Why a command cannot be meant, or nothing: its options and arguments are parsed, not run."""
    program, *words = shlex.split(line)
    name = program.removeprefix(".venv/bin/")
    if name == "make":
        targets = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
        unknown = [word for word in words if "=" not in word and word not in targets]
        return f"no target {unknown}" if unknown else ""
    if name == "harness":
        return _fault_of_harness(words)
    known = {
        "git",
        "dvc",
        "papermill",
        "jupyter",
        "podman",
        "docker",
        "apptainer",
        "conda",
        "pip",
        "python",
    }
    return "" if name in known else f"{name}: who is that?"


def _fault_of_harness(words: list[str]) -> str:
    command: Any = typer.main.get_command(app)
    context = None
    try:
        while True:
            context = command.make_context(command.name or "harness", words, parent=context)
            if not hasattr(command, "commands"):
                return ""
            _, command, words = command.resolve_command(
                context, [*context._protected_args, *context.args]
            )
    except typer.Exit:
        return ""  # --help
    except REFUSED as error:
        return str(error.format_message())
