"""Answers of sweeps whose truth is known: made of closed forms, not run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy

from harness.errors import BadParameter
from harness.runs.claims import Claim
from harness.runs.sweeps import answers, nearest, samples, sensitivity
from harness.runs.sweeps.recorded import Recorded
from harness.runs.sweeps.unknowns import Unknown, Unknowns

Formula = Callable[[float, float, float], float]


def number(**change: Any) -> Unknown:
    given: dict[str, Any] = {"range": (0, 1), "digits": 6, "default": 0.5}
    return Unknown(what="x", sets={"host x": "{}"}, prior="p", excluded="", **(given | change))


KNOWN = Unknowns(
    title="T",
    scale="s",
    held_back=["held"],
    unknowns={
        "a": number(),
        "b": number(),
        "c": Unknown(
            what="c",
            choices={"off": {"host c": "0"}, "on": {"host c": "1"}},
            default="off",
            prior="p",
            excluded="",
        ),
    },
)


def claim(name: str, low: float, high: float) -> Claim:
    return Claim(
        id=name, place="", statement="", metric="", published="", expected=(low, high), why=""
    )


def swept(
    formulas: Mapping[str, tuple[Formula, float, float]], count: int = 255, design: str = "sobol"
) -> Recorded:
    """A sweep of machines whose claims' values are these functions of a, b and c (0 or 1)."""
    draw = samples.totals if design == "totals" else samples.sobol
    drawn = draw(KNOWN, count)
    machines = pd.DataFrame(
        [{"machine": n, **m, "state": "finished", "reason": ""} for n, m in enumerate(drawn)]
    )
    values = [
        {"machine": n, "claim": name, "value": f(float(m["a"]), float(m["b"]), m["c"] == "on")}
        for n, m in enumerate(drawn)
        for name, (f, _, _) in formulas.items()
    ]
    known = {name: claim(name, low, high) for name, (_, low, high) in formulas.items()}
    return Recorded(KNOWN, known, machines, pd.DataFrame(values), {"design": design})


SWEPT = swept(
    {
        "always": (lambda a, b, c: 1.0, 0, 2),
        "never": (lambda a, b, c: 5.0 + a, 0, 2),
        "low": (lambda a, b, c: a, 0, 0.3),
        "high": (lambda a, b, c: a, 0.7, 1),
        "switch": (lambda a, b, c: 10 * c, 5, 20),
        "unseen": (lambda a, b, c: float("nan"), 0, 1),
        "held": (lambda a, b, c: a, 0, 0.3),
    }
)


def test_shares_and_their_intervals() -> None:
    table = answers.shares(SWEPT).set_index("claim")
    assert table.machines["low"] == 255  # the default machine was not drawn
    assert table.share_ratio["low"] == pytest.approx(0.3, abs=0.01)
    assert table.lowest_ratio["low"] < 0.26 < 0.34 < table.highest_ratio["low"]
    assert (table.lowest_ratio <= table.share_ratio.fillna(0)).all()
    assert table.holds["always"] == 255
    assert table.holds["never"] == 0
    assert 0 < table.highest_ratio["never"] < 0.02
    assert table.machines["unseen"] == 0
    assert table.default_holds["low"] is False
    assert table.default_holds["always"] is True
    assert table.held_back["held"]


def test_a_line_for_each_claim() -> None:
    lines = answers.lines(SWEPT).set_index("claim")
    assert lines.verdict.to_dict() == {
        "always": answers.ROBUST,
        "never": answers.OUT_OF_REACH,
        "low": answers.FRAGILE,
        "high": answers.FRAGILE,
        "switch": answers.FRAGILE,
        "unseen": answers.NOT_JUDGED,
        "held": answers.FRAGILE,
    }
    assert lines.line["switch"].endswith("; its number follows c")
    assert lines.line["low"].endswith("; its number follows a")
    assert "none of 255 machines" in lines.line["never"]
    few = swept({"never": (lambda a, b, c: 5.0, 0, 2)}, 31)
    assert answers.lines(few).verdict[0] == answers.NOT_REACHED
    most = swept({"most": (lambda a, b, c: a, 0, 0.85)}, 31)
    assert answers.lines(most).verdict[0] == answers.UNDECIDED
    assert "of 255 machines" in lines.line["always"]


