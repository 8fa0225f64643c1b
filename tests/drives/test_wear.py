"""Wear of real drives: what their pages and reports say, and what two readings mean."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import wear_samples as samples
from conftest import loop_device, need
from hypothesis import given
from hypothesis import strategies as st

from harness.drives import nvme_pages
from harness.drives.wear import counters, nvme_wear, reading, smartctl_report
from harness.drives.wear.counters import COUNTS, Count, Drive, Wear, between, since_new
from harness.errors import DeviceError, InvalidRun, TargetError

DRIVE = Drive("model", "serial", "1.0")
U128 = st.integers(0, (1 << 79) - 1)


def sample(name: str) -> bytes:
    return (samples.FOLDER / name).read_bytes()


def one_line(error: pytest.ExceptionInfo[DeviceError]) -> str:
    said = str(error.value)
    assert said
    assert "\n" not in said
    return said


def test_the_samples_are_what_their_generator_writes() -> None:
    made = samples.samples()
    assert {path.name: path.read_bytes() for path in samples.FOLDER.iterdir()} == made
    assert sum(map(len, made.values())) < 64 << 10


# --- NVMe pages


def test_the_smart_page() -> None:
    smart = nvme_pages.parse_smart(sample("nvme_smart_02h.bin"))
    assert smart.data_units_written == 0x0123_4567_89AB
    assert smart.used_ratio == 1.03
    assert smart.temperature_c == 41


def test_the_ocp_page() -> None:
    ocp = nvme_pages.parse_ocp(sample("ocp_smart_c0h.bin"))
    assert ocp.media_written_bytes == (1 << 64) + 0x1122_3344_5566_7788
    assert (ocp.erase_count_max, ocp.erase_count_min) == (1234, 1111)


def test_the_fdp_page() -> None:
    fdp = nvme_pages.parse_fdp(sample("nvme_fdp_statistics_22h.bin"))
    assert fdp.host_written_bytes == 3_000_000_000_005
    assert fdp.media_written_bytes == 4_000_000_000_007
    assert fdp.erased_bytes == 2_000_000_000_000


def test_the_endurance_group_page() -> None:
    group = nvme_pages.parse_endurance(sample("nvme_endurance_group_09h.bin"))
    assert (group.data_units_written, group.media_units_written) == (5_500, 9_900)


@given(U128, U128, U128)
def test_fdp_numbers_come_back(host: int, media: int, erased: int) -> None:
    fdp = nvme_pages.parse_fdp(samples.fdp_statistics(host, media, erased))
    assert (fdp.host_written_bytes, fdp.media_written_bytes, fdp.erased_bytes) == (
        host,
        media,
        erased,
    )


@given(U128)
def test_ocp_numbers_come_back(media: int) -> None:
    assert nvme_pages.parse_ocp(samples.ocp_smart(media)).media_written_bytes == media


@given(st.integers(0, (1 << 60) - 1))
def test_data_units_come_back(units: int) -> None:
    assert nvme_pages.parse_smart(samples.nvme_smart(units)).data_units_written == units


PARSERS = [
    (nvme_pages.parse_smart, samples.nvme_smart()),
    (nvme_pages.parse_endurance, samples.nvme_endurance()),
    (nvme_pages.parse_fdp, samples.fdp_statistics()),
    (nvme_pages.parse_ocp, samples.ocp_smart()),
]


@pytest.mark.parametrize(("parse", "whole"), PARSERS, ids=["smart", "endurance", "fdp", "ocp"])
@given(data=st.data())
def test_a_page_of_another_length_is_refused(parse: Any, whole: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(whole) + 40).filter(lambda size: size != len(whole)))
    with pytest.raises(DeviceError, match="nvme get-log") as error:
        parse((whole + bytes(40))[:cut])
    one_line(error)


@pytest.mark.parametrize(("parse", "whole"), PARSERS, ids=["smart", "endurance", "fdp", "ocp"])
@pytest.mark.parametrize("fill", [b"\xff", b"\xa5"])
def test_a_page_of_nothing_is_refused(parse: Any, whole: bytes, fill: bytes) -> None:
    """What is read from a drive that has gone, or from memory that nobody wrote."""
    with pytest.raises(DeviceError) as error:
        parse(fill * len(whole))
    one_line(error)


@pytest.mark.parametrize(("parse", "whole"), PARSERS[:2], ids=["smart", "endurance"])
def test_a_spare_of_more_than_everything_is_garbled(parse: Any, whole: bytes) -> None:
    parse(whole[:3] + bytes([100]) + whole[4:])
    with pytest.raises(DeviceError, match="spare of 101"):
        parse(whole[:3] + bytes([101]) + whole[4:])


@given(st.integers(0, 127))
def test_every_bit_of_the_guid_counts(bit: int) -> None:
    page = bytearray(samples.ocp_smart())
    page[496 + bit // 8] ^= 1 << bit % 8
    assert not nvme_pages.is_ocp(bytes(page))
    with pytest.raises(DeviceError, match="GUID"):
        nvme_pages.parse_ocp(bytes(page))


def test_the_guid_is_that_of_ocp_in_its_byte_order() -> None:
    """As nvme-cli lists it: the page's last byte is AFh, its byte 496 is C5h."""
    page = samples.ocp_smart()
    assert page[496:].hex() == "c5af1028eabff2a49c4f6f7cc914d5af"
    assert nvme_pages.is_ocp(page)
    assert not nvme_pages.is_ocp(page[:496] + page[496:][::-1])


