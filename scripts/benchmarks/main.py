"""Run the rows and print the table; `--write` keeps it in docs/performance.md."""

import argparse
import os
import platform
import statistics
from dataclasses import dataclass
from pathlib import Path

import rows

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


@dataclass(frozen=True)
class Row:
    """A figure, its goal, and what other agents showed on one such machine.

    `ratio` compares with the floor of the same run; `limit` is absolute.
    `anchors`: floor, Codex, pi, Claude Code, opencode.
    """

    what: str
    unit: str
    figures: list
    floor: list | None = None
    ratio: float | None = None
    limit: float | None = None
    anchors: str = ""

    @property
    def median(self):
        return statistics.median(self.figures)

    @property
    def goal(self):
        if self.ratio is not None:
            return f"≤ {self.ratio:g} x floor"
        return f"≤ {self.limit:g}" if self.limit is not None else ""

    @property
    def is_met(self):
        if self.ratio is not None:
            return self.median <= self.ratio * statistics.median(self.floor)
        return self.limit is None or self.median <= self.limit

    def cells(self):
        spread = f"{min(self.figures):.3g}-{max(self.figures):.3g}"
        floor = ratio = ""
        if self.floor:
            middle = statistics.median(self.floor)
            floor, ratio = (
                f"{middle:.3g}",
                f"{self.median / middle:.2f}" if middle else "",
            )
        met = "" if self.goal == "" else "yes" if self.is_met else "**no**"
        return [
            self.what,
            self.unit,
            f"{self.median:.3g}",
            spread,
            floor,
            ratio,
            self.goal,
            met,
            self.anchors,
        ]


def column(figures, number):
    return [figure[number] for figure in figures]


def start(bench):
    ours, floor = rows.initialize(bench)
    yield Row(
        "spawn to `initialize` result",
        "ms",
        ours,
        floor,
        ratio=2.0,
        anchors="67 / 136 / 333 / 347 / 1447",
    )
    ours, floor = rows.first_delta(bench)
    yield Row(
        "spawn to first delta of the first turn",
        "ms",
        ours,
        floor,
        ratio=3.5,
        anchors="69 / 257 / 383 / 442 / 3717",
    )


def turn(bench):
    ours, floor = rows.warm_turn(bench)
    yield Row(
        "warm turn, 20 deltas",
        "ms",
        ours,
        floor,
        limit=6,
        anchors="1.8 / 53 / 9.5 / 36 / 192",
    )
    ours, floor = rows.bash_call(bench)
    yield Row(
        "one bash call, 20 in a turn (floor: `bash -lc true`)",
        "ms",
        ours,
        floor,
        limit=8,
        anchors="3.9 / 59 / 9.9 / 30 / 147",
    )


def stream(bench):
    ours, floor = rows.delta_lag(bench)
    for number, name, limit, anchors in (
        (0, "p50", 0.7, "0.4 / 0.7 / 0.7 / 0.9 / 2.9"),
        (1, "p95", 1.5, "0.4 / 0.9 / 1.1 / 1.6 / 12.5"),
    ):
        yield Row(
            f"delta lag at 100/s, {name}",
            "ms",
            column(ours, number),
            column(floor, number),
            limit=limit,
            anchors=anchors,
        )
    ours, floor = rows.flood(bench)
    for number, name, unit, limit, anchors in (
        (
            0,
            "20,000 deltas at full speed",
            "s",
            0.5,
            "0.20 / 0.83 / 0.56 / 0.79 / 2.59",
        ),
        (1, "the same, processor time", "s", 0.5, "0.17 / 1.17 / 0.61 / 1.06 / 3.69"),
        (2, "resident memory afterwards", "MB", 60, "22 / 173 / 218 / 320 / 971"),
    ):
        yield Row(
            name,
            unit,
            column(ours, number),
            column(floor, number),
            limit=limit,
            anchors=anchors,
        )
    yield Row("each further idle session", "MB", rows.idle_session(bench)[0], limit=0.2)


