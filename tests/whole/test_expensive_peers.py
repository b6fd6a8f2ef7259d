"""How many evaluations an error takes, by runs that ended at others; and the ratios of these."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def peers(script):
    return script("expensive_peers")


def runs(peers, *pairs):
    """Return a run of each setting, by its evaluations and its error."""
    rows = [{"evaluations": n, "errors": [error], "seconds": 1.0} for n, error in pairs]
    return [peers.Runs([row]) for row in rows]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(100, 0.02)], (100, True)),
        ([(100, 0.2), (1000, 0.05)], (400, True)),
        ([(100, 8.0), (1000, 0.05)], (1000, True)),
        ([(1000, 0.05), (100, 0.15)], (225, True)),
        ([(200, 0.15)], (450, False)),
        ([(100, 0.19), (500, 0.12)], (361, False)),
        ([(100, 0.19), (500, 0.3)], (361, False)),
        ([(100, 0.05), (500, 0.3)], (100, False)),
    ],
)
def test_errors_fall_as_with_independent_draws(peers, pairs, expected):
    found = peers.needed(runs(peers, *pairs))
    assert found == pytest.approx(expected)
    cell = peers.written({"PyVBMC": found}, "PyVBMC")
    assert cell.endswith("°") != found.is_reached


def test_an_error_that_one_setting_has_by_luck_does_not_count(peers):
    found = peers.needed(runs(peers, (100, 0.08), (110, 0.12), (200, 0.05), (300, 0.09)))
    assert found == pytest.approx((110 * 1.2**2, True))


def test_what_is_far_from_an_error_never_has_it(peers):
    assert peers.needed(runs(peers, (100, 0.26), (1000, 3.0))) is None
    assert peers.written({"PyVBMC": None}, "PyVBMC") == "never"


def test_a_run_without_an_answer_is_begun_again(peers):
    answer = {"evaluations": 150, "errors": [0.1, -0.3], "seconds": 1.0}
    refused = {"evaluations": 50, "refused": "singular", "seconds": 1.0}
    both = peers.Runs([refused, answer])
    assert (both.evaluations, both.worst, both.n_answered) == (200, 0.3, 1)
    assert peers.needed([peers.Runs([refused])]) is None


def test_ratios_are_to_the_best(peers):
    def needed(n):
        return peers.Needed(n, True)

    n = {
        "a": {"ours": needed(100), "PyVBMC": needed(200), "SMC": needed(400)},
        "b": {"ours": needed(100), "PyVBMC": None, "SMC": needed(200)},
        "c": {"ours": None, "PyVBMC": needed(200)},
        "d": {"ours": needed(100), "PyVBMC": None},
        "not run": {"ours": needed(100), "SMC": needed(50)},
    }
    found = peers.against("PyVBMC", n, ["PyVBMC"], ["PyVBMC"])
    assert found == ["PyVBMC", 1, "0.5", "0.5", "0.5", 1, 2]
    found = peers.against("all", n, ["PyVBMC", "SMC"], ["PyVBMC"])
    assert found == ["all", 2, "0.5", "0.5", "0.5", 1, 1]


def test_chains_are_run_until_their_draws_are_worth_enough(peers):
    """Each time with other random numbers; exact draws are drawn once."""

    def truth(build, rng):
        return rng.random((10, 2)), worth

    target = object.__new__(peers.Target)
    target.toy = SimpleNamespace(truth=truth)
    worth = 0.4 * peers.LEAST_WORTH
    draws, found = target._drawn()
    assert found == 3 * worth
    assert len(np.unique(draws)) == 60
    worth = None
    assert target._drawn()[0].shape == (10, 2)


def test_the_page_has_both_choices_of_problems(peers):
    cases = {"GARCH": (100, 200), "Rosenbrock": (100, 50)}
    rows = [
        row
        for case, counts in cases.items()
        for row in (
            {"case": case, "sampler": "truth", "d": 4},
            *(
                {"case": case, "sampler": method, "evaluations": n, "errors": [0.1], "seconds": 1}
                for method, n in zip(("ours 100", "PyVBMC"), counts, strict=True)
            ),
        )
    ]
    table = peers.tables(rows)["peers.md"]["against others"]
    assert [row.split(" | ")[:3] for row in table[2:4]] == [
        ["| PyVBMC, first choice", "1", "0.5"],
        ["| PyVBMC, all", "2", "1"],
    ]
    assert set(peers.FIRST) < set(peers.CASES)