def test_what_the_scale_decides_says_nothing_of_machines() -> None:
    formulas: dict[str, tuple[Formula, float, float]] = {
        "same": (lambda a, b, c: a, 0, 0.6),
        "other": (lambda a, b, c: a, 0, 0.6),
        "unknown": (lambda a, b, c: a, 0, 0.6),
        "beyond": (lambda a, b, c: a + 2, 0.6, 0.8),
        "unseen": (lambda a, b, c: float("nan"), 0, 1),
    }
    larger = {"same": 0.2, "other": 13.9, "beyond": 0.1, "unseen": -0.33214}
    here = replace(swept(formulas), larger=larger, at_larger="at the paper's size")
    lines = answers.lines(here).set_index("claim")
    assert lines.verdict["same"] == lines.verdict["unknown"] == answers.FRAGILE
    assert lines.verdict["other"] == answers.ANOTHER_SCALE
    # Above the range here and below it there: no machine is in it, and the scale makes that.
    assert lines.verdict["beyond"] == answers.ANOTHER_SCALE
    assert "0.5 here, 13.9 at the paper's size" in lines.line["other"]
    assert lines.verdict["unseen"] == answers.NOT_JUDGED
    assert lines.line["unseen"].endswith("on the default machine -0.3321 at the paper's size")
    assert here.judged == ["same", "unknown"]


def test_what_decides_is_told_from_what_does_not() -> None:
    assert sensitivity.deciding(SWEPT, "low") == ["a"]
    assert sensitivity.deciding(SWEPT, "switch") == ["c"]
    table = sensitivity.of_claim(SWEPT, "low").set_index("unknown")
    assert table.first_ratio["a"] > 0.9
    assert table.first_ratio["b"] < 0.1
    assert sensitivity.of_claim(SWEPT, "always").empty
    assert sensitivity.of_claim(SWEPT, "unseen").empty
    noise = np.random.default_rng(3)
    random = swept({"noise": (lambda a, b, c: float(noise.random()), 0, 0.5)})
    assert sensitivity.deciding(random, "noise") == []
    assert "none of the unknowns" in answers.lines(random).line[0]


def test_noise_is_decided_by_nothing_but_once_in_a_hundred_claims() -> None:
    noise = np.random.default_rng(5)
    many: dict[str, tuple[Formula, float, float]] = {
        str(n): (lambda a, b, c: float(noise.random()), 0, 0.5) for n in range(200)
    }
    found = swept(many, 128)
    assert sum(bool(sensitivity.deciding(found, name)) for name in many) <= 6


def test_what_makes_little_more_than_chance_is_seen() -> None:
    """Half of an unknown's share is another's doing, which the machines do not say."""
    noise = np.random.default_rng(5)
    found = swept({"half": (lambda a, b, c: a + noise.normal(0, 0.29), 0, 0.5)})
    assert sensitivity.deciding(found, "half") == ["a"]
    table = sensitivity.of_claim(found, "half").set_index("unknown")
    assert table.chance_ratio.nunique() == 1
    assert table.chance_ratio["a"] == sensitivity.chance_ratio(255, 10, 3)


def test_chance_gives_more_to_more_unknowns_and_less_with_more_machines() -> None:
    few = sensitivity.chance_ratio(128, 8, 3)
    assert sensitivity.chance_ratio(128, 8, 20) > few > sensitivity.chance_ratio(500, 10, 3) > 0


