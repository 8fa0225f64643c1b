"""What the core says of its parameters is what constructors, profiles and stubs go by."""

from __future__ import annotations

import re
from typing import Any

import pytest
from conftest import REPOSITORY
from model_drives import FLASH, job

from harness import _core
from harness.devices.core_parameters import HddParameters, HostParameters, SsdParameters
from harness.devices.parameters import KINDS, Parameters
from harness.devices.profiles import list_profiles, load_device
from harness.errors import BadParameter

PROFILES = REPOSITORY / "hardware" / "profiles"

GROUPS: list[tuple[Any, type[Parameters]]] = [
    (_core.HddParameters, HddParameters),
    (_core.SsdParameters, SsdParameters),
    (_core.HostParameters, HostParameters),
]
DESCRIBED = [each for each in vars(_core).values() if hasattr(each, "fields")]


@pytest.mark.parametrize(("core", "group"), GROUPS)
def test_a_profile_has_what_the_core_describes(core: Any, group: type[Parameters]) -> None:
    described = [field for field in core.fields() if field.in_profile]
    assert list(group.model_fields) == [field.name for field in described]
    for field in described:
        schema = group.model_fields[field.name]
        assert schema.is_required() == field.required
        assert schema.description == field.doc
        assert field.keyword == field.name + KINDS[field.kind].suffix
        kind: Any = KINDS[field.kind]
        assert schema.annotation == (kind if field.required else kind | None)


def test_what_varies_between_runs_is_no_matter_of_a_profile() -> None:
    beside = {
        field.keyword for core, _ in GROUPS for field in core.fields() if not field.in_profile
    }
    assert beside == {"start_angle_ns", "seed", "ranges"}


def test_there_are_the_known_classes() -> None:
    assert {each.__name__ for each in DESCRIBED} >= {core.__name__ for core, _ in GROUPS} | {
        "JobParameters",
        "JoinSpec",
        "UserJob",
        "PageCacheParameters",
        "SortedTable",
        "SortMergeJoinSpec",
        "Ext4Parameters",
        "JoinInput",
        "HashJoinSpec",
        "TpccSpec",
    }


@pytest.mark.parametrize("core", DESCRIBED, ids=lambda core: core.__name__)
def test_a_constructor_wants_the_first_required_keyword_and_knows_no_other(core: Any) -> None:
    required = [field for field in core.fields() if field.required]
    if required:
        first = f"^{core.__name__}: {required[0].keyword} is missing$"
        with pytest.raises(BadParameter, match=first):
            core()
        with pytest.raises(BadParameter, match=r"has the wrong type|is missing"):
            core(**{required[0].keyword: object()})
    else:
        with pytest.raises(BadParameter, match=f"^{core.__name__}: unknown argument unheard_of$"):
            core(unheard_of=1)


def test_an_optional_keyword_has_the_default_that_is_told() -> None:
    optional = {f.keyword: f.default for f in _core.SsdParameters.fields() if not f.required}
    given = {name: value for name, value in optional.items() if value is not None}
    assert given["gc_choices"] == 10

    base = {**FLASH, "gc_policy": "d_choices", "trim": "delayed", "background_gc": True}

    def results(**more: Any) -> Any:
        device = _core.Device(_core.SsdParameters(**base, **more))
        device.to_steady_state(1)
        spec = job(device, read_ratio=0.2, trim_ratio=0.2, requests=4000, flush_every=50)
        device.run([spec], rows=False, interval_ns=0, cancel=_core.Cancel())
        device.idle(1_000_000_000)
        return device.counters()

    assert results() == results(**given)
    for other in ({"gc_choices": 2}, {"jitter_ratio": 0.1}, {"background_target": 1}, {"seed": 1}):
        assert results(**{**given, **other}) != results(), other


def test_every_profile_gives_keywords_that_the_core_knows() -> None:
    known = {core.__name__: {field.keyword for field in core.fields()} for core, _ in GROUPS}
    for name in list_profiles(PROFILES):
        parameters = load_device(PROFILES, name).parameters
        assert set(parameters.core_arguments()) <= known[type(parameters).__name__]


def test_names_of_policies_are_those_of_their_files() -> None:
    """One file per policy, and each is in the table that its name is found in."""
    flash = REPOSITORY / "harness" / "core" / "flash" / "policy"
    for parameter in ("trim", "placement", "gc_placement", "gc_pace"):
        files = {p.stem.removeprefix(f"{parameter}_") for p in flash.glob(f"{parameter}_*.cpp")}
        names = set(_core.policy_names(parameter))
        assert files <= names | {"unchecked"}
        assert names - files <= {"delayed_unchecked"}, "a variant in its policy's file"
    for name in _core.policy_names("gc_policy"):
        assert (flash / f"{name}.cpp").is_file()
    for name in _core.policy_names("scheduler"):
        assert (REPOSITORY / "harness" / "core" / "disk" / "policy" / f"{name}.cpp").is_file()
    with pytest.raises(BadParameter, match="known: gc_policy, "):
        _core.policy_names("unheard_of")


@pytest.mark.parametrize("parameter", ["trim", "gc_policy", "gc_placement", "gc_pace", "placement"])
def test_the_names_are_those_that_a_drive_can_be_set_to(parameter: str) -> None:
    for name in _core.policy_names(parameter):
        _core.Device(_core.SsdParameters(**{**FLASH, parameter: name, "trim_slice_bytes": 4096}))
    known = re.escape(f"(known: {', '.join(_core.policy_names(parameter))})")
    with pytest.raises(BadParameter, match=known):
        _core.Device(_core.SsdParameters(**{**FLASH, parameter: "unheard_of"}))
