"""The theory of write amplification against a slow, obvious simulation and against its limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.devices import waf_theory as theory
from harness.errors import BadParameter

SPARES = (0.07, 0.1, 0.28, 0.5)
Victim = Callable[[np.ndarray, np.random.Generator, int], int]


def first_written(_valid: np.ndarray, _random: np.random.Generator, turn: int) -> int:
    return turn  # the block that is cleaned is the next one that is written


def emptiest(valid: np.ndarray, _random: np.random.Generator, _turn: int) -> int:
    return int(valid.argmin())


def emptiest_of(d: int) -> Victim:
    def choose(valid: np.ndarray, random: np.random.Generator, _turn: int) -> int:
        drawn = random.integers(len(valid), size=d)
        return int(drawn[valid[drawn].argmin()])

    return choose


def addresses(
    random: np.random.Generator, logical: int, hot_data: float, hot_writes: float
) -> Iterator[int]:
    """Host writes without end: a share of them goes to the pages before `hot`."""
    hot = round(hot_data * logical)
    while True:
        is_hot = random.random(100_000) < hot_writes
        within = random.random(100_000)
        yield from (
            np.where(is_hot, within * hot, hot + within * (logical - hot)).astype(int).tolist()
        )


def simulate(
    blocks: int,
    b: int,
    spare: float,
    choose: Victim,
    *,
    turns: int = 24,
    hot_data: float = 0.5,
    hot_writes: float = 0.5,
) -> tuple[float, float]:
    """WAF and its standard error (from 12 batches), after as many turns of warming up.

    One turn is as many cleanings as there are blocks. Copies go to the erased victim itself, host
    writes fill it up.
    """
    random = np.random.default_rng(20)
    logical = round(blocks * b * (1 - spare))
    written = addresses(random, logical, hot_data, hot_writes)
    where = list(random.permutation(blocks * b)[:logical] // b)  # logical page -> block
    content = [[page for page, block in enumerate(where) if block == k] for k in range(blocks)]
    valid = np.array([len(pages) for pages in content])
    host = []
    for cleaning in range(2 * turns * blocks):
        victim = choose(valid, random, cleaning % blocks)
        # A page that was written twice while its block was open stands there twice, but lives once.
        survivors = {page for page in content[victim] if where[page] == victim}
        filled = list(survivors)
        while len(filled) < b:
            page = next(written)
            valid[where[page]] -= 1
            where[page] = victim
            valid[victim] += 1
            filled.append(page)
        content[victim] = filled
        host.append(b - len(survivors))
    batches = b / np.array(host[turns * blocks :]).reshape(12, -1).mean(axis=1)
    return float(batches.mean()), float(batches.std(ddof=1) / math.sqrt(12))


def assert_agrees(
    simulated: tuple[float, float], of_spare: Callable[[float], float], spare: float, blocks: int
) -> None:
    """Within four standard errors, or what two blocks more or less of spare would make out."""
    waf, error = simulated
    low, high = of_spare(spare + 2 / blocks), of_spare(spare - 2 / blocks)
    assert low - 4 * error <= waf <= high + 4 * error
    assert high - low < 0.12 * waf  # else the simulation is too small to say anything


BLOCKS, PAGES = 500, 8


@pytest.mark.parametrize("spare", [0.15, 0.3])
def test_fifo_agrees_with_simulation(spare: float) -> None:
    assert_agrees(simulate(BLOCKS, PAGES, spare, first_written), theory.fifo, spare, BLOCKS)


@pytest.mark.parametrize("spare", [0.15, 0.3])
def test_greedy_agrees_with_simulation(spare: float) -> None:
    simulated = simulate(BLOCKS, PAGES, spare, emptiest)
    assert_agrees(simulated, lambda s: theory.greedy(s, PAGES), spare, BLOCKS)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_d_choices_agrees_with_simulation(d: int) -> None:
    simulated = simulate(BLOCKS, PAGES, 0.2, emptiest_of(d))
    assert_agrees(simulated, lambda s: theory.d_choices(s, PAGES, d), 0.2, BLOCKS)


def test_mixed_hot_and_cold_agrees_with_simulation() -> None:
    simulated = simulate(BLOCKS, PAGES, 0.2, first_written, hot_data=0.2, hot_writes=0.8)
    assert_agrees(simulated, lambda s: theory.hot_cold_mixed(s, 0.2, 0.8), 0.2, BLOCKS)


def test_separated_hot_and_cold_agrees_with_two_simulated_drives() -> None:
    """Each stream is simulated with its own part of the spare blocks."""
    spare, f, r = 0.2, 0.2, 0.8
    best = theory.hot_cold_separated(spare, f, r)
    hot_spare = best.hot_spare_share * spare
    hot_blocks = round(BLOCKS * (hot_spare + f * (1 - spare)))
    cold_blocks = BLOCKS - hot_blocks
    sf_hot = 1 - f * (1 - spare) * BLOCKS / hot_blocks
    sf_cold = 1 - (1 - f) * (1 - spare) * BLOCKS / cold_blocks
    hot = simulate(hot_blocks, 4 * PAGES, sf_hot, first_written, turns=12)
    cold = simulate(cold_blocks, PAGES, sf_cold, first_written)
    waf = r * hot[0] + (1 - r) * cold[0]
    error = math.hypot(r * hot[1], (1 - r) * cold[1])
    assert_agrees((waf, error), lambda s: theory.hot_cold_separated(s, f, r).waf, spare, BLOCKS)


def test_the_simulation_tells_the_policies_apart() -> None:
    """The comparison can fail: each policy is outside the band of the next one."""
    spare, bands = 0.1, {}
    for name, of_spare in (
        ("greedy", lambda s: theory.greedy(s, PAGES)),
        ("fifo", theory.fifo),
        ("random", lambda s: theory.d_choices(s, PAGES, 1)),
    ):
        bands[name] = of_spare(spare + 2 / BLOCKS), of_spare(spare - 2 / BLOCKS)
    assert bands["greedy"][1] < bands["fifo"][0]
    assert bands["fifo"][1] < bands["random"][0]


def lambert_w(z: float) -> float:
    """Main branch on (-1/e, 0), by Newton's method."""
    w = -0.5
    for _ in range(200):
        w = max(w - (w * math.exp(w) - z) / (math.exp(w) * (w + 1)), -1 + 1e-12)
    return w


