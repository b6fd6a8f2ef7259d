"""What benchmarks run, and what they do not run again."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(script):
    return script("benchmark")


def run(benchmark, monkeypatch, file, *arguments, plan=None, **options):
    """Run a script whose rows are the squares of seeds; return the cases and seeds it ran."""
    ran = []

    def square(case, seed):
        ran.append((case, seed))
        return {"square": seed**2}

    def usual(options):
        return benchmark.each(square, case=["a, b", "c"], sampler=["S"], seed=range(options.seeds))

    monkeypatch.setattr(sys, "argv", ["script.py", *arguments])
    benchmark.main(file, plan or usual, seeds=2, **options)
    return ran


def test_what_is_in_the_file_is_not_run_again(benchmark, monkeypatch, tmp_path):
    file = tmp_path / "rows.json"
    every = [(case, seed) for case in ("a, b", "c") for seed in (0, 1)]
    assert run(benchmark, monkeypatch, file) == every
    assert run(benchmark, monkeypatch, file) == []
    assert run(benchmark, monkeypatch, file, "--seeds", "3") == [("a, b", 2), ("c", 2)]
    rows = benchmark.load(file)
    assert [row["square"] for row in rows] == [0, 1, 0, 1, 4, 4]
    assert all(row["date"] and row["machine"] for row in rows)
    assert len(file.read_text(encoding="utf-8").splitlines()) == len(rows) + 2


def test_options_choose_what_is_run(benchmark, monkeypatch, tmp_path):
    def cases(*arguments):
        return run(benchmark, monkeypatch, tmp_path / "rows.json", *arguments, "--json", other)

    other = str(tmp_path / "other.json")
    assert cases("--seconds", "0") == []
    assert cases("--samplers", "T") == []
    assert cases("--samplers", "T", "S", "--cases", "a, b", "--seeds", "1") == [("a, b", 0)]
    assert not (tmp_path / "rows.json").exists()
    assert len(json.loads(Path(other).read_text(encoding="utf-8"))) == 1


def test_what_runs_are_compared_with_is_always_run(benchmark, monkeypatch, tmp_path):
    def plan(options):
        yield {"case": "c", "sampler": "known"}, lambda: {"value": 1}
        yield {"case": "c", "of": "S"}, lambda: [{"sampler": "S"}, {"sampler": "corrected"}]

    file = tmp_path / "rows.json"
    run(benchmark, monkeypatch, file, "--samplers", "T", plan=plan)
    assert [row["sampler"] for row in benchmark.load(file)] == ["known"]
    run(benchmark, monkeypatch, file, plan=plan)
    assert [row["sampler"] for row in benchmark.load(file)] == ["known", "S", "corrected"]


def test_rows_of_another_process_are_kept(benchmark, tmp_path):
    file = tmp_path / "rows.json"

    def measure():
        benchmark.save(file, [{"case": "of another"}])
        return {}

    options = SimpleNamespace(seconds=60)
    rows = benchmark.measured(file, [({"case": "own"}, measure)], options)
    assert [row["case"] for row in rows] == ["of another", "own"]
    assert benchmark.load(file) == rows


def test_only_the_tables_of_its_own_file_go_to_pages(benchmark, monkeypatch, tmp_path, capsys):
    def tables(rows):
        return {"page.md": {"squares": benchmark.table(["", "square"], [[None, len(rows)]])}}

    monkeypatch.setattr(benchmark, "DOCS", tmp_path)
    page, file, other = (tmp_path / name for name in ("page.md", "rows.json", "other.json"))
    page.write_text("before\n<!-- squares -->\n<!-- end of squares -->\n", encoding="utf-8")
    before = page.read_text(encoding="utf-8")
    arguments = "--seeds", "1", "--json", str(other)
    run(benchmark, monkeypatch, file, *arguments, tables=tables)
    run(benchmark, monkeypatch, file, *arguments, "--table", tables=tables)
    assert page.read_text(encoding="utf-8") == before
    assert "|  | 2 |" in capsys.readouterr().out
    run(benchmark, monkeypatch, file, tables=tables)
    assert "|  | 4 |" in page.read_text(encoding="utf-8")
