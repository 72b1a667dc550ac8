"""The page about performance and the catalog tell the same."""

import re
from pathlib import Path

from royale_server.bench.catalog import BENCHES, by_name

PAGE = (Path(__file__).parents[2] / "docs" / "performance.md").read_text("utf-8")
ROWS = [line.strip("|").split("|") for line in PAGE.splitlines() if "| `royale bench" in line]


def bench_of(row: list[str]) -> str:
    (name,) = re.findall(r"`royale bench ([\w-]+)", row[-1])
    return name


def test_every_bench_has_a_row_and_every_row_a_bench():
    assert {bench_of(row) for row in ROWS} == set(by_name())


def test_bars_and_aims_of_the_page_are_those_of_the_catalog():
    told = {}
    for row in (row for row in ROWS if len(row) == 5):
        bar = re.search(r"[\d.]+", row[1])
        aim = re.search(r"[\d.]+", row[2])
        if bar:
            pair = float(bar.group()), float(aim.group()) if aim else None
            told.setdefault(bench_of(row), set()).add(pair)
    known = {
        bench.name: {(c.bar, c.aim) for c in bench.claims if c.bar is not None}
        for bench in BENCHES
        if any(c.bar is not None for c in bench.claims)
    }
    assert told == known
