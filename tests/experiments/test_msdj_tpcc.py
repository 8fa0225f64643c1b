"""MS-DJ on TPC-C: the grid, figures and claims of a made-up table that has all columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import REPOSITORY
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from pydantic import ValidationError

from harness.dbms import innodb, page_writes
from harness.devices import scaling
from harness.devices.profiles import SsdProfile, load_device
from harness.errors import BadParameter, TargetError, UnknownName
from harness.experiments.base import Point, Results
from harness.experiments.msdj_tpcc import EXPERIMENT, figures, grid, published, real
from harness.paths import Project
from harness.runs import claims
from harness.tiers.simulated import SimulatedBench
from harness.units import parse_bytes

PARAMS = yaml.safe_load((REPOSITORY / "params.yaml").read_text())["msdj_tpcc"]
NUMBERS = REPOSITORY / "data" / "published"
VALUES = {
    *("device", "variant", "mode", "journal_bytes", "warehouses", "connections", "warm_up_s"),
    *("measured_s", "buffer_pool_bytes", "redo_bytes", "redo_on", "doublewrite_on"),
    *("page_cache_bytes", "device_bytes", "ageing_bytes", "aged_under_files"),
    *("size_ratio_to_paper", "seed"),
    *("table_extent_bytes", "filled_ratio", "repetition"),
}


def parameters(tier: str = "simulated", **changes: Any) -> grid.Parameters:
    whole = {"scale": "paper", "seeds": [1]}  # not what the pipeline runs
    return grid.Parameters.model_validate({**PARAMS[tier]["parameters"], **whole, **changes})


def points(p: grid.Parameters) -> list[Point]:
    return grid.points(p, ["pm953"])


def test_the_paper_s_points_are_its_modes_with_both_journals() -> None:
    found = points(parameters())
    base = [x.values for x in found if x.values["variant"] == grid.BASE]
    cells = {(v["mode"], v["journal_bytes"]) for v in base}
    assert cells == {(m, j) for m in ("oj_dwb", "dj", "msdj") for j in (128 << 20, 5 << 30)}
    assert len(base) == len(cells)
    assert len({x.id for x in found}) == len(found)
    assert {(v["warehouses"], v["measured_s"], v["size_ratio_to_paper"]) for v in base} == {
        (1500, 18000, 1.0)
    }


@pytest.mark.parametrize("tier", ["simulated", "emulated", "hardware"])
def test_points_have_the_values_that_all_tiers_run(tier: str) -> None:
    for point in points(parameters(tier)):
        assert set(point.values) == VALUES
        page_writes.find(str(point.values["mode"]))


def test_a_variant_varies_what_it_says_and_nothing_else() -> None:
    p = parameters()
    found = points(p)
    paper = {
        v["mode"]: v
        for v in (x.values for x in found)
        if v["variant"] == grid.BASE and v["journal_bytes"] == 128 << 20
    }
    for point in found:
        name = str(point.values["variant"])
        if name == grid.BASE:
            assert point.depends == {}
            continue
        base = paper[point.values["mode"]]
        varied = {key for key in VALUES if point.values[key] != base[key]} - {"variant"}
        overrides = p.variants[name].overrides
        assert bool(varied) != bool(overrides), "either settings or the profile"
        assert dict(point.depends) == overrides
        assert point.values["mode"] in p.variants[name].modes


def test_the_doublewrite_buffer_is_varied_only_where_there_is_one() -> None:
    for variant in parameters().variants.values():
        if variant.doublewrite_on:
            assert all(page_writes.find(mode).doublewrite for mode in variant.modes)


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_a_scale_shrinks_everything_as_far_as_software_allows(scale: str) -> None:
    ratio = grid.SCALES[scale]
    whole, less = (
        {x.label.split(",")[0]: x.values for x in points(parameters(scale=s, journals=["5 GiB"]))}
        for s in ("paper", scale)
    )
    assert whole.keys() == less.keys()
    for name, v in less.items():
        for size in ("device_bytes", "ageing_bytes", "journal_bytes", "buffer_pool_bytes"):
            assert v[size] == pytest.approx(whole[name][size] * ratio, abs=4096)  # type: ignore[operator]
        assert v["measured_s"] == pytest.approx(float(whole[name]["measured_s"]) * ratio)
        assert v["warehouses"] == round(1500 * ratio)
        assert v["size_ratio_to_paper"] == ratio
        assert v["redo_bytes"] >= grid.LEAST_REDO_BYTES  # type: ignore[operator]
    smallest = points(parameters(scale=scale, journals=["1 MiB"]))[0].values
    assert smallest["journal_bytes"] == grid.LEAST_JOURNAL_BYTES


def test_the_smallest_drive_can_be_laid_out() -> None:
    profile = load_device(
        REPOSITORY / "hardware" / "profiles", PARAMS["simulated"]["bench"]["devices"]["pm953"]
    )
    assert isinstance(profile, SsdProfile)
    for point in points(parameters(scale="smoke")):
        size = int(point.values["device_bytes"])
        assert scaling.scaled_to(profile, size).parameters.capacity.value == size


def test_several_seeds_are_several_points_of_the_paper_s_only() -> None:
    one, three = points(parameters()), points(parameters(seeds=[1, 2, 3]))
    base = sum(x.values["variant"] == grid.BASE for x in one)
    assert len(three) == len(one) + 2 * base


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"modes": ["wj"]}, UnknownName),
        ({"scale": "huge"}, UnknownName),
        ({"journals": ["128"]}, BadParameter),
        ({"journals": []}, ValidationError),
        ({"redo_on": "moon"}, ValidationError),
        ({"warehouse": 3}, ValidationError),
        ({"variants": {"a": {"why": "", "modes": ["dj"], "colour": 1}}}, ValidationError),
    ],
)
def test_wrong_parameters_are_refused(change: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        parameters(**change)


def test_a_variant_that_varies_nothing_is_refused() -> None:
    with pytest.raises(BadParameter, match="varies nothing"):
        points(parameters(variants={"idle": {"why": "", "modes": ["dj"]}}))


def test_the_paper_s_numbers_agree_with_each_other() -> None:
    waf = published.waf(NUMBERS)
    small = {("small", mode) for mode in ("oj_dwb", "dj", "msdj")}
    assert set(waf) == small | {("large", "dj"), ("large", "msdj")}
    assert waf["large", "msdj"] < waf["large", "dj"]
    assert waf["small", "msdj"] < waf["small", "dj"] < waf["small", "oj_dwb"]
    tpmc = published.tpmc(NUMBERS)
    assert set(tpmc) == {("small", m) for m in ("oj_dwb", "dj", "msdj")} | {
        ("large", "dj"),
        ("large", "msdj"),
    }
    assert tpmc["small", "oj_dwb"] < tpmc["small", "dj"] < tpmc["small", "msdj"]
    assert tpmc["large", "dj"] == pytest.approx(tpmc["small", "dj"], rel=0.15)
    assert published.journal_over_rest(NUMBERS) > 1


# Bytes programmed per byte written late in the run, and how that is approached.
LATE = {"oj_dwb": 3.4, "dj": 2.05, "msdj": 1.9}
RATE = {"oj_dwb": 13e3, "dj": 15.7e3, "msdj": 16.8e3}


def made_up(p: grid.Parameters, late: dict[str, float] | None = None) -> Results:
    """Results that look like the paper's: every metric and series that the tiers share."""
    rows, series = [], {}
    for point in points(p):
        v = dict(point.values)
        curve = _curve(v, (late or LATE)[str(v["mode"])])
        rows.append({**v, **_metrics(v, curve), "point": point.id})
        series[point.id] = curve
    return Results("simulated", pd.DataFrame(rows), series, lambda _: None)


