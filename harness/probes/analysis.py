"""What a trace of the probe `block_io` says, by DuckDB over the Parquet file.

Every function takes the trace's path and gives a DataFrame; times are seconds since the first
issue. Requests whose latency is not known count where it is not needed (counts, bytes, lengths).
A request is in flight from its issue up to, and not including, its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import duckdb
import pandas as pd
import pyarrow as pa

from harness.errors import TraceError
from harness.probes.counters import SECTOR_BYTES

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
_NEEDED: Final = {"issued_ns", "latency_ns", "completed_ns", "lba", "sectors", "op"}


def throughput(trace: Path, bin_s: float = 1.0) -> pd.DataFrame:
    """Requests ended per bin: time_s (the bin's begin), op, ios_per_s, bytes_per_s."""
    return query(
        trace,
        f"""
        SELECT (completed_ns - begin_ns) // {_ns(bin_s)} * {bin_s} AS time_s, op,
               count(*) / {bin_s} AS ios_per_s,
               sum(sectors) * {SECTOR_BYTES} / {bin_s} AS bytes_per_s
        FROM trace, span WHERE completed_ns IS NOT NULL GROUP BY ALL ORDER BY time_s, op
        """,
    )


def latencies(trace: Path) -> pd.DataFrame:
    """Per operation: op, requests, unknown, bytes; mean_us, p50_us to p999_us, max_us.

    A quantile is the least latency that at least this share of the requests do not exceed.
    """
    quantiles = ", ".join(
        f"quantile_disc(latency_ns, {q}) / 1e3 AS {name}_us" for name, q in QUANTILES.items()
    )
    return query(
        trace,
        f"""
        SELECT op, count(*) AS requests, count(*) - count(latency_ns) AS unknown,
               sum(sectors)::BIGINT * {SECTOR_BYTES} AS bytes, avg(latency_ns) / 1e3 AS mean_us,
               {quantiles}, max(latency_ns) / 1e3 AS max_us
        FROM trace GROUP BY op ORDER BY op
        """,
    )


def queue_depth(trace: Path, bin_s: float = 1.0) -> pd.DataFrame:
    """Requests in flight: time_s (the bin's begin), mean_depth (over the bin's time), max_depth."""
    return query(
        trace,
        f"""
        WITH cuts AS (
            SELECT unnest(generate_series(begin_ns, end_ns, {_ns(bin_s)})) AS moment, 0 AS change
            FROM span),
        changes AS (SELECT moment, change FROM steps UNION ALL FROM cuts),
        levels AS (
            SELECT moment, sum(change) OVER (ORDER BY moment) AS depth,
                   coalesce(lead(moment) OVER (ORDER BY moment), moment) - moment AS lasts
            FROM (SELECT moment, sum(change) AS change FROM changes GROUP BY moment)),
        binned AS (
            SELECT (moment - begin_ns) // {_ns(bin_s)} AS bin, depth, lasts FROM levels, span)
        SELECT bin * {bin_s} AS time_s, sum(depth * lasts) / sum(lasts) AS mean_depth,
               max(depth)::BIGINT AS max_depth
        FROM binned GROUP BY bin HAVING sum(lasts) > 0 ORDER BY bin
        """,
    )


def utilisation(trace: Path) -> pd.DataFrame:
    """One row: span_s (first issue to last end), busy_s (something in flight), utilisation_ratio,
    mean_depth, max_depth.
    """
    return query(
        trace,
        """
        WITH levels AS (
            SELECT sum(change) OVER (ORDER BY moment) AS depth,
                   lead(moment) OVER (ORDER BY moment) - moment AS lasts
            FROM (SELECT moment, sum(change) AS change FROM steps GROUP BY moment))
        SELECT sum(lasts) / 1e9 AS span_s,
               coalesce(sum(lasts) FILTER (WHERE depth > 0), 0) / 1e9 AS busy_s,
               coalesce(sum(lasts) FILTER (WHERE depth > 0), 0) / sum(lasts) AS utilisation_ratio,
               sum(depth * lasts) / sum(lasts) AS mean_depth, max(depth)::BIGINT AS max_depth
        FROM levels
        """,
    )


def within(trace: Path, spans: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """What the device did in each of some spans of time (boot time in ns, half-open; may overlap).

    One row per span: begin_ns, end_ns, utilisation_ratio (the share of it in which something was in
    flight), and of the requests that ended in it read_ios, write_ios, read_bytes, write_bytes.
    """
    rows = [_within(trace, begin, end) for begin, end in spans]
    return pd.concat(rows, ignore_index=True)


def _within(trace: Path, begin_ns: int, end_ns: int) -> pd.DataFrame:
    begin, end = int(begin_ns), int(end_ns)
    counts = ", ".join(
        f"count(*) FILTER (WHERE op = '{op}') AS {op}_ios, "
        f"coalesce(sum(sectors) FILTER (WHERE op = '{op}'), 0)::BIGINT * {SECTOR_BYTES} "
        f"AS {op}_bytes"
        for op in ("read", "write")
    )
    return query(
        trace,
        f"""
        WITH levels AS (
            SELECT moment, sum(change) OVER (ORDER BY moment) AS depth,
                   lead(moment) OVER (ORDER BY moment) AS until
            FROM (SELECT moment, sum(change) AS change FROM steps GROUP BY moment)),
        busy AS (
            SELECT coalesce(sum(least(until, {end}) - greatest(moment, {begin})), 0) AS busy_ns
            FROM levels WHERE depth > 0 AND until > {begin} AND moment < {end}),
        ended AS (
            SELECT {counts} FROM trace WHERE completed_ns >= {begin} AND completed_ns < {end})
        SELECT {begin} AS begin_ns, {end} AS end_ns,
               busy_ns / greatest({end - begin}, 1) AS utilisation_ratio, ended.*
        FROM busy, ended
        """,
    )


def seek_distances(trace: Path) -> pd.DataFrame:
    """Reads and writes in order of issue: how far each begins from where the one before ended.

    Columns: op, from_sectors, to_sectors (half-open; powers of two of the distance, whatever its
    direction), requests. The first request, and those of unknown issue, have no distance.
    """
    return query(
        trace,
        """
        WITH moves AS (
            SELECT op, abs(lba - lag(lba + sectors) OVER (ORDER BY issued_ns, lba)) AS distance
            FROM trace WHERE op IN ('read', 'write') AND issued_ns IS NOT NULL),
        binned AS (
            SELECT op, CASE distance WHEN 0 THEN 0
                       ELSE (1::BIGINT << floor(log2(distance))::INT) END AS low
            FROM moves WHERE distance IS NOT NULL)
        SELECT op, low AS from_sectors, CASE low WHEN 0 THEN 1 ELSE 2 * low END AS to_sectors,
               count(*) AS requests
        FROM binned GROUP BY op, low ORDER BY op, low
        """,
    )


def discard_lengths(trace: Path) -> pd.DataFrame:
    """Discards by length: from_bytes, to_bytes (half-open, powers of two), discards, bytes."""
    return query(
        trace,
        f"""
        WITH lengths AS (
            SELECT sectors, (1::BIGINT << floor(log2(sectors))::INT) * {SECTOR_BYTES} AS low
            FROM trace WHERE op = 'discard')
        SELECT low AS from_bytes, 2 * low AS to_bytes, count(*) AS discards,
               sum(sectors)::BIGINT * {SECTOR_BYTES} AS bytes
        FROM lengths GROUP BY low ORDER BY low
        """,
    )


def reads_beside_discards(trace: Path) -> pd.DataFrame:
    """Reads during which a discard was in flight for any time, and the others.

    Columns: beside_discard, reads, mean_us, p50_us, p99_us, max_us.
    """
    return query(
        trace,
        """
        WITH discards AS (
            SELECT issued_ns AS begins, completed_ns AS ends FROM trace
            WHERE op = 'discard' AND issued_ns IS NOT NULL AND completed_ns IS NOT NULL),
        until AS (  -- ends of all discards up to here: the last that begins before a read decides
            SELECT begins, max(ends) OVER (ORDER BY begins) AS ends FROM discards),
        reads AS (
            SELECT issued_ns, completed_ns, latency_ns FROM trace
            WHERE op = 'read' AND latency_ns IS NOT NULL),
        beside AS (
            SELECT r.latency_ns, coalesce(u.ends > r.issued_ns, false) AS beside_discard
            FROM reads r
            ASOF LEFT JOIN (SELECT begins, max(ends) AS ends FROM until GROUP BY begins) u
            ON r.completed_ns > u.begins)
        SELECT beside_discard, count(*) AS reads, avg(latency_ns) / 1e3 AS mean_us,
               quantile_disc(latency_ns, 0.5) / 1e3 AS p50_us,
               quantile_disc(latency_ns, 0.99) / 1e3 AS p99_us, max(latency_ns) / 1e3 AS max_us
        FROM beside GROUP BY beside_discard ORDER BY beside_discard
        """,
    )


def addresses(trace: Path, points: int = 200_000) -> pd.DataFrame:
    """Where and when: time_s, lba, sectors, op, in order of issue; an even share if there are more.

    Flushes have no place and are left out.
    """
    return query(
        trace,
        f"""
        WITH placed AS (
            SELECT (issued_ns - begin_ns) / 1e9 AS time_s, lba, sectors, op,
                   row_number() OVER (ORDER BY issued_ns, lba) - 1 AS number, count(*) OVER () AS n
            FROM trace, span WHERE op <> 'flush' AND issued_ns IS NOT NULL)
        SELECT time_s, lba, sectors, op FROM placed
        WHERE number % greatest(1, ceil(n / {int(points)})::BIGINT) = 0 ORDER BY number
        """,
    )


TABLES: Final = {
    "latencies": latencies,
    "utilisation": utilisation,
    "seek distances": seek_distances,
    "discard lengths": discard_lengths,
    "reads beside discards": reads_beside_discards,
}
"""What there is to say of any trace, in the order in which it is shown."""


def _ns(seconds: float) -> int:
    return max(round(seconds * 1e9), 1)


def query(trace: Path, sql: str, tables: Mapping[str, pa.Table] | None = None) -> pd.DataFrame:
    """What SQL says of a trace: of the views `trace`, `span` (first issue, last end), `steps` (+1
    and -1 in flight), and of further tables by name. Raises TraceError.
    """
    with duckdb.connect() as connection:
        try:
            rows = connection.read_parquet(str(trace))
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise TraceError(str(trace), 1, f"cannot be read as Parquet: {reason}") from None
        missing = _NEEDED - set(rows.columns)
        if missing:
            names = ", ".join(sorted(missing))
            raise TraceError(str(trace), 1, f"has no column {names}; record it with block_io")
        rows.create_view("recorded")
        connection.execute(
            """
            CREATE VIEW trace AS SELECT * REPLACE (op::VARCHAR AS op) FROM recorded;
            CREATE VIEW span AS SELECT min(issued_ns) AS begin_ns, max(completed_ns) AS end_ns
                FROM trace WHERE latency_ns IS NOT NULL;
            CREATE VIEW steps AS
                SELECT issued_ns AS moment, 1 AS change FROM trace WHERE latency_ns IS NOT NULL
                UNION ALL
                SELECT completed_ns, -1 FROM trace WHERE latency_ns IS NOT NULL;
            """
        )
        for name, table in (tables or {}).items():
            connection.register(name, table)
        return connection.execute(sql).df()
