"""Profiles: what is known of a drive or a machine, and how it is known.

Every number says where it comes from: `source` (a document), `prior` (common knowledge, no document
at hand) or `fitted` (to what). A profile that cannot say so is refused, as is one with an unknown
key, a missing unit or a geometry that no device can have.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, ValidationError, model_validator

from harness import _core
from harness.devices.core_parameters import HddParameters, HostParameters, SsdParameters
from harness.devices.parameters import (
    Count,
    Name,
    Parameters,
    Rate,
    Ratio,
    Rotation,
    Size,
    Strict,
    Switch,
    Time,
    validator,
)
from harness.errors import BadParameter, BadProfile, UnknownName
from harness.system.documents import read_yaml
from harness.units import parse_bytes, parse_rate, parse_time

__all__ = [
    "Count",
    "DataSheetFigure",
    "DataSheetJob",
    "DeviceProfile",
    "Ext4",
    "HashJoinCpu",
    "HddParameters",
    "HddProfile",
    "HostParameters",
    "HostProfile",
    "Innodb",
    "JoinCpu",
    "Name",
    "NamedRange",
    "PageCache",
    "Ports",
    "Rate",
    "Ratio",
    "Rotation",
    "Size",
    "SortCpu",
    "SsdParameters",
    "SsdProfile",
    "Switch",
    "Time",
    "core_parameters",
    "list_profiles",
    "load_device",
    "load_host",
    "match_profile",
    "profile_path",
]


class Ports(Parameters):
    """What drives are attached to: no link is faster than the port, no queue deeper."""

    port_rate: Rate
    port_queue: Count


class PageCache(Parameters):
    """The kernel's memory for files; see harness/core/kernel/page_cache.hpp.

    `memory` is what is left for it when no client is at work, `client_memory` what a database's
    client takes from that besides what it sorts in. `file_system_begin` is where on a disk the file
    system lies, 0 outside and 1 inside.
    """

    memory: Size
    client_memory: Size
    read_ahead: Size
    dirty_background: Ratio
    dirty: Ratio
    queue_limit: Count
    allocation: Size
    segment: Size
    copy_cpu: Time
    file_system_begin: Ratio


class SortCpu(Parameters):
    """CPU time per tuple of a database's external sort and join, and where its tables come from."""

    scan_cpu: Time
    compare_cpu: Time
    copy_tuple_cpu: Time
    output_cpu: Time
    table_rate: Rate


class HashJoinCpu(Parameters):
    """CPU time per tuple of a database's hash join in batches, and where its tables come from.

    `reopen_cpu` is per file that is closed and opened again.
    """

    partition_tuple_cpu: Time
    build_tuple_cpu: Time
    probe_tuple_cpu: Time
    reopen_cpu: Time
    heap_rate: Rate


class Ext4(Parameters):
    """How the host's kernel and mount options make ext4 behave; see core/kernel/ext4."""

    discard: Name
    recent_allocator: Switch
    commit_interval: Time
    journal: Size


class Innodb(Parameters):
    """What InnoDB and its transactions cost, log and flush on this machine; see core/dbms/innodb.

    `transaction_cpu`: of any transaction of TPC-C; `row_cpu`: of each page that it comes to.
    `redo_*`: logged for a row that is updated, an order's line, another row, and a commit, undo
    records included. `file_sync`: fsync, which commits an inode whose times have changed, or
    fdatasync. `other_drive_*`: where what is not on the drive under test lies.
    """

    transaction_cpu: Time
    row_cpu: Time
    page_copy_cpu: Time
    redo_update: Size
    redo_line: Size
    redo_insert: Size
    redo_commit: Size
    undo_per_update: Size
    undo_per_insert: Size
    undo_pages_per_connection: Count
    flush_batch_pages: Count
    lru_scan_depth: Count
    old_blocks_time: Time
    most_dirty: Ratio
    flush_age: Ratio
    doublewrite_area: Size
    file_sync: Name
    dirty_expire: Time
    other_drive_rate: Rate
    other_drive_latency: Time


class JoinCpu(Parameters):
    """CPU time per record of the join engine on this machine."""

    partition_cpu: Time
    build_cpu: Time
    probe_cpu: Time
    match_cpu: Time


class DataSheetJob(Strict):
    """The fio job behind a figure of a data sheet.

    `state` is what the drive has been through: `fresh` (new; for reads the span was written in
    order), `full` (all of it was), `steady` (then overwritten at random until write amplification
    no longer changes).
    """

    op: Literal["read", "write"]
    pattern: Literal["sequential", "random"]
    block: Annotated[int, validator(parse_bytes)]
    queue_depth: int
    span: str
    state: Literal["fresh", "full", "steady"]

    def span_bytes(self, capacity_bytes: int) -> int:
        """The bytes from the drive's start that the job stays in."""
        return capacity_bytes if self.span == "full" else parse_bytes(self.span)


