"""Several samplers on one model: what the table says of them, and which of them comes first."""

import logging
import sys

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from models import Blind, black_box, mixed, normal
from runs import messages

import pymc_kameleon as pk

compare = sys.modules["pymc_kameleon.sampling.compare"]

OPTIONS = {"draws": 500, "tune": 500, "chains": 2, "cores": 1}
GAM = pk.GAM.options(steps_per_draw=5)


def broken():
    raise ZeroDivisionError("no such thing")


def wary():
    logging.getLogger("pymc.sampling").warning("slowly")
    return [pk.GAM(["x"], steps_per_draw=3)]


@pytest.fixture(scope="module")
def table():
    steps = {
        "cut off": pk.GAM.options(region={"x": (-1.5, 1.5)}),  # wrong, and nothing else says so
        "broken": broken,
        "wary": wary,
        "GAM": GAM,
        "Metropolis": pm.Metropolis,
        "NUTS": pm.NUTS,
    }
    return pk.compare_samplers(steps, normal(2), random_seed=1, **OPTIONS)


def test_the_first_row_is_the_fastest_of_those_that_are_right(table):
    ok = table["ok"].to_numpy()
    assert set(table.index[ok]) >= {"GAM", "wary", "NUTS"}
    assert (np.diff(ok.astype(int)) <= 0).all()
    assert (np.diff(table["ess_per_second"][ok]) <= 0).all()
    assert table.index[-1] == "broken"


def test_a_step_that_is_wrong_in_silence_is_exposed(table):
    wrong = table.loc["cut off"]
    assert wrong["r_hat"] < 1.02
    assert wrong["warnings"] == ""
    assert wrong["ess_bulk"] > 300
    assert not wrong["ok"]
    assert wrong["disagreement"] > table.attrs["limit"]
    assert wrong["where"].startswith("spread of x[")
    assert (table["disagreement"][table["ok"]] < table.attrs["limit"]).all()


def test_a_step_that_fails_is_a_row(table):
    row = table.loc["broken"]
    assert row["warnings"] == "ZeroDivisionError: no such thing"
    assert row[list(compare.NUMBERS)].isna().all()
    assert "broken" not in table.attrs["results"]


def test_warnings_of_a_run_are_in_its_row(table):
    assert table.loc["wary", "warnings"] == "slowly"
    assert table.loc["GAM", "warnings"] == ""


def test_evaluations_are_those_of_all_chains_and_of_tuning(table):
    ours = table.attrs["results"]["GAM"]
    n = int(ours["sample_stats"]["n_logp"].sum() + ours["warmup_sample_stats"]["n_logp"].sum())
    assert table.loc["GAM", "evaluations"] == n > 2 * 1000 * 5
    assert table.loc["Metropolis", "evaluations"] == 2 * 2 * 1000
    assert table.loc["NUTS", "evaluations"] > 2 * 1000
    for rate, by in [("ess_per_second", "seconds"), ("ess_per_evaluation", "evaluations")]:
        least = table[["ess_bulk", "ess_tail"]].min(axis=1)
        np.testing.assert_allclose(table[rate], least / table[by])
    ran = table.drop("broken")
    assert (ran[["seconds", "compile_seconds"]] > 0).all(axis=None)
    assert ran["acceptance"].between(0.1, 1).all()


def test_copies_of_a_table_share_the_draws(table):
    assert table[["ok"]].copy().attrs["results"] is table.attrs["results"]


def test_a_plot(table):
    plots = pk.plot_compare(table, backend="matplotlib")
    axes = plots.get_viz("plot", "ess_per_second"), plots.get_viz("plot", "disagreement")
    rows = [label.get_text() for label in axes[0].get_yticklabels()]
    assert rows == list(table.index[::-1])
    shown = [
        [np.isfinite(x) for x, _ in part.get_offsets().filled(np.nan)]
        for part in axes[0].collections
    ]
    ok = table["ok"].to_numpy()[::-1]
    assert shown == [ok.tolist(), (~ok & table["seconds"].notna()[::-1]).tolist()]
    (line,) = axes[1].lines
    assert line.get_xdata()[0] == table.attrs["limit"]
    long = pk.plot_compare(table.rename(index={"GAM": "GAM " * 10}), backend="matplotlib")
    long.viz["figure"].item().canvas.draw()
    labels = long.get_viz("plot", "ess_per_second").get_yticklabels()
    assert min(label.get_window_extent().x0 for label in labels) >= 0


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["none", "bokeh", "plotly"])
@pytest.mark.filterwarnings("ignore:::bokeh", "ignore:::plotly")
def test_a_plot_of_other_backends(table, backend):
    if backend != "none":
        pytest.importorskip(f"arviz_plots.backend.{backend}", exc_type=ImportError)
    plots = pk.plot_compare(table, backend=backend)
    assert plots.backend == backend
    if backend == "plotly":
        figure = plots.viz["figure"].item()
        assert [*figure.layout.yaxis.ticktext] == list(table.index[::-1])
        ok, *_, wrong = figure.data
        assert np.isfinite(ok.x.astype(float)).tolist() == table["ok"].tolist()[::-1]
        assert (ok.marker.symbol, wrong.marker.symbol) == (None, "x")  # circles, and crosses


def test_the_same_seed_gives_the_same_draws():
    first, again, other = (
        pk.compare_samplers(
            [GAM], normal(2), random_seed=seed, **OPTIONS | {"draws": 100, "tune": 50}
        )
        for seed in (np.random.default_rng(1), np.random.default_rng(1), 2)
    )
    same = ["ok", "ess_bulk", "ess_tail", "r_hat", "evaluations"]
    assert first[same].equals(again[same])
    assert not first[same].equals(other[same])