@pytest.mark.parametrize("count", [63, 128, 255, 511])
def test_what_two_do_together_is_neither_s_own_doing(count: int) -> None:
    """Every other machine up one's range is in the same half of the other's: a sample's pattern."""
    found = swept({"product": (lambda a, b, c: (a - 0.5) * (b - 0.5), 0, 1)}, count)
    assert sensitivity.deciding(found, "product") == []
    assert sensitivity.of_claim(found, "product").first_ratio.abs().max() < 0.2


def test_of_many_machines_a_twentieth_is_no_decision() -> None:
    found = swept({"mostly": (lambda a, b, c: a + 0.18 * b, 0, 0.5)}, 2047)
    table = sensitivity.of_claim(found, "mostly").set_index("unknown")
    assert table.chance_ratio["b"] < table.first_ratio["b"] < sensitivity.MATERIAL_RATIO
    assert sensitivity.deciding(found, "mostly") == ["a"]


def test_an_interval_of_first_effects_is_as_wide_as_they_vary() -> None:
    """SALib's own is of half of the machines, and 1.4 times as wide."""
    noise = np.random.default_rng(9)
    many: dict[str, tuple[Formula, float, float]] = {
        str(n): (lambda a, b, c: a + noise.normal(0, 0.4), 0, 0.5) for n in range(60)
    }
    found = swept(many, 255)
    tables = [sensitivity.of_claim(found, name).set_index("unknown").loc["a"] for name in many]
    deviation = float(np.std([table.first_ratio for table in tables], ddof=1))
    width = float(np.mean([table.first_half_width for table in tables]))
    assert width / 1.96 / deviation == pytest.approx(1, abs=0.25)


def test_unknowns_that_go_together_in_a_sample_are_named() -> None:
    assert sensitivity.entangled(SWEPT).empty
    few = swept({"x": (lambda a, b, c: a, 0, 1)}, 255)
    machines = few.machines.assign(b=1 - few.machines.a, a=few.machines.a.round(1))
    table = sensitivity.entangled(replace(few, machines=machines))
    assert table[["first", "second"]].to_numpy().tolist() == [["a", "b"]]
    assert table.correlation[0] == pytest.approx(-1, abs=0.01)
    assert sensitivity.entangled(replace(few, machines=machines.assign(b=0.5))).empty


def test_total_effects_see_what_acts_only_together() -> None:
    found = swept({"product": (lambda a, b, c: (a - 0.5) * (b - 0.5), 0, 1)}, 640, "totals")
    table = sensitivity.of_claim(found, "product").set_index("unknown")
    assert table.total_ratio.notna().all()
    assert (table.first_ratio[["a", "b"]].abs() < 0.25).all()
    assert (table.total_ratio[["a", "b"]] > 0.7).all()
    assert abs(table.total_ratio["c"]) < 0.05
    assert table.chance_ratio.isna().all()
    assert set(sensitivity.deciding(found, "product")) == {"a", "b"}
    assert len(found.drawn) == 2 * 640 // 5


def test_a_refused_machine_takes_only_its_block() -> None:
    whole = swept({"sum": (lambda a, b, c: a + 0.5 * b, 0, 1)}, 640, "totals")
    refused = whole.machines.assign(
        state=whole.machines.state.where(whole.machines.machine != 3, "refused")
    )
    values = whole.values[whole.values.machine != 3]
    less = Recorded(KNOWN, whole.claims, refused, values, whole.about)
    table = sensitivity.of_claim(less, "sum").set_index("unknown")
    assert table.total_ratio["a"] == pytest.approx(0.8, abs=0.1)
    assert len(less.finished) == len(whole.finished) - 1


