"""Questions to the models: answers move as theory says they must; the same one is the same."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from conftest import REPOSITORY
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UnknownName
from harness.experiments.base import Scalar
from harness.experiments.question import Answer, Knob, Question
from harness.explore import explorer, picture
from harness.explore.explorer import Asking, Explorer
from harness.paths import Project

QUESTIONS = {question.name: (study, question) for study, question in explorer.questions()}
PNG = b"\x89PNG\r\n\x1a\n"


def new(name: str) -> Explorer:
    """One that has been asked nothing."""
    return explorer.find(Project(REPOSITORY), name)


def values(name: str, knob: str, *choices: Scalar, **others: Scalar) -> list[float]:
    asked = new(name)
    return [asked.ask(**{knob: choice}, **others).answer.value for choice in choices]


def choices(name: str, knob: str) -> list[Scalar]:
    _, question = QUESTIONS[name]
    [found] = [each for each in question.knobs if each.name == knob]
    return [*found.choices]


def falls(found: list[float]) -> bool:
    return all(later < earlier for earlier, later in pairwise(found))


def rises(found: list[float]) -> bool:
    return all(later > earlier for earlier, later in pairwise(found))


@st.composite
def asked_at_random(draw: st.DrawFn) -> tuple[str, dict[str, Scalar]]:
    name = draw(st.sampled_from(sorted(QUESTIONS)))
    _, question = QUESTIONS[name]
    return name, {knob.name: draw(st.sampled_from([*knob.choices])) for knob in question.knobs}


@given(asked_at_random())
@settings(max_examples=6)
def test_any_setting_has_one_answer_and_a_picture(given: tuple[str, dict[str, Scalar]]) -> None:
    name, chosen = given
    first, second = new(name), new(name)
    answer = first.ask(**chosen)
    assert answer == second.ask(**chosen)
    assert answer.answer.value > 0
    drawn = picture.draw(first.question, first.asked)
    assert drawn.startswith(PNG)
    assert drawn == picture.draw(second.question, second.asked)


def test_what_was_asked_is_kept_once_and_the_latest_is_last() -> None:
    asked = new("spare_area")
    first = asked.ask(spare_factor=0.4)
    other = asked.ask(spare_factor=0.3)
    assert asked.asked == [first, other]
    assert asked.ask(spare_factor=0.4) is first
    assert asked.asked == [other, first]


def test_the_picture_changes_with_the_answer() -> None:
    asked = new("spare_area")
    asked.ask()
    before = picture.draw(asked.question, asked.asked)
    asked.ask(spare_factor=0.4)
    assert picture.draw(asked.question, asked.asked) != before


def test_names_that_are_not_there_are_refused_with_those_that_are() -> None:
    with pytest.raises(UnknownName, match="spare_area"):
        explorer.find(Project(REPOSITORY), "spare")
    asked = new("spare_area")
    with pytest.raises(UnknownName, match="policy"):
        asked.ask(polcy="greedy")
    with pytest.raises(UnknownName, match="cost_benefit"):
        asked.ask(policy="random")
    with pytest.raises(UnknownName, match=r"0\.05"):
        asked.ask(spare_factor=0.06)


@pytest.mark.parametrize("policy", ["greedy", "fifo", "d_choices"])
def test_spare_area_is_as_the_closed_formula_has_it(policy: str) -> None:
    asked = new("spare_area")
    for spare in choices("spare_area", "spare_factor"):
        answer = asked.ask(spare_factor=spare, policy=policy).answer
        [formula] = answer.beside
        assert answer.value == pytest.approx(formula.values[spare], rel=0.03), spare
    assert falls([each.answer.value for each in asked.asked])


def test_greedy_is_best_when_all_data_is_alike() -> None:
    greedy, *others = values("spare_area", "policy", "greedy", "d_choices", "fifo")
    assert greedy < min(others)


def test_hot_and_cold_data_apart_write_less() -> None:
    layouts = choices("streams", "layout")
    for spare in (0.1, 0.2, 0.4):
        assert falls(values("streams", "layout", *layouts, spare_factor=spare))


def test_the_journal_apart_writes_less_and_so_does_more_spare_area() -> None:
    together, apart = values("journal_stream", "mode", "dj", "msdj")
    assert apart < together
    assert falls(values("journal_stream", "spare_ratio", 0.8, 1.0, 1.5))


def test_a_larger_cache_is_no_slower_and_a_longer_write_no_faster() -> None:
    assert rises(values("slc_cache", "slc_dynamic", *choices("slc_cache", "slc_dynamic")))
    assert falls(values("slc_cache", "written_ratio", *choices("slc_cache", "written_ratio")))


def test_delaying_gains_more_the_larger_the_trim_and_the_less_its_handling() -> None:
    units = choices("trim_cost", "unit_bytes")
    assert rises(values("trim_cost", "unit_bytes", *units))
    assert falls(values("trim_cost", "command_factor", 0.5, 1, 2))
    # Command c, slice s, n slices a unit: 1 - c / (c + n s) knows the ratio of prices only.
    dearer, cheaper = (
        values("trim_cost", knob, factor)[0]
        for knob, factor in (("slice_factor", 2), ("command_factor", 0.5))
    )
    assert dearer == pytest.approx(cheaper, abs=0.05)


def test_delayed_trim_answers_near_the_paper() -> None:
    asked = new("trim_cost")
    [paper] = asked.ask().answer.beside
    for unit, said in paper.values.items():
        assert asked.ask(unit_bytes=unit).answer.value == pytest.approx(said, abs=0.5)


def test_preallocation_and_price_matter_only_with_trim() -> None:
    with_trim, without_trim = (
        values("temp_files", "preallocation_bytes", 0, 8 << 20, 16 << 20, trim=trim)
        for trim in ("discard", "none")
    )
    nothing, too_little, enough = with_trim
    assert too_little == pytest.approx(nothing, rel=0.05)  # the larger side's files use it up
    assert enough < 0.6 * nothing
    assert max(without_trim) < 1.05 * min(without_trim)
    assert rises(values("temp_files", "trim_factor", *choices("temp_files", "trim_factor")))
    [free] = values("temp_files", "trim_factor", 0)
    [without] = values("temp_files", "trim", "none")
    assert free == pytest.approx(without, rel=0.02)


def test_the_size_of_the_join_does_not_decide() -> None:
    """What the page says of it: a 32nd, and a 128th, times made the paper's."""
    study, question = QUESTIONS["temp_files"]
    smaller = Question(**{**vars(question), "scale": "smoke"})
    for preallocation in (0, 16 << 20):
        both = [
            Explorer(Project(REPOSITORY), study, each)
            .ask(preallocation_bytes=preallocation)
            .answer.value
            for each in (question, smaller)
        ]
        assert both[1] == pytest.approx(both[0], rel=0.1)