@pytest.mark.slow
def test_discrete_variables_are_left_to_pymc(caplog):
    with caplog.at_level(logging.WARNING):
        options = OPTIONS | {"draws": 50, "tune": 50}
        table = pk.compare_samplers({"GAM": GAM}, mixed(), random_seed=1, **options)
    row = table.loc["GAM"]
    assert set(table.attrs["results"]["GAM"]["posterior"]) == {"a", "b", "k"}
    assert np.isnan(row["evaluations"])
    assert row["ess_bulk"] > 0
    assert "[no_step_to_recommend]" in messages(caplog)[-1]


def test_a_function_that_returns_no_step_fails(caplog):
    table = pk.compare_samplers({"none": lambda: None}, normal(2), **OPTIONS)
    said = "ValueError: The function has to return a step, or a list of some, not [None]."
    assert table.loc["none", "warnings"] == said
    assert "[all_steps_failed]" in messages(caplog)[-1]


def test_without_a_gradient_there_is_no_nuts():
    model = black_box(Blind())
    assert compare._default_steps(model) == [pk.SurrogateMetropolis, pk.GAM]
    table = pk.compare_samplers(["nuts"], model, **OPTIONS)
    assert table.loc["nuts", "warnings"].startswith("ValueError: nuts needs a gradient")
    assert compare._default_steps(normal(2)) == [
        *(pk.GadMALA, pk.GAM, pk.SurrogateMetropolis),
        "nuts",
    ]


@pytest.mark.parametrize(("asked", "given"), [(None, 3), (2, 2)])
def test_all_steps_get_as_many_cores(asked, given, monkeypatch):
    """Whichever driver they run in; by default all processors, of which there are three here."""
    seen = []

    def run(**options):
        seen.append(options["cores"])
        raise ZeroDivisionError

    monkeypatch.setattr("os.cpu_count", lambda: 3)
    monkeypatch.setattr(compare, "sample", run)
    monkeypatch.setattr(pm, "sample", run)
    pk.compare_samplers([GAM, "nuts"], normal(2), **OPTIONS | {"cores": asked})
    assert seen == [given, given]


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (["gma"], "There is no sampler 'gma'. Did you mean 'GAM'.* nuts, nutpie"),
        ([7], "7 is not a step"),
        ([dict], "<class 'dict'> is not a step"),
        ([], "steps is empty"),
        ([pm.sample_smc], "sample_smc is not a step: it makes a whole run"),
        ("GAM", r"must be a list, as \[pk.GAM, 'nuts'\], or a dict, not 'GAM'"),
        (pk.GAM, "must be a list"),
        (["GAM", pk.GAM], r"Several steps are called \['GAM'\]: give a dict"),
    ],
)
def test_what_is_no_step_is_refused_before_anything_runs(steps, says, monkeypatch):
    monkeypatch.setattr(compare, "_sampled", lambda *arguments: pytest.fail("it ran"))
    with pytest.raises(ValueError, match=says):
        pk.compare_samplers(
            ["RWM", *steps] if steps and isinstance(steps, list) else steps, normal(2)
        )


def test_other_arguments_are_checked():
    with pytest.raises(ValueError, match="chains must be"):
        pk.compare_samplers([GAM], normal(2), chains=1)
    with pytest.raises(ValueError, match="cores must be"):
        pk.compare_samplers([GAM], normal(2), cores=0)


def test_nutpie_has_to_be_there(monkeypatch):
    monkeypatch.setattr(compare, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="needs the package nutpie"):
        pk.compare_samplers(["nutpie"], normal(2))


# ---- what draws say, without a model ------------------------------------------------------------


def judged(**draws):
    """Return the rows of steps with these draws (chains, n, q) of "x", and the limit."""
    results = {
        label: xr.DataTree.from_dict({"posterior": xr.Dataset({"x": (("chain", "draw", "k"), x)})})
        for label, x in draws.items()
    }
    rows = {label: {"seconds": 2.0, "evaluations": 1e4} for label in draws}
    return rows, compare._judge(rows, results, ["x"])


def drawn(seed, shift=0.0):
    return np.random.default_rng(seed).normal(shift, 1, (4, 500, 3))


def verdicts(rows):
    return "".join("+" if row["ok"] else "-" for row in rows.values())


def test_the_majority_is_right():
    assert verdicts(judged(a=drawn(1), b=drawn(2), c=drawn(3, 0.3))[0]) == "++-"
    assert verdicts(judged(a=drawn(1), b=drawn(2), c=drawn(3, 0.3), d=drawn(4, 0.3))[0]) == "----"
    assert verdicts(judged(a=drawn(1), b=drawn(2, 0.3))[0]) == "--"
    assert verdicts(judged(a=drawn(1))[0]) == "+"


def test_a_step_that_has_not_converged_judges_nobody():
    """It is near to all, as its own errors are large."""
    apart = drawn(3)
    apart[:2] += 5
    rows, limit = judged(a=drawn(1), b=drawn(2, 0.3), c=apart)
    assert verdicts(rows) == "---"
    assert rows["c"]["disagreement"] < limit < rows["a"]["disagreement"]


def test_what_does_not_move_is_worth_nothing_and_what_never_varies_is_no_parameter():
    stuck, constant = drawn(1), drawn(2)
    for x in (stuck, constant):
        x[..., 1] = 1.0
    stuck[..., 2] = 0.1
    rows, limit = judged(stuck=stuck, other=constant)
    assert rows["stuck"]["ess_bulk"] == rows["stuck"]["ess_tail"] == 0
    assert np.isinf(rows["stuck"]["r_hat"])
    assert rows["stuck"]["where"].endswith(" of x[2]")
    assert verdicts(rows) == "-+"
    assert limit == judged(a=drawn(1)[..., :2])[1]
