"""What a result depends on, derived: modules, data files beside them, parts of the core.

A study's run on a tier begins in two modules: the one that its function in `runs` comes from, and
the tier's. Whatever these import is reached, within functions too, and so is a module that they
name in full in a string (a process that is started with `-m`), and what is not Python in a folder
that a module is reached in. A package's own `__init__` counts if something is imported from it that
is no module: house style keeps state and effects out of it. One that finds its modules in its own
folder reaches all of them. What only a type checker sees is not reached.

Profiles of drives and hosts are reached by their names: in the study's section of params.yaml, or
in a string of a module; one that imports `list_profiles` reaches all of them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import harness
from harness import _core, experiments, tiers
from harness.errors import HarnessError
from harness.experiments.base import Experiment
from harness.paths import Project
from harness.system import core_sources
from harness.system.documents import read_yaml
from harness.system.files import digest_of, write_atomically

_JUDGED: Final = ("harness.runs.claims", "harness.plots")
_SHOWN: Final = (
    "harness.lab",
    *(
        f"harness.runs.{name}"
        for name in ("journal", "parameters", "places", "published", "session")
    ),
)
"""Of these the files themselves: they reach what all tiers and studies need."""

GUARDS: Final = (
    "harness.devices.live.registry",
    "harness.drives.device_locks",
    "harness.drives.discovery",
    "harness.system.file_identity",
    "harness.system.kernel_tables",
    "harness.system.locks",
    "harness.system.mounts",
    "harness.system.new_files",
)
"""What keeps others' drives, files and mounts from us, and removes our own: it lets a run go on or
ends it, and no number passes through it. These files count for no result, so that a better guard
does not make hours of measurements another code's; what they import does.
"""

_LISTED: Final = "list_profiles"
_NAME: Final = re.compile(r"\w+(\.\w+)+")
_NOT_DATA: Final = (".py", ".pyi", ".so", ".md", "")


_CORE: Final = Path(_core.__file__)


def _state(path: Path) -> tuple[int, int]:
    """Of a file's content, as far as that is cheap to ask; of none, of nothing."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


_AT_BEGIN: Final = {
    path: _state(path)
    for path in (*Path(harness.__file__).parent.rglob("*.*"), _CORE)
    if "__pycache__" not in path.parts
}
"""The package's files when this process imported it; another package's, as of the first look."""


@dataclass(frozen=True)
class Reached:
    """Files by a name that is the same everywhere, and the names that are used of the core.

    `words`: names that strings of them are, and what they import; profiles are found among these.
    """

    files: dict[str, Path]
    core: frozenset[str]
    words: frozenset[str]

    def digest(self) -> str:
        """Of all their contents, but for guards."""
        counted = {name: path for name, path in self.files.items() if name not in GUARDS}
        return digest_of(sorted(counted.items()), core_sources.digest(self.core))


def run_of(experiment: Experiment, tier: str) -> Reached:
    """What a point of the experiment passes through on a tier."""
    return reached([experiment.runs[tier].__module__, tiers.module(tier)])


def shown_of(experiment: Experiment) -> Reached:
    """What chooses its points, and makes tables, figures and verdicts of their results."""
    own = type(experiment).__module__
    made = reached([f"{own}.figures", experiment.parameters.__module__, *_JUDGED])
    shown = {name: path for name in (own, *_SHOWN) if (path := _file(name)) is not None}
    return Reached({**made.files, **shown}, made.core, made.words)


def check_unchanged(reached: Reached) -> None:
    """Raises HarnessError if one of these files is not as it was when this process began.

    What it runs is what it has imported, and what it starts is what there is: a result of either
    would go under the other's digest.
    """
    now = {path: _state(path) for path in (*reached.files.values(), _CORE)}
    changed = [
        path.name for path, state in now.items() if _AT_BEGIN.setdefault(path, state) != state
    ]
    if changed:
        raise HarnessError(
            f"{', '.join(sorted(changed)[:3])}: changed since this process began, so that nobody "
            "could say which code a result is of: start it again (a notebook: restart its kernel)"
        )


def publish(project: Project) -> None:
    """Writes data/code/STUDY.TIER.json, which DVC's stages depend on. Leaves equal files alone.

    Raises DataFolderError if the core in use was not built of the checkout's sources.
    """
    core_sources.check(project.root / "harness" / "core")
    for name in experiments.names():
        experiment = experiments.find(name)
        for tier in experiment.tiers:
            _write(project.code / f"{name}.{tier}.json", of_tier(project, experiment, tier))
        if experiment.agreement:
            _write(project.code / f"{name}.agreement.json", of_agreement(project, experiment))


def of_tier(project: Project, experiment: Experiment, tier: str) -> dict[str, str]:
    """Digests of what a study's results on a tier depend on."""
    run = run_of(experiment, tier)
    words = run.words | _section_words(project, experiment.name, tier) | _asked_words(project)
    digests = {"run": run.digest()}
    if tier == "simulated":  # what was measured is not measured again for a figure's sake
        shown = shown_of(experiment)
        digests["shown"] = shown.digest()
        words |= shown.words
    if tier != "hardware":  # a claimed drive has no profile
        digests["profiles"] = digest_of(profiles_of(project.profiles, words).items())
    return digests


