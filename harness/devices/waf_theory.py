"""Write amplification in theory: what garbage collection costs, without simulating it.

All functions assume a page-mapped drive in its steady state: T physical pages in blocks of b, U of
them logical, spare factor Sf = 1 - U/T (so that rho = U/T = 1 - Sf), every logical page written at
least once and none trimmed, host writes of single pages whose addresses are drawn independently.
Write amplification (WAF) = page programs / host page writes. The limit is that of many blocks: an
actual drive of N blocks differs by about what one block more or less of spare makes out, 1/N of T.

One block is open at a time: collection erases a victim, its v valid pages are written first, and
host writes fill the other b - v, so that a victim yields b - v host writes: WAF = b / (b - E[v]).
For uniform writes a frontier of its own for copies would cost the same, since a copy dies no later
and no sooner than a new page. Whether hot and cold pages share the open block is said below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from harness.errors import BadParameter

_BISECTIONS = 200  # ends earlier, when the interval has no number left inside


@dataclass(frozen=True)
class Separated:
    """WAF of two streams with blocks of their own."""

    waf: float
    hot_waf: float
    cold_waf: float
    hot_spare_share: float  # the part of the spare pages that the hot stream has


def fifo(spare_factor: float) -> float:
    """WAF of cleaning blocks in the order in which they were written, uniform random writes.

    A block is cleaned T page programs after it was written, in which the host wrote T/A pages. A
    page outlives them with probability x = (1 - 1/U)^(T/A) -> exp(-1/(rho A)), and A = 1/(1 - x):

        x = exp(-(1 - x)/rho),    or    A = a / (a + W(-a exp(-a))) with a = 1/rho,

    W Lambert's function (main branch). It is also the limit of greedy cleaning for large blocks.
    P. Desnoyers, Analytic Models of SSD Write Performance, ACM Trans. Storage 10(2), 2014 (LRU
    cleaning); L. Xiang and B. Kurkoski, An Improved Analytic Expression for Write Amplification in
    NAND Flash, ICNC 2012; X.-Y. Hu et al., Write Amplification Analysis in Flash-Based Solid State
    Drives, SYSTOR 2009.

    Raises BadParameter unless 0 < spare_factor < 1.
    """
    rho = 1 - _checked_spare(spare_factor)
    # In y = 1/A = 1 - x. At its upper end, y = 1, 1 - exp(-y/rho) < y; just above 0 it is greater.
    y = _bisect(lambda y: -math.expm1(-y / rho) - y, 1e-300, 1.0)
    return 1 / y


def greedy(spare_factor: float, pages_per_block: int) -> float:
    """WAF of cleaning a block with the fewest valid pages, uniform random writes, blocks of any b.

    Let blocks be cleaned c times per host write, and let u_i U be the number of blocks with i valid
    pages. A host write hits such a block with probability i u_i. No block lies below the level k at
    which victims are taken, or is taken above it, so each level above passes the same flow:

        i u_i = c                              for k < i <= b
        c (b - k) + k u_k = 1                  valid pages: sum i u_i U = U
        c (1/(k+1) + ... + 1/b) + u_k = 1/(b rho)    blocks: sum u_i U = T/b

    Two linear equations in c and u_k for every k; the right k is the one with 0 <= k u_k <= c
    (blocks that fall from k to k - 1 are taken at once). WAF = c b. This is the limit d -> infinity
    of `d_choices`: B. Van Houdt, A Mean Field Model for a Class of Garbage Collection Algorithms in
    Flash-Based Solid State Drives, SIGMETRICS 2013. Greedy's first analysis: W. Bux and I. Iliadis,
    Performance of Greedy Garbage Collection in Flash-Based Solid-State Drives, Performance
    Evaluation 67(11), 2010.

    Raises BadParameter unless 0 < spare_factor < 1 and pages_per_block >= 1.
    """
    rho = 1 - _checked_spare(spare_factor)
    b = _checked_pages(pages_per_block)
    blocks = 1 / (b * rho)
    harmonic = 0.0  # 1/(k+1) + ... + 1/b
    for k in range(b, 0, -1):
        # From the two equations: c (b - k - k * harmonic) = 1 - k * blocks.
        slope = b - k - k * harmonic
        constant = 1 - k * blocks
        if slope:
            c = constant / slope
            flow_below = 1 - c * (b - k)
            if c > 0 and -1e-12 <= flow_below <= c * (1 + 1e-12):
                return max(1.0, c * b)
        harmonic += 1 / k
    return 1.0  # victims are empty before anybody looks for one


def d_choices(spare_factor: float, pages_per_block: int, d: float) -> float:
    """WAF of cleaning the emptiest of `d` blocks drawn at random, uniform random writes.

    The fixed point of Van Houdt's mean field (SIGMETRICS 2013, see `greedy`). With S_i the share of
    blocks that have at least i valid pages, a victim has at least i with probability S_i^d. Per
    cleaning, the blocks that fall from level i to i - 1 balance those taken below i:

        i t (S_i - S_(i+1)) = 1 - S_i^d,    S_(b+1) = 0,    t = (b - E[v]) / (b rho)

    Given t, S_b, S_(b-1), ... follow one by one; t is the one with S_1 + ... + S_b = b rho (valid
    pages). WAF = b / (b - E[v]) = 1 / (t rho). For d = 1 that is 1/(1 - rho), for d -> infinity
    `greedy`.

    Raises BadParameter unless 0 < spare_factor < 1, pages_per_block >= 1 and d >= 1.
    """
    rho = 1 - _checked_spare(spare_factor)
    b = _checked_pages(pages_per_block)
    if not d >= 1:
        raise BadParameter(f"d = {d}: the emptiest of at least 1 block")
    t = _bisect(lambda t: sum(_at_least(t, b, d)) - b * rho, 0.0, 1 / rho)
    return 1 / (t * rho)


def hot_cold_separated(
    spare_factor: float,
    hot_data_share: float,
    hot_write_share: float,
    *,
    hot_spare_share: float | None = None,
    cleaning: Callable[[float], float] = fifo,
) -> Separated:
    """WAF when hot and cold pages have blocks of their own (two streams, perfectly told apart).

    A share f of the logical pages gets a share r of the writes; each stream is a drive of its own
    with uniform writes. With a share g of the spare pages for the hot one, in units of T:

        Sf_hot = g Sf / (g Sf + f rho),    A = r A(Sf_hot) + (1 - r) A(Sf_cold).

    `hot_spare_share` is g; without it, g is the one that minimises A. `cleaning` is A(Sf) of a
    single stream: `fifo`, or for example `lambda s: greedy(s, 256)`. P. Desnoyers (2014, see
    `fifo`), section on hot and cold data; R. Stoica and A. Ailamaki, Improving Flash Write
    Performance by Using Update Frequency, PVLDB 6(9), 2013.

    Raises BadParameter unless all shares lie strictly between 0 and 1.
    """
    spare = _checked_spare(spare_factor)
    f = _checked_share("hot_data_share", hot_data_share)
    r = _checked_share("hot_write_share", hot_write_share)

    def split(g: float) -> Separated:
        hot = _stream_waf(g * spare, f * (1 - spare), cleaning)
        cold = _stream_waf((1 - g) * spare, (1 - f) * (1 - spare), cleaning)
        return Separated(r * hot + (1 - r) * cold, hot, cold, g)

    if hot_spare_share is not None:
        return split(_checked_share("hot_spare_share", hot_spare_share))
    return split(_minimum(lambda g: split(g).waf))


def hot_cold_mixed(spare_factor: float, hot_data_share: float, hot_write_share: float) -> float:
    """WAF of FIFO cleaning when hot and cold pages share all blocks (one stream).

    The host writes a given hot page with rate r/(f U). Between a block's writing and its cleaning
    are T/A host writes, which a copy outlives with probability q_hot = exp(-r / (f rho A)), q_cold
    likewise. Of the T programs of one turn, those of hot pages are the new ones and the survivors
    of the last turn, (T/A) r / (1 - q_hot); the two kinds add up to T:

        A = r / (1 - q_hot) + (1 - r) / (1 - q_cold)

    P. Desnoyers (2014, see `fifo`), LRU cleaning of non-uniform traffic. Greedy cleaning of mixed
    blocks has no closed form: B. Van Houdt, Performance of Garbage Collection Algorithms for
    Flash-Based Solid State Drives with Hot/Cold Data, Performance Evaluation 70(10), 2013.

    Raises BadParameter unless all three lie strictly between 0 and 1.
    """
    rho = 1 - _checked_spare(spare_factor)
    f = _checked_share("hot_data_share", hot_data_share)
    r = _checked_share("hot_write_share", hot_write_share)

    def surplus(y: float) -> float:
        # y (r / (1 - q_hot) + (1 - r) / (1 - q_cold)) - 1 with y = 1/A: rises from rho - 1 < 0.
        hot = r * y / -math.expm1(-r * y / (f * rho))
        cold = (1 - r) * y / -math.expm1(-(1 - r) * y / ((1 - f) * rho))
        return hot + cold - 1

    return 1 / _bisect(lambda y: -surplus(y), 1e-12, 1.0)


def _stream_waf(spare: float, logical: float, cleaning: Callable[[float], float]) -> float:
    return cleaning(spare / (spare + logical))


def _at_least(t: float, b: int, d: float) -> list[float]:
    """S_b, ..., S_1 of `d_choices` for a given t."""
    above = 0.0
    shares = []
    for i in range(b, 0, -1):
        above = _next_share(i * t, above, d)
        shares.append(above)
    return shares


def _next_share(a: float, above: float, d: float) -> float:
    """The s in [above, 1] with a (s - above) + s^d = 1.

    Newton's method from above: the left side is convex and rising, so every step stays there.
    """
    s = 1.0
    while True:
        power = s ** (d - 1)
        step = (a * (s - above) + s * power - 1) / (a + d * power)
        if step <= 1e-15:
            return s
        s -= step


def _bisect(falling: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a function that is positive below it and negative above it."""
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _minimum(function: Callable[[float], float]) -> float:
    """Where a function on (0, 1) with a single dip is least: golden section, to 1e-7."""
    golden = (math.sqrt(5) - 1) / 2
    low, high = 1e-6, 1 - 1e-6
    while high - low > 1e-7:
        left, right = high - golden * (high - low), low + golden * (high - low)
        if function(left) < function(right):
            high = right
        else:
            low = left
    return (low + high) / 2


def _checked_spare(spare_factor: float) -> float:
    return _checked_share("spare_factor", spare_factor)


def _checked_share(name: str, share: float) -> float:
    if not 0 < share < 1:
        raise BadParameter(f"{name} = {share}: give a ratio between 0 and 1, both excluded")
    return share


def _checked_pages(pages_per_block: int) -> int:
    if pages_per_block < 1:
        raise BadParameter(f"pages_per_block = {pages_per_block}: a block has at least 1 page")
    return pages_per_block
