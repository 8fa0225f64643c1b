"""Hostile command lines, generated from the command line's own description; and their run.

`python hostile.py SEED COUNT FOLDER` runs them in this process, in the throw-away checkout FOLDER,
and prints what each did as a line of JSON. Nothing here may start long work, name a block device or
be given a living device: the commands that need no wrong argument to do something lasting get one
that is refused (see `_refused`), and nothing can be recorded in the checkout's journal.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import typer

from harness import experiments, tiers
from harness.commands import main as cli

LIMIT_S: Final = 30
SCRATCH: Final = "scratch"
"""A folder of the checkout with places of all kinds: see `make_scratch`."""

_LONG: Final = "x" * 5000
TEXTS: Final = (
    *(
        "",
        " ",
        "-",
        "0",
        "-0",
        "-1",
        "1",
        "7",
        "1.5",
        "1e3",
        "1e400",
        "-1e400",
        "NaN",
        "nan",
        "inf",
    ),
    *("-inf", "0x10", "1_0", "9" * 30, "9" * 5000, "-" + "9" * 5000, "١٢", "½", "None", "null"),
    *("true", "no", "~", "4 KiB", "-4 KiB", "0 B", "1e3 GB", "4KiB4KiB", f"{'9' * 5000} GiB", "8G"),
    *("0.1 ns", f"{'9' * 40} s", "1h", "10s", "é", "😀", "\u202e", "\ufeff", "\u2028", "\x1b[31m"),
    *(
        "\x07",
        "a\nb",
        "a\tb",
        "\r",
        "\x7f",
        "\udcff",
        _LONG,
        "é" * 2500,
        "[red]",
        "[/]",
        "[bold",
        "]",
    ),
    *("%s", "%n", "{}", "{0}", "$HOME", "$(id)", "`id`", "; id", "| id", "'", '"', "\\", "*", "?"),
    *(
        "..",
        ".",
        "/",
        "~root",
        "../../etc/passwd",
        "C:\\x",
        "http://x/",
        "[]",
        "{}",
        "[[]]",
        "{a: 1}",
    ),
    *("[1, 2", "{a: ", "- a", "a: b: c", "!!timestamp x", "!!int x", "!!python/object:os.system x"),
    *(
        "2024-99-99",
        "? a",
        "&a [*a]",
        "*a",
        "[" * 5000,
        "[" * 2000 + "]" * 2000,
        "!!binary x",
        "=",
        "<<",
    ),
    *("a=b", "=b", "a=", "a==b", "==", "a=b=c", "0-1", "1-0", "-", "1:0-1", "x:0-1", "a=1:0-1"),
    *("9999999999999:0-1", "0-99999999999999999999999999", "simulated", "smoke", "all", "--help"),
    *("--", "--tier", "-h", "--no-such-option", "@file", "\u0430", "a" * 33, "A", "_", ".new-x"),
)
PLACES: Final = (
    *("", ".", "..", "/", "/dev", "/dev/null", "/dev/full", "/dev/zero", "/proc/self/mem", "/proc"),
    *(
        "/proc/self/fd/1",
        "/dev/stdout",
        "/sys",
        "/nonexistent",
        "/nonexistent/x",
        str(Path("/root") / "x"),
    ),
    *("/etc/shadow", "/etc/passwd", "/etc/passwd/x", _LONG, f"/tmp/{_LONG}", "a/" * 2500 + "b"),
    *(f"{SCRATCH}/{name}" for name in ("folder", "file", "forbidden", "forbidden/x", "closed")),
    *(f"{SCRATCH}/{name}" for name in ("fifo", "loop", "dangling", "null", "socket", "\x1b[31mé")),
    *(f"{SCRATCH}/{name}.yaml" for name in ("folder", "garbage", "nested", "null", "zero", "list")),
    *(f"{SCRATCH}/{name}.yaml" for name in ("fifo", "empty", "number", "date", "missing")),
    *(f"{SCRATCH}/{name}.parquet" for name in ("garbage", "empty", "missing")),
    *(f"{SCRATCH}/new", f"{SCRATCH}/new \n\x07", f"{SCRATCH}/folder/../new", "params.yaml/x"),
)
NAMES: Final = {
    "run experiment": experiments.names(),
    "run --tier": tiers.names(),
    "run --scale": ["smoke", "small"],
    "agreement experiment": experiments.names(),
    "machine tier": ["hardware", "emulated"],
    "probe record --script": ["block_io"],
    "calibrate drive --kind": ["hdd", "sata_ssd", "nvme_ssd"],
    "device create --profile": ["mx500", "seagate_250gb"],
    "device create --speed": ["real", "none"],
    "device fault op": ["read", "clear"],
    "device speed pace": ["real", "virtual"],
}
"""Words that are accepted, so that what comes after them is reached."""

ASSIGNED: Final = {
    "--set": [
        "scale",
        "users",
        "variants",
        "repetitions",
        "modes",
        "journals",
        "seeds",
        "policies",
    ],
    "--device": ["hdd", "ssd", "pm953", "board", "nvme"],
    "--drive": ["hdd", "ssd"],
    "--journal": ["ssd"],
    "--queue": ["scheduler", "nr_requests", "../x"],
    "--override": ["capacity", "page", "outer_rate", "overprovision", "trim", "heads", "slc_cache"],
}
"""Names that NAME=VALUE may begin with."""

_PATHS: Final = {"--file", "--store", "--state", "--record", "--output", "--figure", "path"} | {
    *("device", "trace", "drive", "profile", "--profile", "name", "--name", "--as")
}
_ONLY_WRONG: Final = {
    *("list", "claims", "report", "clean", "digests", "doctor", "hardware list", "hardware expect"),
    *("hardware claims", "probe list", "device list"),
}
"""They do what they do without being told anything."""


@dataclass(frozen=True)
class Outcome:
    """What a command line did: its exit code, what it said, what it changed."""

    arguments: list[str]
    code: int
    said: str
    error: str
    changed: list[str]
    time_s: float


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands of the command line with their parameters, by what is typed."""

    def walk(command: Any, typed: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        if not hasattr(command, "list_commands"):
            yield typed, command
            return
        for name in command.list_commands(None):
            yield from walk(command.get_command(None, name), (*typed, name))

    yield from walk(typer.main.get_command(cli.app), ())


def lines(seed: int, count: int) -> list[list[str]]:
    """So many command lines, the same for the same seed.

    Every command has its turn; then the more parameters one has, the more often it comes.
    """
    chance = random.Random(seed)
    known = list(commands())
    weights = [1 + len(command.params) ** 2 for _, command in known]
    chosen = known + chance.choices(known, weights, k=max(count - len(known), 0))
    return [_line(chance, *each) for each in chosen[:count]]


def _line(chance: random.Random, typed: tuple[str, ...], command: Any) -> list[str]:
    name = " ".join(typed)
    words: list[str] = []
    for parameter in command.params:
        words += _given(chance, name, parameter)
    words += _refused(chance, name, words)
    if chance.random() < 0.1:  # more, less, or twice
        words += chance.choice([[chance.choice(TEXTS) or "x"], words[:2], ["--no-such-option"]])
    return [*typed, *words]


def _given(chance: random.Random, command: str, parameter: Any) -> list[str]:
    """An argument or option, with a hostile value or, now and then, a good one; or left out."""
    option = next((text for text in parameter.opts if text.startswith("--")), "")
    if not parameter.required and chance.random() < 0.6:
        return []
    if getattr(parameter, "is_flag", False):
        return [chance.choice([*parameter.opts, *parameter.secondary_opts])]
    times = chance.choice([1, 1, 2]) if option else (3 if parameter.nargs == -1 else 1)
    found: list[str] = []
    for _ in range(times):
        value = _value(chance, command, option or parameter.opts[0])
        found += [option, value] if option else [value]
    return found


def _value(chance: random.Random, command: str, name: str) -> str:
    accepted = NAMES.get(f"{command} {name}", [])
    if accepted and chance.random() < 0.7:
        return chance.choice(accepted)
    if name in ASSIGNED and chance.random() < 0.8:
        return f"{chance.choice(ASSIGNED[name])}={chance.choice(TEXTS)}"
    return chance.choice(PLACES if name in _PATHS and chance.random() < 0.7 else TEXTS)


def _refused(chance: random.Random, command: str, words: Sequence[str]) -> list[str]:
    """What is surely refused, of commands that would do something long or lasting."""
    if command in _ONLY_WRONG or (command.startswith("calibrate") and command != "calibrate drive"):
        return [chance.choice([text for text in TEXTS if text and text != "--help"])]
    if command == "data":
        return ["x"]
    if command == "calibrate drive":
        return chance.choice([["--live", "x", "--claimed", "x"], ["--kind", "no", "--plan"]])
    if command == "bench":
        return ["--only", chance.choice([text for text in TEXTS if text.strip()])]
    if command == "data-sheet" and "--all" in words:
        return ["x"]
    return []


def make_scratch(folder: Path) -> None:
    """Places of all kinds; those that are forbidden are so only to who is not root."""
    folder.mkdir()
    for name in ("folder", "folder.yaml", "forbidden"):
        (folder / name).mkdir()
    texts = {
        "garbage": "\x00\x01{{{",
        "nested": "[" * 5000,
        "list": "- 1\n- 2\n",
        "empty": "",
        "number": "7",
        "date": "kind: 2024-99-99\n",
    }
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    for name in ("garbage.parquet", "file", "closed", "\x1b[31mé"):
        (folder / name).write_bytes(b"PAR1\x00garbage\xffPAR1")
    (folder / "empty.parquet").touch()
    for name in ("fifo", "fifo.yaml"):
        os.mkfifo(folder / name)
    links = {"loop": "loop", "dangling": "nowhere", "null": "/dev/null", "null.yaml": "/dev/null"}
    for name, target in {**links, "zero.yaml": "/dev/zero"}.items():
        (folder / name).symlink_to(target)
    for name in ("forbidden", "closed"):
        (folder / name).chmod(0)


def _look(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Everything below a folder: kind, size, and when it was changed."""
    found = {}
    for top, folders, names in os.walk(folder):
        for name in (*folders, *names):
            facts = Path(top, name).lstat()
            own = (0, 0) if name in folders else (facts.st_size, facts.st_mtime_ns)
            found[str(Path(top, name).relative_to(folder))] = (facts.st_mode, *own)
    return found


class TooLong(BaseException):
    """A command line has not come to its end."""


def _give_up(_number: int, _frame: FrameType | None) -> NoReturn:
    raise TooLong


def outcome(arguments: list[str], folder: Path) -> Outcome:
    """Runs a command line, and says what came of it."""
    before, begin = _look(folder), time.monotonic()
    out, error, code = io.BytesIO(), "", 0
    stream = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    sys.argv = ["harness", *arguments]
    signal.alarm(LIMIT_S)
    try:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            cli.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # which is what this is about
        error = traceback.format_exc()
    signal.alarm(0)
    after = _look(folder)
    names = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
    said = out.getvalue().decode(errors="replace")
    return Outcome(arguments, code, said, error, names, time.monotonic() - begin)


def main() -> None:
    """See the module."""
    seed, count, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    os.chdir(folder)
    signal.signal(signal.SIGALRM, _give_up)
    for arguments in lines(seed, count):
        found = outcome(arguments, folder)
        for name in found.changed:  # the next one begins with the same
            if (folder / name).is_file() and name.startswith(f"{SCRATCH}/new"):
                (folder / name).unlink()
        print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    main()