@given(st.integers(48, 63), st.integers(1, 255))
def test_reserved_bytes_of_the_fdp_page_are_zero(at: int, value: int) -> None:
    page = bytearray(samples.fdp_statistics())
    page[at] = value
    with pytest.raises(DeviceError, match="garbled"):
        nvme_pages.parse_fdp(bytes(page))


# --- an NVMe drive


def nvme(**given: bytes | str) -> Wear:
    answers: dict[nvme_pages.Page, bytes | str] = {
        nvme_pages.SMART: given.get("smart", samples.nvme_smart(1000)),
        nvme_pages.FDP_STATISTICS: given.get("fdp", "the drive does not have it"),
        nvme_pages.OCP_SMART: given.get("ocp", "Invalid Log Page"),
        nvme_pages.ENDURANCE: given.get("endurance", "the drive does not have it"),
        nvme_pages.TRIM: given.get("trim", "Invalid Log Page"),
    }
    return nvme_wear.assemble(DRIVE, answers)


def test_a_data_unit_is_512000_bytes() -> None:
    wear = nvme()
    assert wear.host_written_bytes == 512_000_000
    assert wear.counts["host_written_bytes"].step == 512_000
    assert "02h" in wear.counts["host_written_bytes"].source


def test_a_drive_without_media_counter_says_so() -> None:
    wear = nvme()
    assert wear.media_written_bytes is None
    why = wear.unsaid["media_written_bytes"]
    assert all(part in why for part in ("22h", "C0h: Invalid Log Page", "09h"))
    assert since_new(wear).waf_text == f"not known: {why}"


def test_zero_data_units_mean_that_they_are_not_reported() -> None:
    wear = nvme(smart=samples.nvme_smart(0))
    assert wear.host_written_bytes is None
    assert "not report" in wear.unsaid["host_written_bytes"]


def test_ocp_beside_smart() -> None:
    wear = nvme(ocp=samples.ocp_smart(1_024_000_000))
    assert wear.media_written_bytes == 1_024_000_000
    change = since_new(wear)
    assert change.waf == 2.0
    assert change.waf_low is not None
    assert change.waf_high is not None
    assert change.waf_low < 2.0 < change.waf_high
    assert "C0h" in change.note
    assert "02h" in change.note


def test_fdp_comes_first_and_brings_its_own_host_bytes() -> None:
    wear = nvme(fdp=samples.fdp_statistics(4000, 5000, 6000), ocp=samples.ocp_smart(7))
    assert (wear.host_written_bytes, wear.media_written_bytes, wear.erased_bytes) == (
        4000,
        5000,
        6000,
    )
    assert since_new(wear).waf == 1.25


def test_endurance_groups_come_last() -> None:
    wear = nvme(ocp=bytes(512), endurance=samples.nvme_endurance(2_000, 3_000))
    assert (wear.host_written_bytes, wear.media_written_bytes) == (2 * 10**12, 3 * 10**12)
    assert since_new(wear).waf == 1.5
    with_ocp = nvme(ocp=samples.ocp_smart(7), endurance=samples.nvme_endurance())
    assert with_ocp.media_written_bytes == 7


def test_another_makers_page_at_c0h_is_no_count() -> None:
    wear = nvme(ocp=b"\x01" * 512)
    assert "C0h: has not OCP's mark" in wear.unsaid["media_written_bytes"]