def test_work_mem_saves_merges_and_the_disk_needs_them_more() -> None:
    disk = values("work_mem", "work_mem_bytes", 2 << 20, 4 << 20, 8 << 20, 32 << 20)
    flash = values("work_mem", "work_mem_bytes", 2 << 20, 4 << 20, 8 << 20, 32 << 20, device="ssd")
    assert falls(disk)
    assert falls(flash)
    assert rises([b / a for a, b in zip(reversed(flash), reversed(disk), strict=True)])


@pytest.mark.parametrize("device", ["hdd", "ssd"])
def test_a_single_client_s_join_is_near_the_paper_s(device: str) -> None:
    """As notebook 20 has it; of these cells a fit has seen two."""
    asked = new("work_mem")
    [paper] = asked.ask(device=device).answer.beside
    for work_mem, said in paper.values.items():
        value = asked.ask(device=device, work_mem_bytes=work_mem).answer.value
        assert value == pytest.approx(said, rel=0.2), work_mem
    assert not asked.ask(device=device, version="15").answer.beside


def test_no_number_of_a_paper_shows_where_its_settings_do_not_hold() -> None:
    asked = new("temp_files")
    assert [b.kind for b in asked.ask().answer.beside] == ["paper"]
    assert not asked.ask(trim="delayed").answer.beside
    assert not asked.ask(work_mem_bytes=1 << 20).answer.beside


def test_a_knob_begins_at_one_of_its_choices() -> None:
    with pytest.raises(AssertionError):
        Knob("x", "x", {1: "one"}, 2)


def test_the_notebook_has_a_panel_for_every_question() -> None:
    text = (Path(REPOSITORY) / "notebooks" / "95_explore.ipynb").read_text()
    assert all(f'panel.show(\\"{name}\\")' in text for name in QUESTIONS)


def test_numbers_beside_an_answer_are_in_words_with_their_units() -> None:
    _, question = QUESTIONS["spare_area"]
    more = {"tpmc": 17_860.4, "journal_written_bytes": float(3 << 30), "ratio": 1.25}
    asking = Asking(question.defaults, Answer(1.0, more=more))
    assert picture.said(question, asking).endswith("tpmc 17,860, journal written 3 GiB, ratio 1.25")