def _curve(v: dict[str, Any], late: float) -> dict[str, Sequence[float]]:
    times = np.linspace(0, v["measured_s"], 61)
    written = 60e6 * times
    share = np.clip(times / times[-1] * 2 - 0.1, 0, 1) * (1 if v["journal_bytes"] < 1e9 else 0.9)
    each = 1 + (late - 1) * share
    programmed = np.concatenate([[0], np.cumsum(np.diff(written) * each[1:])])
    with np.errstate(invalid="ignore"):
        ratio = programmed / written
    rate = RATE[v["mode"]]
    return {
        "waf_time_s": list(times),
        "waf_written_bytes": list(written),
        "waf_programmed_bytes": list(programmed),
        "waf_ratio": list(ratio),
        "tpmc_time_s": list(times[2::2]),
        "tpmc_per_interval": list(rate * (1 + 0.05 * np.cos(times[2::2]))),
        "table_written_pages": [30, 90, 4e6, 2e5, 2e5, 1e6, 3e6, 0, 9e6],
        "home_write_concentration": [0.02, 0.08, 0.2, 0.3, 0.45, 0.8, 1.0],
    }


def _metrics(v: dict[str, Any], curve: dict[str, Sequence[float]]) -> dict[str, float]:
    mode = page_writes.find(str(v["mode"]))
    written = curve["waf_written_bytes"][-1]
    journalled = mode.journal_mode == "journal"
    journal = 0.5 * written if journalled else 0.01 * written
    doublewrite = 0.45 * written if mode.doublewrite else 0.0
    rest_bytes = 150e9
    new_orders = RATE[v["mode"]] * v["measured_s"] / 60
    return {
        "tpmc": RATE[v["mode"]],
        "transactions": new_orders / 0.45,
        "waf_ratio": curve["waf_ratio"][-1],
        "host_written_bytes": written,
        "nand_written_bytes": curve["waf_programmed_bytes"][-1],
        "journal_written_bytes": journal,
        "doublewrite_written_bytes": doublewrite,
        "redo_written_bytes": 0.05 * written,
        "home_written_bytes": 0.95 * written - journal - doublewrite,
        "journal_size_bytes": v["journal_bytes"],
        "rest_size_bytes": rest_bytes,
        "journal_requests_per_lba": journal / 2e5 / (v["journal_bytes"] / 512),
        "rest_requests_per_lba": 2 * written / 16e3 / (rest_bytes / 512),
        "journal_accesses_per_lba": journal / v["journal_bytes"],
        "rest_accesses_per_lba": 2 * written / rest_bytes,
    }