@pytest.mark.parametrize("spare", SPARES)
def test_fifo_is_the_lambert_w_formula(spare: float) -> None:
    a = 1 / (1 - spare)
    formula = a / (a + lambert_w(-a * math.exp(-a)))
    assert theory.fifo(spare) == pytest.approx(formula, rel=1e-9)


@pytest.mark.parametrize("spare", SPARES)
def test_greedy_is_close_to_desnoyers_approximation(spare: float) -> None:
    """Desnoyers (2014): A = b / (b - (X0 - 1)), which interpolates between whole valid pages."""
    b, a = 64, 1 / (1 - spare)
    k = (1 + 1 / (2 * b)) * a
    x0 = 1 / 2 - b / a * lambert_w(-k * math.exp(-k))
    assert theory.greedy(spare, b) == pytest.approx(b / (b - (x0 - 1)), rel=5e-3)


@pytest.mark.parametrize("spare", SPARES)
def test_random_victims_hold_the_average(spare: float) -> None:
    for b in (1, 4, 64):
        assert theory.d_choices(spare, b, 1) == pytest.approx(1 / spare, rel=1e-9)


@pytest.mark.parametrize("spare", SPARES)
def test_many_choices_are_greedy(spare: float) -> None:
    for b in (4, 32, 256):
        assert theory.d_choices(spare, b, 1e6) == pytest.approx(theory.greedy(spare, b), rel=1e-3)


@pytest.mark.parametrize("spare", SPARES)
def test_greedy_with_large_blocks_is_fifo(spare: float) -> None:
    assert theory.greedy(spare, 200_000) == pytest.approx(theory.fifo(spare), rel=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 0.99), st.integers(1, 200))
def test_orders(spare: float, b: int) -> None:
    greedy, fifo = theory.greedy(spare, b), theory.fifo(spare)
    assert 1 <= greedy <= fifo * (1 + 1e-9)
    assert greedy <= theory.d_choices(spare, b, 8) * (1 + 1e-9)
    assert theory.d_choices(spare, b, 8) <= theory.d_choices(spare, b, 2) * (1 + 1e-9)
    assert theory.greedy(min(0.995, spare + 0.005), b) <= greedy * (1 + 1e-9)


def test_all_spare_costs_nothing() -> None:
    for waf in (
        theory.fifo(0.999),
        theory.greedy(0.999, 64),
        theory.d_choices(0.999, 64, 10),
        theory.hot_cold_mixed(0.999, 0.2, 0.8),
        theory.hot_cold_separated(0.999, 0.2, 0.8).waf,
    ):
        assert waf == pytest.approx(1, abs=2e-3)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.03, 0.9), st.floats(0.05, 0.95), st.floats(0.05, 0.95))
def test_hot_and_cold(spare: float, f: float, r: float) -> None:
    """Separation never costs; no other split of the spare pages is better."""
    best = theory.hot_cold_separated(spare, f, r)
    assert best.waf <= theory.fifo(spare) * (1 + 1e-6)  # the split in proportion to data
    assert theory.fifo(spare) <= theory.hot_cold_mixed(spare, f, r) * (1 + 1e-6)
    for g in (0.05, 0.3, 0.5, 0.7, 0.95):
        given_split = theory.hot_cold_separated(spare, f, r, hot_spare_share=g)
        assert best.waf <= given_split.waf * (1 + 1e-6)


def test_hot_and_cold_alike_are_uniform() -> None:
    uniform = theory.fifo(0.1)
    assert theory.hot_cold_mixed(0.1, 0.3, 0.3) == pytest.approx(uniform, rel=1e-9)
    split = theory.hot_cold_separated(0.1, 0.3, 0.3)
    assert split.waf == pytest.approx(uniform, rel=1e-6)
    assert split.hot_spare_share == pytest.approx(0.3, abs=1e-3)


def test_separation_with_greedy_cleaning() -> None:
    finite = theory.hot_cold_separated(0.1, 0.2, 0.8, cleaning=lambda s: theory.greedy(s, 64))
    assert 1 < finite.waf < theory.hot_cold_separated(0.1, 0.2, 0.8).waf


@pytest.mark.parametrize("spare", [-0.1, 0.0, 1.0, math.nan])
def test_impossible_spare_factors(spare: float) -> None:
    for function in (
        theory.fifo,
        lambda s: theory.greedy(s, 8),
        lambda s: theory.d_choices(s, 8, 2),
    ):
        with pytest.raises(BadParameter, match="spare_factor"):
            function(spare)


def test_other_impossible_parameters() -> None:
    with pytest.raises(BadParameter, match="pages_per_block"):
        theory.greedy(0.1, 0)
    with pytest.raises(BadParameter, match="at least 1 block"):
        theory.d_choices(0.1, 8, 0.5)
    with pytest.raises(BadParameter, match="hot_write_share"):
        theory.hot_cold_separated(0.1, 0.2, 1.0)