class DataSheetFigure(Strict):
    """A published figure of a drive; `fits` names the parameter that was solved for it."""

    name: str
    job: DataSheetJob
    value: str
    source: str
    use: Literal["fit", "check"]
    fits: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.use == "fit") != bool(self.fits):
            raise ValueError("fits: names a parameter where use is fit, and only there")
        self.quantity()
        return self

    def quantity(self) -> tuple[float, str]:
        """Value and unit: bytes/s, IOPS or s (mean latency)."""
        number, _, unit = self.value.partition(" ")
        if unit == "IOPS":
            return _positive(number), unit
        if unit.endswith("/s"):
            return float(parse_rate(self.value)), "bytes/s"
        return parse_time(self.value) / 1e9, "s"


def _positive(number: str) -> float:
    value = float(number)
    if not value > 0.0:
        raise ValueError("value: must be above zero")
    return value


class _Profile(Strict):
    title: str
    note: str = ""

    def digest(self) -> str:
        """SHA-256 (hex) of the values, without the texts: what a result depends on."""
        values = self.model_dump(exclude={"title", "note", "data_sheet"})
        text = json.dumps(_without_origins(values), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _require_consistent(figures: Sequence[DataSheetFigure], parameters: type[Parameters]) -> None:
    for figure in figures:
        if figure.fits and figure.fits not in parameters.model_fields:
            raise ValueError(f"data_sheet: {figure.fits} is not a parameter")
    names = [figure.name for figure in figures]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"data_sheet: two figures are called {name}")


@dataclass(frozen=True)
class NamedRange:
    """A part of the address space with a name: its writes are counted apart.

    `stream` is where placement `range` puts them.
    """

    name: str
    begin_bytes: int
    end_bytes: int
    stream: int = 0


class HddProfile(_Profile):
    """A hard disk."""

    kind: Literal["hdd"]
    parameters: HddParameters
    data_sheet: tuple[DataSheetFigure, ...] = ()

    @model_validator(mode="after")
    def _fits_known(self) -> Self:
        _require_consistent(self.data_sheet, HddParameters)
        return self

    def to_core(self, *, start_angle_ns: int = 0) -> _core.HddParameters:
        """The core's parameters; `start_angle_ns` turns the platters at time 0."""
        arguments = self.parameters.core_arguments()
        return _core.HddParameters(**arguments, start_angle_ns=start_angle_ns)


class SsdProfile(_Profile):
    """A flash drive."""

    kind: Literal["ssd"]
    parameters: SsdParameters
    data_sheet: tuple[DataSheetFigure, ...] = ()

    @model_validator(mode="after")
    def _fits_known(self) -> Self:
        _require_consistent(self.data_sheet, SsdParameters)
        return self

    def to_core(self, *, seed: int = 0, ranges: Sequence[NamedRange] = ()) -> _core.SsdParameters:
        """The core's parameters; `seed` feeds jitter and random choices of the drive's policies."""
        return _core.SsdParameters(
            **self.parameters.core_arguments(),
            seed=seed,
            ranges=[(r.name, r.begin_bytes, r.end_bytes, r.stream) for r in ranges],
        )


class HostProfile(_Profile):
    """A machine: cores and kernel costs, and for each kind of software what it costs here."""

    kind: Literal["host"]
    parameters: HostParameters
    ports: Ports | None = None
    join_cpu: JoinCpu | None = None
    page_cache: PageCache | None = None
    sort: SortCpu | None = None
    hash_join: HashJoinCpu | None = None
    ext4: Ext4 | None = None
    innodb: Innodb | None = None

    def to_core(self) -> _core.HostParameters:
        """The core's parameters."""
        return _core.HostParameters(**self.parameters.core_arguments())

    @property
    def sections(self) -> dict[str, Parameters]:
        """Every group of parameters that the profile has, by its key."""
        groups = (
            ("parameters", self.parameters),
            ("ports", self.ports),
            ("join_cpu", self.join_cpu),
            ("page_cache", self.page_cache),
            ("sort", self.sort),
            ("hash_join", self.hash_join),
            ("ext4", self.ext4),
            ("innodb", self.innodb),
        )
        return {key: group for key, group in groups if group is not None}

    @property
    def parameter_names(self) -> set[str]:
        """Names of all its parameters: no two groups share one."""
        return {name for group in self.sections.values() for name in type(group).model_fields}


DeviceProfile = HddProfile | SsdProfile