def test_claims_that_exclude_each_other() -> None:
    table = answers.exclusions(SWEPT)
    pairs = {frozenset((row.first, row.second)) for row in table.itertuples()}
    assert pairs == {frozenset(("low", "high")), frozenset(("high", "held"))}
    assert (table.chance < 1e-6).all()
    assert (table.highest_ratio < 0.02).all()
    # always with low, high, switch, held; and the pairs of these: 10 of two that hold somewhere.
    np.testing.assert_allclose(table.chance_of_any, 10 * table.chance)
    scaled = replace(SWEPT, larger={"low": 0.2}, at_larger="at the paper's size")
    without = answers.exclusions(scaled)
    assert {(row.first, row.second) for row in without.itertuples()} == {("high", "held")}
    np.testing.assert_allclose(without.chance_of_any, 6 * without.chance)
    few = swept({n: (SWEPT_FORMULAS[n], *SWEPT.claims[n].expected) for n in ("low", "high")}, 8)
    assert (answers.exclusions(few).chance > 0.05).all()  # eight machines prove nothing


SWEPT_FORMULAS: dict[str, Formula] = {"low": lambda a, b, c: a, "high": lambda a, b, c: a}


def test_a_map_over_two_unknowns() -> None:
    table = answers.map_of(SWEPT, "low", "a", "c")
    assert table.machines.sum() == 255
    shown = table.set_index(["across", "up"]).share_ratio
    assert (shown.loc["0 to 0.3333"] > 0.8).all()
    assert (shown.loc["0.6667 to 1"] == 0).all()
    assert set(table.up) == {"off", "on"}


def test_the_nearest_machines_and_what_they_have_in_common() -> None:
    formulas: dict[str, tuple[Formula, float, float]] = {
        "one": (lambda a, b, c: 10 * a, 2, 3),
        "two": (lambda a, b, c: a + b, 0.7, 0.9),
        "held": (lambda a, b, c: a - b, -0.45, -0.15),
    }
    found = swept(formulas)
    table = nearest.ranked(found)
    assert table.distance.is_monotonic_increasing
    assert table.distance[0] == 0
    assert table.inside[0] == table.of[0] == 2  # what was held back has chosen nothing
    assert table.a[:10].between(0.15, 0.35).all()
    common = nearest.in_common(found)
    assert common.unknown[0] == "a"
    assert common.chance[0] < 1e-6
    assert common.set_index("unknown").chance["c"] > 0.01
    np.testing.assert_allclose(common.chance_of_any, np.minimum(3 * common.chance, 1))
    out = nearest.left_out(found).set_index("claim")
    assert out.held_back["held"]
    assert out.near_ratio["held"] > 1.5 * out.share_ratio["held"]
    assert out.near_lowest_ratio["held"] < out.near_ratio["held"] < out.near_highest_ratio["held"]
    assert out.chance["held"] < 0.01
    np.testing.assert_allclose(out.chance_of_any, np.minimum(len(out) * out.chance, 1))


def test_a_claim_is_not_left_out_beside_its_own_double() -> None:
    """What goes with it over the machines says of it what it says itself."""
    formulas: dict[str, tuple[Formula, float, float]] = {
        "one": (lambda a, b, c: 10 * a, 2, 3),
        "again": (lambda a, b, c: a + 0.1 * b, 0.2, 0.4),
        "other": (lambda a, b, c: b, 0.2, 0.4),
    }
    out = nearest.left_out(swept(formulas)).set_index("claim")
    assert list(out.same) == ["again", "one", ""]
    assert out.near_ratio["one"] < 0.3, "b alone has chosen"


def test_a_number_that_hardly_differs_is_not_far_for_that() -> None:
    """One claim of two would else choose all machines by itself."""
    formulas: dict[str, tuple[Formula, float, float]] = {
        "still": (lambda a, b, c: 1 + 1e-6 * b, 1.1, np.inf),
        "one": (lambda a, b, c: 10 * a, 2, 3),
    }
    away = nearest.gaps(swept(formulas), list(formulas))
    assert away.still.max() == pytest.approx(np.log1p(0.1 / 0.11), rel=1e-3)
    table = nearest.ranked(swept(formulas))
    assert table.a[:10].between(0.2, 0.3).all()