ALL = {
    *("accesses_per_lba", "table_1", "waf_over_time", "tpmc", "bytes_by_place", "page_writes"),
    *("convergence", "what_if"),
}


@pytest.fixture(scope="module")
def results() -> Results:
    return made_up(parameters())


def test_all_figures_are_drawn(results: Results) -> None:
    assert set(EXPERIMENT.figures(results)) == ALL


def test_panels_that_share_an_axis_cut_nothing_off(results: Results) -> None:
    """A limit that is set with the first panel's lines would hold for all the others."""
    courses = {
        "tpmc": ("tpmc_time_s", "tpmc_per_interval"),
        "commits": ("commit_time_s", "commits_per_s", "commit_blocks", "commit_ms"),
    }
    table = results.table
    size_of = dict(zip(table.point, table.journal_bytes, strict=True))
    series = {
        point: {
            **own,
            **{
                name: [1.0, 2.0] if name.endswith("_time_s") else [0.0, float(size_of[point])]
                for names in courses.values()
                for name in names
            },
        }
        for point, own in results.series.items()
    }
    drawn = figures.draw(Results("emulated", table, series, lambda _: None))
    for name in courses:
        lines = [(line, ax) for ax in drawn[name].axes for line in ax.lines]
        assert lines
        for line, ax in lines:
            assert np.max(line.get_ydata()) <= ax.get_ylim()[1], name
        assert {ax.get_ylim()[0] for ax in drawn[name].axes} == {0.0}


def test_figures_without_their_points_are_left_out(results: Results) -> None:
    table = results.table
    some = table[(table.variant == grid.BASE) & (table["mode"] != "msdj")]
    drawn = figures.draw(Results("emulated", some, results.series, lambda _: None))
    assert set(drawn) == ALL - {"convergence", "what_if"}
    ordered = some[some["mode"] == "oj_dwb"].drop(columns=["redo_written_bytes"])
    drawn = figures.draw(Results("emulated", ordered, {}, lambda _: None))
    assert set(drawn) == {"table_1", "tpmc"}