def core_parameters(
    profile: DeviceProfile, *, seed: int = 0, ranges: Sequence[NamedRange] = ()
) -> _core.HddParameters | _core.SsdParameters:
    """The core's parameters of one drive. A disk's `seed` is the angle of its platters, in ns.

    Raises BadParameter for ranges on a disk, which counts none apart.
    """
    if isinstance(profile, SsdProfile):
        return profile.to_core(seed=seed, ranges=ranges)
    if ranges:
        raise BadParameter("ranges: a hard disk counts none apart")
    return profile.to_core(start_angle_ns=seed)


_SECTIONS: Final = (
    "parameters",
    "ports",
    "join_cpu",
    "page_cache",
    "sort",
    "hash_join",
    "ext4",
    "innodb",
)
_P = TypeVar("_P", bound=BaseModel)
_D = TypeVar("_D", HddProfile, SsdProfile)


def _without_origins(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if "value" in node:
        return node["value"]
    return {key: _without_origins(child) for key, child in node.items()}


def list_profiles(folder: Path) -> list[str]:
    """Names of the profiles in a folder, sorted."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_device(
    folder: Path, name: str, overrides: Mapping[str, str] | None = None
) -> DeviceProfile:
    """The device profile `name` of a folder, or the one at the path `name` if it ends in .yaml.

    `overrides` replaces parameters by name, with values as they would stand in the file. Raises
    UnknownName, BadProfile (with the file and the key), or BadParameter for an override that the
    profile has no parameter for.
    """
    path, data = _read(folder, name, "profile")
    for parameter, value in (overrides or {}).items():
        _override(path, data, parameter, value)
    kind = data.get("kind")
    if kind == "hdd":
        return _check_geometry(path, _validate(path, HddProfile, data))
    if kind == "ssd":
        return _check_geometry(path, _validate(path, SsdProfile, data))
    raise BadProfile(str(path), f"kind: {kind!r} is not a device; known: hdd, ssd")


def load_host(folder: Path, name: str, overrides: Mapping[str, str] | None = None) -> HostProfile:
    """The host profile `name`; overrides and errors as in `load_device`."""
    path, data = _read(folder / "hosts", name, "host profile")
    for parameter, value in (overrides or {}).items():
        _override(path, data, parameter, value)
    return _validate(path, HostProfile, data)


def match_profile(folder: Path, text: str) -> str:
    """The profile that `text` names: in full, by a part that only one has ('mx500'), or by a path.

    Raises UnknownName.
    """
    names = list_profiles(folder)
    if text in names or text.endswith(".yaml"):
        return text
    matching = [name for name in names if text and text.lower() in name]
    if len(matching) != 1:
        raise UnknownName("profile", text, matching or names)
    return matching[0]


def profile_path(folder: Path, name: str) -> Path:
    """Where the profile `name` of a folder lies; a name that ends in .yaml is a path itself."""
    return Path(name) if name.endswith(".yaml") else folder / f"{name}.yaml"


def _read(folder: Path, name: str, what: str) -> tuple[Path, dict[str, Any]]:
    path = profile_path(folder, name)
    if not path.is_file():
        raise UnknownName(what, name, list_profiles(folder))
    try:
        data = read_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadProfile(str(path), " ".join(f"not YAML: {error}".split())) from error
    if not isinstance(data, dict):
        raise BadProfile(str(path), "is not a mapping of keys to values")
    return path, data


def _override(path: Path, data: dict[str, Any], parameter: str, value: str) -> None:
    optional = SsdParameters.model_fields if data.get("kind") == "ssd" else {}
    for section in _SECTIONS:
        table = data.get(section)
        if not isinstance(table, dict):
            continue
        if parameter in table or (section == "parameters" and parameter in optional):
            table[parameter] = {"value": _value(value), "prior": "set on the command line"}
            return
    known = [name for section in _SECTIONS for name in data.get(section) or {}]
    raise UnknownName(f"parameter of profile {path.stem}", parameter, known)


def _value(text: str) -> Any:
    try:
        return read_yaml(text)
    except yaml.YAMLError as error:
        raise BadParameter(f"override {text!r} cannot be read") from error


def _validate(path: Path, model: type[_P], data: dict[str, Any]) -> _P:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "profile"
        message = first["msg"].removeprefix("Value error, ")
        raise BadProfile(str(path), f"{key}: {message}") from error


def _check_geometry(path: Path, profile: _D) -> _D:
    """Builds the device once: the core knows which geometries are impossible."""
    try:
        _core.capacity_bytes(profile.to_core())
    except BadParameter as error:
        raise BadProfile(str(path), str(error)) from error
    return profile