def test_what_sets_the_nearest_apart_is_told_from_the_rest_by_its_kind() -> None:
    """A choice of two has few places: Kolmogorov and Smirnov's test would hardly see it."""
    found = swept({"one": (lambda a, b, c: 10 * c + a, 10.0, 10.1)}, 63)
    assert len(nearest.near(found)) == 6
    common = nearest.in_common(found).set_index("unknown")
    assert (common.nearest["c"], common.chance["c"] < 0.05) == ("on", True)
    apart = found.shares.index.isin(nearest.near(found))
    a = found.shares.a
    expected = scipy.stats.ks_2samp(a[apart], a[~apart]).pvalue
    assert common.chance["a"] == pytest.approx(expected)


def test_nearest_machines_of_noise_have_nothing_in_common() -> None:
    """As often as `chance_of_any` says, whatever kind the unknown is of."""
    noise = np.random.default_rng(2)
    seen = 0
    for _ in range(25):
        found = swept({"one": (lambda a, b, c: float(noise.random()), 0.2, 0.3)}, 63)
        seen += nearest.in_common(found).chance_of_any[0] < 0.05
    assert seen <= 4


def test_what_one_claim_alone_would_choose_is_not_asked_of_itself() -> None:
    out = nearest.left_out(swept({"one": (lambda a, b, c: 10 * a, 2, 3)}))
    assert out.empty
    assert "near_ratio" in out


def test_no_machine_is_chosen_by_what_was_held_back() -> None:
    assert "held" not in nearest.used(SWEPT)
    with pytest.raises(BadParameter, match="held back"):
        nearest.ranked(SWEPT, ["low", "held"])
    otherwise = swept({"one": (lambda a, b, c: a, 0.2, 0.3), "held": (lambda a, b, c: b, 0, 1)})
    without = swept({"one": (lambda a, b, c: a, 0.2, 0.3), "held": (lambda a, b, c: -b, 0, 1)})
    assert nearest.ranked(otherwise).equals(nearest.ranked(without))


def test_a_planted_machine_is_found_again() -> None:
    """Of a curved model with noise: 90 % intervals hold the truth as often as they say."""
    noise = np.random.default_rng(7)

    def first(a: float, b: float, c: float) -> float:
        return float(np.exp(2 * a) + b + 0.05 * noise.normal())

    def second(a: float, b: float, c: float) -> float:
        return float(b * b + 0.3 * a + 0.05 * noise.normal())

    found = swept({"first": (first, 0, 1), "second": (second, 0, 1)}, 1000)
    table = nearest.planted(found, ["first", "second"], 200)
    for name in ("a", "b"):
        mine = table[table.unknown == name]
        assert 0.85 <= mine.found.mean() <= 0.96, name
        assert (mine.highest - mine.lowest).mean() < 0.6  # and they say something
    spread = table[table.unknown == "c"]  # of which the results know nothing
    assert spread.found.mean() > 0.85


@pytest.mark.parametrize(("machines", "numbers"), [(60, 3), (60, 20), (200, 10), (400, 10)])
def test_intervals_of_few_machines_and_many_results_are_not_too_narrow(
    machines: int, numbers: int
) -> None:
    """What decides nothing hides among the results; half of them tell a little of one unknown."""
    draws = np.random.default_rng(11)
    inside = 0
    for _ in range(trials := 400):
        shares = draws.random((machines + 1, 1))
        results = draws.normal(size=(machines + 1, numbers))
        results[:, ::2] += 2 * shares
        made = nearest.posterior(shares[1:], results[1:], results[0])
        [(low, high)] = made.interval()
        inside += low <= shares[0, 0] <= high
    assert 0.86 <= inside / trials <= 0.99


