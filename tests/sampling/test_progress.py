"""What is shown while chains run."""

import logging
from io import StringIO
from types import SimpleNamespace

import models
import numpy as np
import pymc as pm
import pytest
from models import box, standard_normal
from pymc.progress_bar import MCMCProgressBarManager
from rich.console import Console
from runs import messages

import pymc_kameleon as pk
from pymc_kameleon.model.pymc_internals import DrawStats, default_progress_theme
from pymc_kameleon.sampling import progress, run
from pymc_kameleon.sampling.progress import Progress, Row, speed
from pymc_kameleon.step.job import SearchSoFar
from pymc_kameleon.step.warm_start.approach import NEAR_TRIES

OPTIONS = [True, "split", "combined", "split+stats", "combined+stats"]


class CyclicalKAM:
    """What the display knows of a step."""

    steps_per_draw = 10

    def _largest_n_logp(self):
        return 2

    def __init__(self, *var_names):
        self.var_names = var_names


NO_SEARCH = SearchSoFar()


def chain(row, steps, done, seconds, evaluations, tune=1000, total=2000, begun=0, search=NO_SEARCH):
    """What the display knows of a chain."""
    stats = DrawStats(scaling=1.2e-5)
    stats.mean_accept, stats.stuck = 0.441, False
    return SimpleNamespace(
        row=row,
        number=row,
        steps=steps,
        begun=begun,
        n_tune=tune,
        total=begun + total,
        done=begun + done,
        seconds=seconds,
        evaluations=evaluations,
        last_stats=[stats] * len(steps) if done else None,
        state=SimpleNamespace(search=search),
    )


def drawn(shown, width=80):
    """Return the lines of a picture."""
    console = Console(width=width, file=StringIO())
    console.print(shown._display)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("n", "n_steps", "seconds"), [(1, 1, 0.02), (1, 2, 9000), (4, 1, 70), (4, 2, 4e6)]
)
@pytest.mark.parametrize("option", OPTIONS)
def test_it_fits_80_columns(option, n, n_steps, seconds):
    """Of four chains, three have begun."""
    steps = [CyclicalKAM("a_variable_s"), CyclicalKAM("b", "c")][:n_steps]
    chains = [chain(i, steps, 0, 0.0, 0, total=10**6) for i in range(n)]
    shown = Progress(chains, option)
    for i in range(min(n, 3)):
        shown.show(chain(i, steps, 543_210, seconds, 10**7, total=10**6))
    lines = drawn(shown)
    with_stats, all_in_one = option is True or "stats" in option, "combined" in str(option)
    assert max(map(len, lines)) <= 80
    assert "left" in lines[0]
    slow = seconds / 10**7 > 1e-3
    assert slow == ("evaluations, one per" in lines[1])
    headings, *rows = lines[-2 if all_in_one else -1 - n :]
    n_stats = n_steps * with_stats
    title = ["accept", "scale"] * n_stats
    assert headings.split() == ["Progress", "Draw", *title, "Speed", "Elapsed"]
    if with_stats:
        assert lines[-len(rows) - 2].count("CyclicalKAM") == n_steps
    for i, row in enumerate(rows):
        assert "…" not in row
        assert row.count("0.44 1.2e-05") == (n_stats if i < 3 else 0)
        assert ("/draw" in row or "draws/s" in row) == (i < 3)
    if not all_in_one:
        assert all(" 542210 " in row for row in rows[:3])


def row(done, seconds, total=100, evaluations=0, most=20):
    return Row(done, total, 50, seconds, evaluations, most, [], False, NO_SEARCH)


@pytest.mark.parametrize(
    ("done", "evaluations", "to_go"),
    [
        (0, 0, 0),
        (10, 110, 90 * 11),
        (1, 50, 99 * 20),  # most of them looked for scales
        (100, 300, 0),
    ],
)
def test_evaluations_to_come(done, evaluations, to_go):
    assert row(done, 1, evaluations=evaluations).to_go == to_go