def test_the_statistics_of_delayed_trim_are_read_along() -> None:
    log = nvme(trim=sample("openssd_trim_c5h.bin")).trim
    assert log is not None
    assert (log.trim_commands, log.pending_ranges) == (37, 21)
    assert nvme(trim=bytes(512)).trim is None
    assert nvme().trim is None
    with pytest.raises(DeviceError, match="TRIM log page"):
        nvme(trim=sample("openssd_trim_c5h.bin")[:100])


def test_a_garbled_page_is_not_passed_over() -> None:
    with pytest.raises(DeviceError, match="garbled"):
        nvme(fdp=b"\xff" * 64)


# --- smartctl


def report(name: str) -> Wear:
    return smartctl_report.parse(sample(f"smartctl_{name}.json"))


def test_crucial_counts_pages() -> None:
    wear = report("crucial")
    assert wear.drive == Drive("CT250MX500SSD1", samples.SERIAL, samples.FIRMWARE)
    assert wear.host_written_bytes == ((5 << 32) + 9) * 512
    assert wear.counts["host_written_bytes"].source == "attribute 246"
    assert wear.counts["erase_cycles"].value == 87
    assert wear.media_written_bytes is None
    assert "pages" in wear.unsaid["media_written_bytes"]
    assert since_new(wear).waf == 1.5
    assert wear.used_ratio == 0.04


def test_a_packed_temperature_is_no_larger_for_it() -> None:
    """Attribute 194 has the least and the most in the upper words of its 48 bits."""
    assert report("crucial").temperature_c == 36


def test_crucial_without_a_drive_database() -> None:
    plain = samples.crucial()
    for row in plain["ata_smart_attributes"]["table"]:
        row["name"] = "Unknown_Attribute"
    assert since_new(smartctl_report.parse(json.dumps(plain))).waf == 1.5
    plain["model_name"] = "Somebody's SSD"
    assert since_new(smartctl_report.parse(json.dumps(plain))).waf is None


@pytest.mark.parametrize("name", ["FTL_Program_Page_Count", "Bckgnd_Program_Page_Cnt"])
def test_both_names_of_the_background_pages(name: str) -> None:
    named = samples.crucial()
    named["ata_smart_attributes"]["table"][-1]["name"] = name
    assert since_new(smartctl_report.parse(json.dumps(named))).waf == 1.5


def test_the_same_numbers_mean_nothing_with_another_maker() -> None:
    wear = report("other_ssd")
    assert "host_pages" in wear.unsaid
    assert "does not publish" in wear.unsaid["media_written_bytes"]


def test_device_statistics_are_in_logical_blocks() -> None:
    wear = report("other_ssd")
    assert wear.host_written_bytes == 1_000_003 * 4096
    assert wear.used_ratio == 0.12
    invalid = samples.other_ssd() | samples.statistics(5, 5, valid=False)
    wear = smartctl_report.parse(json.dumps(invalid))
    assert wear.host_written_bytes is None
    assert wear.used_ratio is None


def test_samsung_is_an_estimate() -> None:
    wear = report("samsung")
    capacity = 250_059_350_016
    assert wear.host_written_bytes == 40_000_000_000 * 512
    assert wear.media_written_bytes == 120 * capacity
    count = wear.counts["media_written_bytes"]
    assert count.estimated
    assert count.step == capacity
    change = since_new(wear)
    assert change.waf == pytest.approx(120 * capacity / (40_000_000_000 * 512))
    assert "estimate" in change.waf_text
    assert "177" in change.note


def test_samsung_in_an_afternoon_says_nothing() -> None:
    before = smartctl_report.parse(json.dumps(samples.samsung(120, 40_000_000_000)))
    after = smartctl_report.parse(json.dumps(samples.samsung(122, 41_000_000_000)))
    change = between(before, after)
    assert change.waf is None
    assert "too little for a ratio" in change.note
    assert change.counts["host_written_bytes"] == 512_000_000_000


def test_a_disk_programs_no_flash() -> None:
    wear = report("disk")
    assert "7200 rpm" in wear.unsaid["media_written_bytes"]
    assert wear.host_written_bytes is None


def test_sas() -> None:
    wear = report("sas")
    assert wear.host_written_bytes == 12_345_678_000_000
    assert wear.counts["host_written_bytes"].step == 10**6
    assert wear.used_ratio == 0.03
    assert wear.drive.firmware == "A1"