def of_agreement(project: Project, experiment: Experiment) -> dict[str, str]:
    """Digests of what the comparison of a study's tiers depends on, beside their results: it runs
    the simulated one.
    """
    if not experiment.agreement:
        return {}
    simulated = [experiment.runs["simulated"].__module__, tiers.module("simulated")]
    compared = reached([experiment.agreement.compare.__module__, *simulated])
    words = compared.words | _section_words(project, experiment.name) | _asked_words(project)
    profiles = profiles_of(project.profiles, words)
    return {"compared": compared.digest(), "profiles": digest_of(profiles.items())}


def _section_words(project: Project, *keys: str) -> frozenset[str]:
    """All texts in a section of params.yaml."""
    section = read_yaml(project.params.read_text())
    for key in keys:
        section = section.get(key) or {}
    return words_of(section)


def _asked_words(project: Project) -> frozenset[str]:
    """Of what the pipelines ask of every study, other drives among it; a profile's file is its
    name's word, as well.
    """
    words = _section_words(project, "notebook")
    return words | {Path(word).stem for word in words if word.endswith(".yaml")}


def profiles_of(folder: Path, words: Collection[str]) -> dict[str, Path]:
    """Drives and hosts of a folder that one of these words is the name of, by their names in it."""
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted([*folder.glob("*.yaml"), *folder.glob("hosts/*.yaml")])
        if _LISTED in words or path.stem in words
    }


def words_of(node: Any) -> frozenset[str]:
    """All texts in nested lists and mappings."""
    inside = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    own = {node} if isinstance(node, str) else set()
    return frozenset(own.union(*map(words_of, inside)))


def _write(path: Path, digests: dict[str, str]) -> None:
    data = (json.dumps(digests, indent=1) + "\n").encode()
    if not path.is_file() or path.read_bytes() != data:
        write_atomically(path, data, make_folder=True)


def reached(roots: Iterable[str]) -> Reached:
    """Everything that these modules (full names) import, and so on."""
    modules: dict[str, Path] = {}
    core: set[str] = set()
    words: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        path = _file(name)
        if name in modules or path is None:
            continue
        modules[name] = path
        read = _read(name, path)
        waiting += read.imported
        core |= read.core
        words |= read.words
    data = {
        f"{_package(name, module)}/{path.name}": path
        for name, module in modules.items()
        for path in module.parent.iterdir()
        if path.is_file() and path.suffix not in _NOT_DATA
    }
    return Reached({**modules, **data}, frozenset(core), frozenset(words))


def _package(name: str, path: Path) -> str:
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


@cache
def _file(name: str) -> Path | None:
    """The file of a module by its full name; None if there is no Python file of that name."""
    top, *rest = name.split(".")
    package = _folder(top)
    if package is None:
        return None
    place = package.joinpath(*rest)
    if place.with_suffix(".py").is_file() and rest:
        return place.with_suffix(".py")
    init = place / "__init__.py"
    return init if init.is_file() else None


@cache
def _folder(top: str) -> Path | None:
    """Of a package; None if there is none of that name."""
    try:
        file = import_module(top).__file__
    except ImportError:
        return None
    return Path(file).parent if file and file.endswith("__init__.py") else None


@dataclass(frozen=True)
class _Read:
    imported: frozenset[str]
    core: frozenset[str]
    words: frozenset[str]


@cache
def _read(name: str, path: Path) -> _Read:
    """Modules that a file imports or names, what it uses of the core, and the words in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    ours = {name.partition(".")[0], "harness"}
    imported: set[str] = set()
    core: set[str] = set()
    words: set[str] = set()
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= set(_from(node, name, path, ours))
            words |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            imported |= {node.value} if _NAME.fullmatch(node.value) else set()
            words |= {node.value} if node.value.isidentifier() and node.value != _LISTED else set()
        elif _finds_modules(node) and path.name == "__init__.py":
            imported |= {f"{name}.{beside.stem}" for beside in path.parent.glob("[!_]*.py")}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            core |= {node.attr} if node.value.id == "_core" else set()
    kept = frozenset(found for found in imported if found.partition(".")[0] in ours)
    return _Read(kept, frozenset(core), frozenset(words))


def _finds_modules(node: ast.AST) -> bool:
    """Whether it imports by a name that is made, and so stands in no string."""
    called = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module")
    return called and isinstance(node, ast.Call) and not isinstance(node.args[0], ast.Constant)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker sees."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _executed(node)


def _from(node: ast.ImportFrom, name: str, path: Path, ours: set[str]) -> Iterator[str]:
    """`from M import N`: module M.N if there is one, else M."""
    base = node.module or ""
    if node.level:
        package = _package(name, path)
        for _ in range(node.level - 1):
            package = package.rpartition(".")[0]
        base = f"{package}.{base}".rstrip(".")
    for alias in node.names:
        inner = f"{base}.{alias.name}"
        yield inner if inner.partition(".")[0] in ours and _file(inner) else base