@pytest.mark.parametrize(
    ("done", "seconds", "words"),
    [
        (0, 0, ""),
        (3, 0, ""),
        (1, 600, "10 min/draw"),
        (10, 20, "2 s/draw"),
        (10, 1, "10 draws/s"),
        (5, 4.0, "1.25 draws/s"),
        (99_999, 10, "10k draws/s"),
        (1000, 1.0003, "1k draws/s"),
        (3_000_000, 2, "1.5M draws/s"),
    ],
)
def test_speed(done, seconds, words):
    assert speed(row(done, seconds)) == words


def test_no_more_evaluations_are_to_go_than_may_be_made(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    steps = [CyclicalKAM("x")]
    for most, to_go in [(None, 20), (25, 15), (8, 0)]:
        now[0] = 0.0
        with Progress([chain(0, steps, 0, 0, 0, total=3)], most=most) as shown:
            now[0] = 60.0
            shown.show(chain(0, steps, 1, 60.0, 10, total=3))
            assert shown.summary()[1].endswith(f", about {to_go} to go")


def test_evaluations_to_come_take_as_long_as_those_that_were_made(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    steps = [CyclicalKAM("x")]
    with Progress([chain(0, steps, 0, 0, 0, total=3)]) as shown:
        summaries = []
        for seconds, done in [(30, 0), (60, 1), (90, 1), (590, 1), (600, 3)]:
            now[0] = seconds
            shown.show(chain(0, steps, done, 60.0 * done, 10 * done, total=3))
            summaries.append(shown.summary())
    made = "10 evaluations, one per 6 s, about 20 to go"
    assert summaries == [
        ["30 s"],
        ["1 min, about 2 min left", made],
        ["1.5 min, about 3 min left", made],
        ["9.8 min, about 20 min left", made],
        ["10 min in all", "30 evaluations, one per 6 s"],
    ]


def test_without_a_terminal_there_is_a_line_in_the_log_now_and_then(monkeypatch, caplog):
    """After ten seconds, and then each minute; not each time that there is news."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    steps = [CyclicalKAM("x"), CyclicalKAM("y")]
    news = [
        (9.9, 0, SearchSoFar(50, 490, -1000.0)),
        (10, 0, SearchSoFar(57, 490, -812.34)),  # said
        (69, 0, SearchSoFar(400, 490, -10.0)),
        (70, 1, NO_SEARCH),  # said
        (130, 2, NO_SEARCH),  # said
    ]
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        with Progress([chain(0, steps, 0, 0, 0, total=3000)]) as shown:
            for now[0], done, search in news:
                made = search.evaluations or 430 + 10 * done
                shown.show(chain(0, steps, done, now[0], made, total=3000, search=search))
        with Progress([chain(0, steps, 0, 0, 0)], progressbar=False) as shown:
            now[0] += 1000
            shown.show(chain(0, steps, 1, 1000, 10))
    assert messages(caplog) == [
        "0 of 3000 draws; 10 s; looking for the posterior: 57 of at most 490 evaluations, "
        "log-density -812.3",
        "1 of 3000 draws, acceptance 0.44 and 0.44; 1.2 min, about 5 h 34 min left; "
        "440 evaluations, one per 160 ms, about 125 958 to go",
        "2 of 3000 draws, acceptance 0.44 and 0.44; 2.2 min, about 10 h 6 min left; "
        "450 evaluations, one per 290 ms, about 125 916 to go",
    ]


def test_the_way_to_the_posterior_is_shown():
    """Of two chains that look for it; the third has draws."""
    steps = [CyclicalKAM("x")]
    shown = Progress([chain(i, steps, 0, 0, 0) for i in range(3)])
    assert "looking" not in "".join(shown.summary())
    searches = [SearchSoFar(57, 6000, -812.34), SearchSoFar(9999, 6000, -8e4), NO_SEARCH]
    for i, search in enumerate(searches):
        shown.show(chain(i, steps, i // 2, 1.0, 100, search=search))
    words = "looking for the posterior: 10 056 of at most 12 000 evaluations, log-density -812.3"
    assert shown.summary()[-1] == words
    assert words in drawn(shown, 100)
    shown.show(chain(1, steps, 1, 1.0, 100))
    assert "57 of at most 6000 evaluations" in shown.summary()[-1]
    shown.show(chain(0, steps, 1, 1.0, 100))
    assert "looking" not in "".join(shown.summary())


@pytest.mark.parametrize("n", [1, 4])
def test_what_is_behind_at_the_end_counts_as_the_end(n):
    """A run that is stopped; also before its first draw."""
    chains = [chain(i, [CyclicalKAM("x")], 0, 0.0, 0) for i in range(n)]
    with Progress(chains) as shown:
        pass
    assert shown.summary()[0].endswith(" in all")
    assert len(drawn(shown)) == 3 + n


# ---- through pk.sample --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair():
    return models.pair()


@pytest.fixture(scope="module")
def walks(pair):
    """The second one never moves."""
    options = {"model": pair, "steps_per_draw": 5}
    return [
        pk.baselines.RWM([pair["x"]], **options),
        pk.baselines.RWM([pair["y"]], scaling=1e10, tune_scaling=False, **options),
    ]


QUIET = {"compute_convergence_checks": False, "random_seed": 1}


def sample(steps, draws=100, **kwargs):
    defaults = {"tune": 50, "chains": 3, "cores": 2, "model": steps[0].model}
    return pk.sample(draws, step=steps, **defaults | QUIET | kwargs)


class Recorder:
    """Keeps all pictures."""

    def __init__(self, shown):
        self.shown, self.pictures = shown, []

    def start(self):
        self.show()

    def show(self):
        self.pictures.append(list(self.shown.rows))

    def stop(self):
        self.show()


@pytest.fixture
def recorders(monkeypatch):
    made = []

    def make(*arguments):
        made.append(Recorder(*arguments))
        return made[-1]

    monkeypatch.setattr(progress, "Terminal", make)
    monkeypatch.setattr(run, "POLL_INTERVAL", 1e-4)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("option", ["split", "combined"])
def test_it_follows_all_draws(option, walks, pair, recorders):
    half = sample(walks, progressbar=option, discard_tuned_samples=False)
    pk.resume(half, 70, model=pair, progressbar=option, compute_convergence_checks=False)
    share = 3 if option == "combined" else 1
    groups = ("sample_stats", "warmup_sample_stats")
    counts = sum(half[group]["n_logp"].sum(["draw", "n_logp_dim_0"]).values for group in groups)
    for recorder, tune, draws in zip(recorders, (50, 0), (100, 70), strict=True):
        first, *_, last = recorder.pictures
        assert len(first) == len(last) == 3 // share
        assert [r.done for r in first] == [0] * len(first)
        for r in last:
            assert (r.done, r.total) == ((tune + draws) * share,) * 2
            assert (r.n_tune, r.draw) == (tune * share, draws * share)
            assert r.seconds > 0
    last = recorders[0].pictures[-1]
    expected = [counts.sum()] if option == "combined" else counts
    assert [r.evaluations for r in last] == list(expected)


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 2])
def test_it_follows_the_way_to_the_posterior(cores, recorders, monkeypatch):
    """Told after each evaluation, here and from processes."""
    _, model = box()
    step = pk.GAM(model=model, steps_per_draw=2)
    monkeypatch.setattr("pymc_kameleon.step.base.WARM_START_PATIENCE", -1.0)
    start = np.full(2, 9.0)
    options = {"tune": 30, "chains": 2, "model": model, "initvals": {"x": start}}
    pk.sample(5, step=step, cores=cores, **options | QUIET)
    for i in range(2):
        rows = [picture[i] for picture in recorders[0].pictures]
        assert rows[-1].search.evaluations == 0
        rows = [r for r in rows if r.search.evaluations]
        assert {r.done for r in rows} == {0}
        n, most, best = zip(*(r.search for r in rows), strict=True)
        assert list(dict.fromkeys(n)) == list(range(1, max(n) + 1))
        assert n == tuple(r.evaluations for r in rows)
        assert set(most) == {1 + 60 + NEAR_TRIES}
        assert best[0] == standard_normal(start) < -5 < best[-1]
        assert list(best) == sorted(best)


def test_it_shows_mean_acceptance_and_who_is_stuck(walks, recorders):
    result = sample(walks)
    for i, r in enumerate(recorders[0].pictures[-1]):
        means = result["sample_stats"]["accept_prob"].values[i].mean(0)
        np.testing.assert_allclose([accept for accept, _ in r.stats], means, rtol=1e-12)
        assert r.stuck


def test_stuck_chains_are_red(walks):
    chains = [chain(i, walks, 2000, 1.0, 10) for i in range(2)]
    for own in chains[0].last_stats:
        own.stuck = True
    shown = Progress(chains, True)
    console = Console(file=StringIO(), force_terminal=True, theme=default_progress_theme, width=80)
    console.print(shown._display)
    stuck, other = console.file.getvalue().splitlines()[-2:]
    assert "\x1b[31m" in stuck
    assert "\x1b[31m" not in other


@pytest.mark.parametrize("method", ["start", "show", "stop"])
def test_a_display_that_fails_costs_no_draw(method, walks, recorders, monkeypatch, caplog):
    def fail(*args, **kwargs):
        raise OSError("the terminal is gone")

    monkeypatch.setattr(Recorder, method, fail)
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        result = sample(walks, draws=20)
    [said] = [text for text in messages(caplog) if "[progress_failed]" in text]
    assert "progress bar failed (OSError('the terminal is gone'))" in said
    expected = sample(walks, draws=20, progressbar=False)
    np.testing.assert_array_equal(result["posterior"]["x"], expected["posterior"]["x"])


# ---- through pm.sample --------------------------------------------------------------------------


class Backend:
    """PyMC's progress bar, which keeps what it is told."""

    def __init__(self, total, progress_columns, progress_stats):
        self.fields, self.updates = set(progress_stats), []

    def __enter__(self):
        return self

    def __exit__(self, *args):
        pass

    def update(self, **update):
        self.updates.append(update)


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 2])
def test_pm_sample_shows_mean_acceptance_and_who_is_stuck(cores, walks, pair, monkeypatch):
    """Of each step, in tuning and after it."""
    made = []

    def create(self, **kwargs):
        made.append(Backend(**kwargs))
        return made[-1]

    monkeypatch.setattr(MCMCProgressBarManager, "_create_backend", create)
    options = QUIET | {"discard_tuned_samples": False, "chains": 2, "cores": cores}
    result = pm.sample(100, tune=60, step=walks, model=pair, **options)
    (backend,) = made
    names = ["RWM accept x", "RWM accept y"]
    assert backend.fields == {*names, "RWM scale x", "RWM scale y", "draw", "marker_pos"}
    for i in range(2):
        updates = [update for update in backend.updates if update["task_id"] == i]
        # It shows every draw, and the last one twice if cores=1.
        # Red from the 20th draw after tuning on: 100 transitions.
        assert [u["failing"] for u in updates[:160]] == [False] * 79 + [True] * 81
        assert updates[-1]["failing"]
        for group, update in [("sample_stats", updates[-1]), ("warmup_sample_stats", updates[59])]:
            means = result[group]["accept_prob"].values[i].mean(0)
            shown = [update["stats"][name] for name in names]
            np.testing.assert_allclose(shown, means, rtol=1e-12)