def test_nvme_behind_a_bridge() -> None:
    wear = report("bridged_nvme")
    assert wear.host_written_bytes == 2_000_000 * 512_000
    assert "log pages" in wear.unsaid["media_written_bytes"]


def test_what_smartctl_cannot_open() -> None:
    with pytest.raises(DeviceError, match="Unable to detect device type") as error:
        report("not_opened")
    one_line(error)


def test_an_ill_drive_is_read_all_the_same() -> None:
    """Bits 3 to 7 of the exit status tell of the drive's health (smartctl(8))."""
    ill = samples.crucial()
    ill["smartctl"]["exit_status"] = 0b1111_1000
    assert smartctl_report.parse(json.dumps(ill)) == report("crucial")


RAW = st.integers(0, (1 << 48) - 1)


@given(RAW, RAW, RAW)
def test_raw_values_of_48_bits_come_back(host: int, background: int, sectors: int) -> None:
    made = samples.crucial(host, background)
    made["ata_smart_attributes"]["table"][2]["raw"]["value"] = sectors
    wear = smartctl_report.parse(json.dumps(made))
    assert wear.counts["host_pages"].value == host
    assert wear.counts["media_pages"].value == host + background
    assert wear.host_written_bytes == 512 * sectors


@pytest.mark.parametrize("raw", [-1, 1 << 48, 1.5, "7", None, True])
def test_a_raw_value_of_another_kind_is_refused(raw: object) -> None:
    made = samples.crucial()
    made["ata_smart_attributes"]["table"][-1]["raw"]["value"] = raw
    with pytest.raises(DeviceError, match="garbled") as error:
        smartctl_report.parse(json.dumps(made))
    one_line(error)


NAMES = ("crucial", "samsung", "other_ssd", "disk", "sas", "bridged_nvme")


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_a_cut_report_is_refused(name: str, data: st.DataObject) -> None:
    whole = sample(f"smartctl_{name}.json").strip()
    with pytest.raises(DeviceError) as error:
        smartctl_report.parse(whole[: data.draw(st.integers(0, len(whole) - 1))])
    one_line(error)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_a_garbled_report_is_read_or_refused(name: str, data: st.DataObject) -> None:
    """Never anything else: one value somewhere in it is replaced by another."""
    made = json.loads(sample(f"smartctl_{name}.json"))
    places: list[tuple[Any, Any]] = []
    pending = [made]
    while pending:
        place = pending.pop()
        for key in place if isinstance(place, dict) else range(len(place)):
            places.append((place, key))
            if isinstance(place[key], dict | list):
                pending.append(place[key])
    place, key = data.draw(st.sampled_from(places))
    place[key] = data.draw(
        st.sampled_from([None, [], {}, "x", -1, 2.5, True, [[]], 1 << 70, float("nan")])
    )
    try:
        wear = smartctl_report.parse(json.dumps(made))
    except DeviceError as refused:
        said = str(refused)
    else:
        said = ""
        for count in wear.counts.values():
            assert (type(count.value), count.value >= 0, count.step > 0) == (int, True, True)
    assert "\n" not in said


# --- two readings


def wear_of(host: int, media: int, *, step: int = 1, source: str = "here") -> Wear:
    counts = {
        "host_written_bytes": Count(host, step, source),
        "media_written_bytes": Count(media, 1, source),
    }
    unsaid = {name: "not said" for name in COUNTS if name not in counts}
    return Wear(drive=DRIVE, counts=counts, unsaid=unsaid)


@given(st.integers(0, 10**15), st.integers(10**6, 10**12), st.integers(0, 10**13))
def test_the_ratio_is_that_of_the_differences(start: int, host: int, media: int) -> None:
    before, after = wear_of(start, 2 * start), wear_of(start + host, 2 * start + media)
    change = between(before, after)
    assert change.counts == {"host_written_bytes": host, "media_written_bytes": media}
    if media > 1000:
        assert change.waf == pytest.approx(media / host)