def test_a_small_run_has_no_numbers_of_the_paper_beside_it(project: Project) -> None:
    small = made_up(parameters(scale="smoke", variants={}))
    for name in ("table_1", "tpmc"):
        axes = figures.draw(small)[name].axes
        assert not any(
            "paper" in label for ax in axes for label in ax.get_legend_handles_labels()[1]
        )
    judged = claims.judge(project, "msdj_tpcc", small).set_index("id")
    cells = [name for name in judged.index if name in CELLS]
    assert set(judged.verdict[cells]) == {claims.NOT_JUDGED}
    assert judged.verdict["mj-table1-order"] == claims.FITTED


def heights(line: Line2D) -> list[float]:
    """Of its points."""
    return [float(y) for y in np.asarray(line.get_ydata())]


def labels(figure: Figure) -> set[str]:
    """Of all panels."""
    return {label for ax in figure.axes for label in ax.get_legend_handles_labels()[1]}


def test_throughput_stands_beside_the_paper_s_only_where_it_is_judged() -> None:
    """At a twelfth write amplification is held against table 1, throughput is not."""
    for scale, is_judged in (("medium", False), ("paper", True)):
        drawn = figures.draw(made_up(parameters(scale=scale, variants={})))
        assert "paper, table 1" in labels(drawn["table_1"])
        assert any("paper" in label for label in labels(drawn["tpmc"])) == is_judged


def test_what_follows_from_a_rounded_gain_is_a_range() -> None:
    """340 TpmC are 2 % more: of 13,600 to 22,700."""
    drawn = figures.draw(made_up(parameters(variants={})))["tpmc"]
    [large] = [ax for ax in drawn.axes if ax.get_title() == "journal 5 GiB"]
    [frames] = [c for c in large.containers if "paper" in str(c.get_label())]
    ends = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in frames]
    dj, msdj = ends  # the paper has no OJ with this journal
    assert dj == pytest.approx((340 / 0.025, 340 / 0.015))
    assert msdj == pytest.approx((dj[0] + 340, dj[1] + 340))
    [small] = [ax for ax in drawn.axes if ax.get_title() == "journal 128 MiB"]
    [frames] = [c for c in small.containers if "paper" in str(c.get_label())]
    said = published.tpmc(NUMBERS)
    for bar, mode in zip(frames, ("oj_dwb", "dj", "msdj"), strict=True):
        assert bar.get_y() < said["small", mode] < bar.get_y() + bar.get_height()


@pytest.mark.parametrize(
    ("scale", "journal", "name"),
    [
        ("paper", "128 MiB", "small"),
        ("paper", "5 GiB", "large"),
        ("medium", "128 MiB", "small"),
        ("medium", "5 GiB", "large"),
        ("medium", "1 GiB", None),
    ],
)
def test_a_journal_has_the_numbers_of_its_own_size(
    scale: str, journal: str, name: str | None
) -> None:
    """Also where it is the only one."""
    found = made_up(parameters(scale=scale, journals=[journal], variants={}))
    [axes] = figures.draw(found)["table_1"].axes
    crosses = [line for line in axes.lines if "paper" in str(line.get_label())]
    said = [waf for (own, _), waf in published.waf(NUMBERS).items() if own == name]
    assert sorted(y for line in crosses for y in heights(line)) == sorted(said)


def apart(found: Results, seed: int, ratio: float) -> Results:
    """With commits, too; all that one seed has is so many times that of the others."""
    others = found.table.point[found.table.seed != seed]
    series = {}
    for point, own in found.series.items():
        more = dict.fromkeys(COMMITS, own["tpmc_per_interval"])
        factor = 1.0 if point in set(others) else ratio
        series[point] = {
            name: list(np.array(values) * (1.0 if name.endswith("_time_s") else factor))
            for name, values in {**own, **more, "commit_time_s": own["tpmc_time_s"]}.items()
        }
    return Results("emulated", found.table, series, lambda _: None)