def cancel(bench):
    yield Row(
        "cancel in mid-stream, turn over",
        "ms",
        rows.cancel_stream(bench)[0],
        limit=5,
        anchors="0.5 / 8.5 / 7.7 / 18.5 / 14.6",
    )
    figures = rows.cancel_tool(bench)[0]
    for number, name, unit, limit, anchors in (
        (
            0,
            "cancel a hanging tool, turn over",
            "ms",
            10,
            "2.7 / 11.6 / 5.6 / 27 / 9.8",
        ),
        (1, "the same, tool gone", "ms", 20, "7.4 / 6005 / 7.3 / 32 / 52"),
        (2, "the same, processes left", "", 0, "0 / 1 / 0 / 0 / 0"),
    ):
        yield Row(name, unit, column(figures, number), limit=limit, anchors=anchors)


def exec_(bench):
    ours, floor = rows.one_shot(bench)
    yield Row(
        "one-shot `exec`, no daemon (floor: http)",
        "ms",
        column(ours, 0),
        column(floor, 0),
        ratio=1.6,
        anchors="131 / 241 / 394 / 510 / 3712",
    )
    yield Row(
        "its peak memory",
        "MB",
        column(ours, 1),
        column(floor, 1),
        limit=60,
        anchors="28 / 242 / 120 / 203 / 1002",
    )
    ours, floor = rows.version(bench)
    yield Row(
        "`--version` (floor: python)",
        "ms",
        ours,
        floor,
        ratio=2.0,
        anchors="12 / 10 / 215 / 15 / 580",
    )


def body(bench):
    yield Row(
        "first request body, all built-in tools",
        "KB",
        rows.first_body(bench)[0],
        limit=9,
        anchors="- / 40.6 / 5.4 / 49.9 / 30.8",
    )


def search(bench):
    *ripgrep, python, grep = rows.search(bench)
    if ripgrep:
        yield Row(
            "search 50,000 files with ripgrep (floor: `grep -r`)",
            "ms",
            ripgrep[0],
            grep,
            ratio=2.0,
        )
    yield Row(
        "search 50,000 files in Python (floor: `grep -r`)",
        "ms",
        python,
        grep,
        ratio=8.0,
    )


GROUPS = {
    "start": start,
    "turn": turn,
    "stream": stream,
    "cancel": cancel,
    "exec": exec_,
    "body": body,
    "search": search,
}
HEAD = [
    "What",
    "Unit",
    "Median",
    "Spread",
    "Floor",
    "Ratio",
    "Goal",
    "Met",
    "Floor / Codex / pi / Claude Code / opencode elsewhere",
]


def table(results):
    lines = [HEAD, ["---"] * len(HEAD), *(row.cells() for row in results)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="counted runs of each row")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, by comma")
    parser.add_argument("--write", action="store_true", help="keep the table in docs/")
    options = parser.parse_args()
    unknown = set(options.only.split(",")) - set(GROUPS)
    if unknown:
        parser.error(
            f"unknown: {', '.join(sorted(unknown))}; groups: {', '.join(GROUPS)}"
        )
    results = []
    bench = rows.Bench(options.runs)
    try:
        base = [rows.python_floor(bench) for _ in range(options.runs)]
        print(f"python floor: {statistics.median(base):.1f} ms", flush=True)
        for name in options.only.split(","):
            for row in GROUPS[name](bench):
                results.append(row)
                print(" | ".join(row.cells()[:8]), flush=True)
    finally:
        bench.close()
    text = table(results)
    print(f"\n{text}")
    if options.write:
        PAGE.write_text(
            "# Performance\n\nMade by `scripts/bench --write`:"
            f" {platform.machine()}, {os.cpu_count()} processors,"
            f" Python {platform.python_version()}, {options.runs} runs of each row,"
            " medians and spread.\nA ratio compares with the floor of the same run;"
            " absolute figures depend on the machine.\nThe last column was measured"
            " on another machine of this size, against the same kind of scripted"
            " provider.\n\n"
            f"{text}\n"
        )


if __name__ == "__main__":
    main()