@given(st.integers(0, 10**9), st.integers(1, 10**9), st.integers(1, 300), st.data())
def test_the_bounds_hold_what_was_written(
    start: int, written: int, step: int, data: st.DataObject
) -> None:
    """The drive rounds its counter up to whole steps; the true ratio lies within the bounds."""
    media = data.draw(st.integers(0, 10 * written))

    def rounded(value: int) -> int:
        return -(-value // step) * step

    before = wear_of(rounded(start), 0, step=step)
    after = wear_of(rounded(start + written), media, step=step)
    change = between(before, after)
    if change.waf is not None:
        assert change.waf_low is not None
        assert change.waf_high is not None
        assert change.waf_low <= media / written <= change.waf_high
        assert change.waf_high <= 1.06 * change.waf
        assert change.waf_low >= 0.94 * change.waf
    else:
        host = rounded(start + written) - rounded(start)
        assert not host or not media or step / host + 1 / media > 0.05


def test_too_little_was_written_for_a_ratio() -> None:
    """Nine steps of a counter cannot tell a ratio of 1.9 from one of 2.1; a hundred can."""
    few = between(wear_of(0, 0, step=512_000), wear_of(9 * 512_000, 2 * 9 * 512_000, step=512_000))
    assert few.waf is None
    assert "in steps of 512000" in few.waf_text
    assert "write 10240020 or more" in few.waf_text
    many = between(wear_of(0, 0, step=512_000), wear_of(100 * 512_000, 200 * 512_000, step=512_000))
    assert many.waf == 2.0


def test_nothing_was_written() -> None:
    change = between(wear_of(5, 7), wear_of(5, 7))
    assert change.waf is None
    assert "too little" in change.waf_text


@pytest.mark.parametrize(("host", "media"), [(99, 200), (100, 199)])
def test_a_counter_that_runs_backwards_is_refused(host: int, media: int) -> None:
    with pytest.raises(InvalidRun, match="backwards"):
        between(wear_of(100, 200), wear_of(host, media))


@pytest.mark.parametrize("name", ["serial", "model", "firmware"])
def test_another_drive_is_refused(name: str) -> None:
    before, after = wear_of(1, 1), wear_of(2, 2)
    with pytest.raises(InvalidRun, match=name):
        between(before, replace(after, drive=replace(after.drive, **{name: "other"})))


def test_a_count_from_elsewhere_is_refused() -> None:
    with pytest.raises(InvalidRun, match="here, then from there"):
        between(wear_of(1, 1), wear_of(2, 2, source="there"))


def test_what_the_first_reading_could_not_say() -> None:
    before, after = (
        nvme(smart=samples.nvme_smart(0), ocp=samples.ocp_smart(10)),
        nvme(ocp=samples.ocp_smart(20)),
    )
    change = between(before, after)
    assert change.waf is None
    assert "in the first reading" in change.note
    assert change.counts == {"media_written_bytes": 10}


# --- asking drives


@pytest.mark.root
def test_what_is_no_such_drive(tmp_path: Path) -> None:
    """The real programs, on a device that has no SMART."""
    need("smartctl")
    need("nvme")
    with loop_device(tmp_path, 1 << 20) as device:
        wear = reading.read(device, "other")
        assert not wear.counts
        assert "Unable to detect device type" in wear.unsaid["host_written_bytes"]
        assert since_new(wear).waf_text.startswith("not known: smartctl could not open")
        with pytest.raises(DeviceError, match="could not open"):
            reading.read(device, "sata")
        with pytest.raises(DeviceError, match="nvme id-ctrl"):
            reading.read(device, "nvme")
    with pytest.raises(TargetError, match="not a block device"):
        reading.read(tmp_path, "sata")


def test_the_counts_are_named_for_people() -> None:
    assert set(counters.COUNTS) >= set(report("crucial").counts)


# --- how much was written, for a course in time


def worn(host: Count | None, media: Count | None) -> Wear:
    counts = {"host_written_bytes": host, "media_written_bytes": media}
    said = {name: count for name, count in counts.items() if count is not None}
    unsaid = {name: "not said" for name in COUNTS if name not in said}
    return Wear(drive=Drive("m", "s", "f"), counts=said, unsaid=unsaid)


def test_what_is_counted_finely_is_a_course_in_time() -> None:
    fine, unit = Count(7, 1, "FDP"), Count(512_000, 512_000, "SMART")
    assert worn(unit, fine).written_bytes(1 << 20) == (512_000, 7)
    assert worn(unit, fine).written_bytes(511_999) is None
    assert worn(None, fine).written_bytes(1 << 20) is None
    assert worn(unit, None).written_bytes(1 << 20) is None
    assert worn(unit, replace(fine, estimated=True)).written_bytes(1 << 20) is None