def test_intervals_that_are_too_narrow_would_be_seen() -> None:
    found = swept({"first": (lambda a, b, c: a + b, 0, 1)}, 600)
    shares, results = found.shares.to_numpy(), found.by_claim.to_numpy()
    misses = 0
    for trial in range(100):
        others = np.arange(len(shares)) != trial
        made = nearest.posterior(shares[others], results[others], results[trial])
        low, high = made.interval(0.3)[0]
        misses += not low <= shares[trial, 0] <= high
    assert misses > 40


def test_a_claim_without_a_finite_value_everywhere_chooses_no_machine() -> None:
    endless = swept(
        {
            "one": (lambda a, b, c: a, 0.2, 0.3),
            "endless": (lambda a, b, c: float("inf") if a > 0.9 else a, 0, 1),
            "valueless": (lambda a, b, c: float("nan") if a > 0.9 else a, 0, 1),
        }
    )
    assert endless.judged == nearest.used(endless) == ["one"]
    assert not nearest.in_common(endless).empty
    with pytest.raises(BadParameter, match="finite"):
        nearest.planted(endless, ["one", "endless"])


def test_too_few_machines_to_choose_from() -> None:
    with pytest.raises(BadParameter, match="too few"):
        nearest.posterior(np.zeros((6, 1)), np.zeros((6, 1)), np.zeros(1))


def test_what_few_machines_can_be_asked_is_not_robust() -> None:
    """Where another result selects the machines, what holds on all of these says little."""
    formulas: dict[str, tuple[Formula, float, float]] = {
        "few": (lambda a, b, c: 1.0 if a < 0.3 else float("nan"), 0, 2),
        "most": (lambda a, b, c: 1.0 if a < 0.7 else float("nan"), 0, 2),
    }
    lines = answers.lines(swept(formulas)).set_index("claim")
    assert lines.verdict.to_dict() == {"few": answers.UNDECIDED, "most": answers.ROBUST}
    assert "machines that can be asked, of" in lines.line["few"]


def test_what_few_machines_can_be_asked_is_not_out_of_reach() -> None:
    found = swept({"half": (lambda a, b, c: 5.0 if c else float("nan"), 0, 1)})
    [share] = answers.shares(found).iloc
    assert answers.verdict(share) == answers.OUT_OF_REACH
    assert (
        answers.verdict(share.replace(share.machines, share.machines // 4)) == answers.NOT_REACHED
    )


def test_mixtures_of_two_machines_are_no_machines_of_their_own() -> None:
    """A block for total effects has two that were drawn, and others between them."""
    found = swept(
        {"one": (lambda a, b, c: 10 * a, 2, 3), "other": (lambda a, b, c: b, 0.2, 0.4)},
        640,
        "totals",
    )
    assert set(nearest.ranked(found).machine) == set(found.drawn)
    assert set(nearest.near(found)) <= set(found.drawn)
    assert set(nearest.planted(found, ["one"], 20).machine) <= set(found.drawn)
    assert nearest.in_common(found).chance.between(0, 1).all()


def test_unknowns_that_refusals_tie_together_are_named() -> None:
    """The more machines, the smaller a correlation that chance does not give."""
    many = swept({"x": (lambda a, b, c: a, 0, 1)}, 511)
    tied = many.machines[(many.machines.a + many.machines.b < 1.6) | (many.machines.machine == 0)]
    found = sensitivity.entangled(replace(many, machines=tied))
    assert found[["first", "second"]].to_numpy().tolist() == [["a", "b"]]
    assert 0.1 < abs(found.correlation[0]) < 0.3


def test_of_an_earlier_model_its_own_record_says_what_the_scale_decided() -> None:
    earlier = replace(
        SWEPT,
        is_present=False,
        about={**SWEPT.about, "of_another_scale": ["low", "a claim of the time"]},
    )
    assert earlier.of_another_scale == ["low"]
    assert "low" not in earlier.judged
    line = answers.lines(earlier).set_index("claim").line["low"]
    assert line.startswith("of another scale: the default machine of the time")