def test_every_seed_is_drawn_below_their_mean() -> None:
    found = made_up(parameters(variants={}, seeds=[1, 2, 3]))
    drawn = figures.draw(apart(found, seed=3, ratio=1.3))
    panels = {
        ("page_writes", 1): 3,
        **dict.fromkeys([("waf_over_time", 0), ("waf_over_time", 1), ("tpmc", 2), ("tpmc", 3)], 3),
        **dict.fromkeys([("commits", panel) for panel in range(6)], 3),
        ("convergence", 0): 4,
        **dict.fromkeys([("convergence", 1), ("convergence", 2)], 2),
    }
    for (name, panel), settings in panels.items():
        lines = [x for x in drawn[name].axes[panel].lines if len(heights(x)) > 2]
        means = [x for x in lines if not str(x.get_label()).startswith("_")]
        assert (len(means), len(lines)) == (settings, 4 * settings), (name, panel)
        for mean in means:
            each = [x for x in lines if x not in means and x.get_color() == mean.get_color()]
            assert {x.get_linewidth() < mean.get_linewidth() for x in each} == {True}
    for name in ("waf_over_time", "tpmc", "commits", "page_writes", "convergence"):
        said = {text.get_text() for text in drawn[name].findobj(Text)}
        assert "mean of 3 runs, thin: each of them" in said, name
    [mean, *_] = [x for x in drawn["tpmc"].axes[2].lines if not str(x.get_label()).startswith("_")]
    one = next(iter(found.table[found.table["mode"] == "oj_dwb"].point))
    expected = np.array(found.series[one]["tpmc_per_interval"]) * 1.1
    assert heights(mean) == pytest.approx(list(expected))


COMMITS = ("commits_per_s", "commit_blocks", "commit_ms")


def test_a_single_seed_is_drawn_once(results: Results) -> None:
    drawn = figures.draw(results)
    assert all(len(ax.lines) == 3 for ax in drawn["waf_over_time"].axes)
    said = {text.get_text() for text in drawn["waf_over_time"].findobj(Text)}
    assert not any("runs" in text for text in said)


CELLS = {"mj-table1-oj", "mj-table1-dj", "mj-table1-msdj"}


def test_every_claim_is_judged_and_lack_of_points_is_no_error(
    results: Results, project: Project
) -> None:
    judged = claims.judge(project, "msdj_tpcc", results)
    assert claims.NOT_JUDGED not in set(judged.verdict)
    assert {row.figure for row in judged.itertuples()} <= set(figures.draw(results))
    for _, some in results.table.groupby("mode"):
        part = Results("simulated", some, results.series, lambda _: None)
        assert len(claims.judge(project, "msdj_tpcc", part)) == len(judged)
    bare = Results("simulated", results.table, {}, lambda _: None)
    over_time = claims.judge(project, "msdj_tpcc", bare).set_index("id")
    assert over_time.verdict["mj-figure3-lowest"] == claims.NOT_JUDGED
    assert over_time.verdict["mj-table1-order"] != claims.NOT_JUDGED


def test_claims_over_time_see_what_the_curves_do(project: Project) -> None:
    def verdicts(**late: float) -> dict[str, str]:
        found = made_up(parameters(variants={}), {**LATE, **late})
        return dict(claims.judge(project, "msdj_tpcc", found)[["id", "verdict"]].to_numpy())

    as_in_the_paper = verdicts()
    assert as_in_the_paper["mj-figure3-lowest"] == claims.FITTED
    assert as_in_the_paper["mj-figure3-oj-grows"] == claims.REPRODUCED
    assert as_in_the_paper["mj-section4-dj-grows"] == claims.REPRODUCED
    assert as_in_the_paper["mj-section5-dj-shrinks"] != claims.REPRODUCED
    worse = verdicts(msdj=2.5)
    assert worse["mj-figure3-lowest"] == claims.NOT_REPRODUCED
    assert worse["mj-table1-order"] == claims.NOT_REPRODUCED
    assert worse["mj-section4-dj-grows"] == claims.NOT_REPRODUCED


def test_curves_that_meet_are_seen_to_meet(project: Project) -> None:
    """MS-DJ programs more than DJ late in the run: the distance since the begin shrinks."""
    found = made_up(parameters(variants={}))
    series = {point: dict(own) for point, own in found.series.items()}
    for row in found.table[found.table["mode"] == "msdj"].itertuples():
        own = series[row.point]
        each = np.diff(own["waf_programmed_bytes"])
        each[40:] *= 1.15
        own["waf_programmed_bytes"] = [0.0, *np.cumsum(each)]
    met = Results("simulated", found.table, series, lambda _: None)
    judged = claims.judge(project, "msdj_tpcc", met).set_index("id").verdict
    assert judged["mj-section5-dj-shrinks"] == claims.REPRODUCED
    assert judged["mj-section4-dj-grows"] == claims.NOT_REPRODUCED


@pytest.mark.parametrize("tier", ["emulated", "hardware"])
@pytest.mark.parametrize("scale", sorted(grid.SCALES))
def test_a_scale_leaves_real_servers_what_they_need(tier: str, scale: str) -> None:
    """These tiers' sizes are small already: a drive still holds a warehouse, with its dies."""
    section = PARAMS[tier]
    given = grid.Parameters.model_validate({**section["parameters"], "scale": scale})
    for point in grid.points(given, ["pm953"], real.LEAST):
        v = grid.Cell.of(point)
        assert given.device is not None
        whole = parse_bytes(given.device)
        room = grid.room_bytes(v.warehouses, v.journal_bytes, v.redo_bytes)
        assert min(whole, room) <= v.device_bytes <= whole
        assert v.redo_bytes >= innodb.LEAST_REDO_BYTES
        assert v.page_cache_bytes >= 128 << 20
        if tier == "emulated":
            folder, bench = REPOSITORY / "hardware" / "profiles", section["bench"]
            profile = load_device(folder, bench["devices"]["pm953"], bench["overrides"])
            assert isinstance(profile, SsdProfile)
            scaling.scaled_to(profile, v.device_bytes)


def test_the_paper_s_size_runs_on_the_drive_that_its_profile_describes() -> None:
    """A device as large as the drive: there is no header before what a model stores."""
    p = parameters()
    with SimulatedBench(
        REPOSITORY / "hardware" / "profiles", PARAMS["simulated"]["bench"]["devices"], "server_2017"
    ) as bench:
        needed = max(EXPERIMENT.needed_bytes(p, x) for x in EXPERIMENT.points(p, bench))
        bench.reserve({"pm953": needed})
        with pytest.raises(TargetError, match="needs"):
            bench.reserve({"pm953": needed + 4096})


def test_repetitions_are_judged_one_by_one_and_together(project: Project) -> None:
    """A value that is in its range with one seed and out of it with another decides nothing."""
    found = made_up(parameters(variants={}, seeds=[1, 2, 3]))
    one, another = (found.table.repetition == n for n in (0, 1))
    wider = found.table.waf_ratio.where(~another | (found.table["mode"] != "msdj"), 1.85)
    unsure = Results("simulated", found.table.assign(waf_ratio=wider), found.series, lambda _: None)
    assert one.any()
    sure, doubtful = (
        claims.judge(project, "msdj_tpcc", results).set_index("id") for results in (found, unsure)
    )
    assert sure.verdict["mj-less-than-dj"] == claims.DIRECTION_ONLY
    assert sure.verdict["mj-less-than-dj-large"] == claims.DIRECTION_ONLY
    assert sure.verdict["mj-figure3-oj-grows"] == claims.REPRODUCED
    assert sure.lowest["mj-figure3-oj-grows"] == sure.highest["mj-figure3-oj-grows"]
    assert doubtful.verdict["mj-less-than-dj"] == claims.UNDECIDED
    assert doubtful.verdict["mj-less-than-dj-large"] == claims.UNDECIDED
    assert ALL - {"what_if"} <= set(figures.draw(found))
