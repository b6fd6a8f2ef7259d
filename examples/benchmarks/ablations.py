"""What each rule of an approximation is good for: errors of runs with it, and without it.

    python examples/benchmarks/ablations.py [--rules directions images] [--cases heat]
        [--budgets 150] [--seeds 4]

docs/ablations.md says what is measured. ``RULES`` says how each rule is switched off.
"""

import ast
import sys
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple
from unittest import mock

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from benchmark import each, grouped, main, quiet, sample, sample_by_pymc, table
from first_evaluations import noisy
from posteriors import POSTERIORS
from problems import CASES, Case, Problem, kept, known_quantiles
from simulators import MODELS, reference

import pymc_kameleon as pk
from pymc_kameleon.analysis.surrogate_correction import by_surrogate
from pymc_kameleon.approximation.modes import Mode
from pymc_kameleon.approximation.search import maximum
from pymc_kameleon.samplers.surrogate.active import draws, process

FILE = Path(__file__).with_suffix(".json")
BUDGETS = 150, 300, 1000, 3000
WRONG, STANDARD_ERRORS = 0.2, 4.0
NOISE = 0.1
"""Standard deviation of noisy log-densities."""

# ---- problems -----------------------------------------------------------------------------------

DENSITIES = (
    *("GARCH", "AR5", "interaction", "hidden Markov", "mixture", "schools", "transforms"),
    *("banana", "thin bend", "two modes", "centred schools", "noisy AR5", "noisy schools"),
    *("exponential priors", "groups"),
)
MOVES = tuple(f"{case} by moves" for case in (*DENSITIES[:7], *DENSITIES[-2:]))
BY_MOVES = {"samplers.surrogate.initial_search.MOST_COORDINATES": 0}
BY_MOVES["analysis.draws_of_result.KINDS"] = [by_surrogate]
"""What makes a run one without a process, as if it had more than 14 coordinates."""

OUTPUTS = (
    *("influenza", "pk_by_subject", "heat", "hares"),
    *("kinetics of 4", "kinetics of 12", "three modes"),
)
MANY_AT_ONCE = "two modes by 64", "AR5 by 64", "GARCH by 64", "hidden Markov by 64"
FAMILIES = {"log-density": DENSITIES, "by moves": MOVES, "many at once": MANY_AT_ONCE}
FAMILIES["simulator"] = OUTPUTS


def measured(rule, case, budget, seed):
    """Return the error of a run, its largest one, and whether it is wrong without a warning."""
    case, _, how = case.partition(" by ")
    options = {"max_concurrent": int(how)} if how.isdigit() else {}
    step, known = step_of(case)
    model, step.n_trials = step.model, 0  # which would count for the first run alone
    with ExitStack() as stack:
        for patch in patches(RULES[rule].without | (BY_MOVES if how == "moves" else {})):
            stack.enter_context(patch)
        with quiet() as told:
            dt = sample(step, max_evaluations=budget, random_seed=seed, **options)
            names = known.get("names", list(model.initial_point()))
            found = pk.summary(dt, names, model=model, round_to="none")
    off = np.abs(found["mean"].to_numpy() - known["mean"]) / known["sd"]
    sure = off > STANDARD_ERRORS * found["mcse_mean"].to_numpy() / known["sd"]
    return {
        "error": float(f"{np.sqrt(np.mean(off**2)):.3g}"),
        "largest": float(f"{off.max():.3g}"),
        "wrong": bool(np.any(sure & (off > WRONG)) and not told),
    }


@cache
def step_of(case):
    """Return the sampler of a case, compiled, and mean and sd of its coordinates."""
    model, known = model_of(case)
    if case in OUTPUTS:
        return pk.EmulatorMetropolis(model=model), known
    return pk.SurrogateMetropolis(model=model), known


def model_of(case):
    """Return the model of a case, and mean and sd of its coordinates."""
    if case in MODELS:
        known = reference(MODELS[case].known_as or case)
        return MODELS[case].model(), {key: known[key] for key in ("mean", "sd")}
    if case in {**POSTERIORS, **CASES}:
        problem = Problem(case, CASES.get(case, Case(POSTERIORS.get(case))))
        return problem.model, known_quantiles(problem)
    if case.startswith("noisy "):
        case = case.removeprefix("noisy ")
        return noisy(case, NOISE), known_quantiles(Problem(case))
    if case in PLACES:
        return PLACES[case]()
    subjects = int(case.split()[-1])
    model, twin = (kinetics(subjects, solve) for solve in (concentrations, twin_of_concentrations))
    return model, kept(f"moments of {case}", lambda: by_nuts(Problem(case, Case(lambda: twin))))


def by_nuts(problem):
    """Return mean and sd of coordinates, by a run of NUTS."""
    with quiet():
        dt = sample_by_pymc(
            5000, model=problem.model, random_seed=1, idata_kwargs={"include_transformed": True}
        )
    x = problem.coordinates(
        {**dt["posterior"].data_vars, **dt["unconstrained_posterior"].data_vars}
    )
    return {"mean": x.mean(axis=(0, 1)), "sd": x.std(axis=(0, 1))}


HOURS = np.array([0.25, 0.5, 1, 2, 3, 4, 6, 8, 12, 24])


def one_compartment(x, xp=np):
    """Return concentrations of a dose of 100, of the logarithms of absorption, elimination, V."""
    absorption, elimination, volume = xp.exp(x[0]), xp.exp(x[1]), xp.exp(x[2])
    fall = xp.exp(-elimination * HOURS) - xp.exp(-absorption * HOURS)
    return 100 * absorption / (volume * (absorption - elimination)) * fall


twin_of_concentrations = partial(one_compartment, xp=pt)


@pk.black_box(ndim=1)
def concentrations(x):
    """Return concentrations."""
    return one_compartment(x)


def kinetics(subjects, solve):
    """Return a hierarchy of 3 parameters for each subject, not centred: d = 3 J + 7."""
    rng, typical = np.random.default_rng(subjects), np.array([0.0, -2.0, 3.0])
    own = typical + rng.normal(0, [0.3, 0.2, 0.2], (subjects, 3))
    y = np.array([one_compartment(x) for x in own]) * np.exp(rng.normal(0, 0.15, (subjects, 10)))
    with pm.Model() as model:
        means = pm.Normal("means", typical, 1, shape=3)
        between = pm.HalfNormal("between", 0.5, shape=3)
        effects = pm.Normal("effects", shape=(subjects, 3))
        sigma = pm.HalfNormal("sigma", 0.3)
        each = means + between * effects
        mean = pt.stack([solve(each[i]) for i in range(subjects)])
        pm.LogNormal("y", pt.log(mean), sigma, observed=y)
    return model


def two_modes():
    """Return two normals, 13 standard deviations apart, with 0.4 and 0.6 of the mass."""
    shares, means = np.array([0.4, 0.6]), np.array([[5.0, 4.0], [-4.0, -5.0]])
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        logs = np.log(shares) - 0.5 * pt.sum((x - means) ** 2, axis=1)
        pm.Potential("modes", pt.logaddexp(logs[0], logs[1]))
    sd = np.sqrt(1 + shares.prod() * (means[0] - means[1]) ** 2)
    return model, {"mean": shares @ means, "sd": sd}


def thin_bend():
    """Return y near x², a tenth as wide as it is high, and its moments."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", x**2, 0.1)
    return model, {"mean": np.array([0.0, 1.0]), "sd": np.array([1.0, np.sqrt(2.01)])}


def exponential_priors(shapes=(1, 1, 4)):
    """Return rates, two of which nothing is observed, and 4 normals: what is known is exact."""
    with pm.Model() as model:
        rates = pm.Exponential("rates", 1, shape=len(shapes))
        pm.Exponential("y", rates[2], observed=np.ones(shapes[2] - 1))
        pm.Normal("others", shape=4)
    sd = np.concatenate([np.power(shapes, -0.5), np.ones(4)])
    return model, {"mean": np.repeat([1.0, 0.0], [3, 4]), "sd": sd, "names": ["rates", "others"]}


@pk.black_box(ndim=1)
def cubic(x):
    """Return x³ − 3x of the first of two numbers, and the other one."""
    return np.array([x[0] ** 3 - 3 * x[0], x[1]])


def three_modes():
    """Return a model with three modes, none the image of another one, and its moments by sums."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 2, shape=2)
        pm.Normal("y", cubic(x), [0.3, 0.5], observed=[1.0, 0.35])
    grid = np.linspace(-6, 6, 20001)
    w = np.exp(-(((grid**3 - 3 * grid - 1) / 0.3) ** 2) / 2 - grid**2 / 8)
    mean, variance = np.average(grid, weights=w), 1 / (1 / 0.5**2 + 1 / 4)
    sd = np.sqrt(np.average((grid - mean) ** 2, weights=w))
    means, sds = np.array([mean, variance * 0.35 / 0.5**2]), np.array([sd, np.sqrt(variance)])
    return model, {"mean": means, "sd": sds}


PLACES = {"thin bend": thin_bend, "two modes": two_modes, "three modes": three_modes}
PLACES["exponential priors"] = exponential_priors


# ---- rules --------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """A rule: what it is for, and how it is switched off: values of names, by modules."""

    what: str
    without: dict  # "module.NAME" or "module.Class.name" -> value


SEARCH, FIT = "approximation.search", "samplers.emulator.fit"
OF_SEARCH = f"{SEARCH}.PosteriorSearch"


def no_evaluation(search):
    """Evaluate nothing, and find that all is well."""
    return True
    yield


SURROGATE = "samplers.surrogate"
ACTIVE, DENSITY = f"{SURROGATE}.active", f"{SURROGATE}.fit"
PROCESS, STAR = f"{ACTIVE}.process", f"{ACTIVE}.star"


def no_expectation(density, u, mean, sd):
    """Return log s by the mean alone."""
    beyond = np.maximum(np.linalg.norm(u, axis=1) - density.radius, 0)
    return np.minimum(mean, density.highest) - density.unknown(sd) - draws.WALL * beyond**2


def best_by_pattern(u, y, prior, last=None):
    """Return the best numbers of a process by a pattern search from each start."""
    starts = [last] if last else process._starts(prior, u.shape[1])
    ends = [process.choose(u, y, start, prior) for start in starts]
    return max(ends, key=process._log_posterior(u, y, prior))


RULES = {
    "": Rule("all rules", {}),
    "draws near maxima": Rule(
        "a round also teaches s around its maximum",
        {
            f"{OF_SEARCH}._proposals": lambda search, walker: maximum(
                search.density, walker.z, walker.radius * search.spread
            )[0][None]
        },
    ),
    "masses by chains": Rule(
        "a mode of next to no mass is not taken for the posterior",
        {"approximation.chain.mode_at": lambda s, z, a, rng: Mode(z, a, s.values(z[None])[0][0])},
    ),
    "other maxima": Rule("other modes are found", {f"{OF_SEARCH}._look_at_maxima": no_evaluation}),
    "steps by mass": Rule(
        "the search stays out of the necks of funnels",
        {f"{OF_SEARCH}._volumes": lambda search, points: np.zeros(len(points))},
    ),
    "bad fits": Rule("a local mode is left", {f"{SEARCH}.BADLY_FITTED": (np.inf, np.inf)}),
    "progress": Rule("a slow climb is left", {f"{SEARCH}.LEAST_PROGRESS": -np.inf}),
    "draws of the prior": Rule(
        "so is a mode among others", {f"{OF_SEARCH}._predicts_prior": no_evaluation}
    ),
    "searches apart": Rule(
        "a saddle is left, or a mode without mass",
        {f"{OF_SEARCH}._pays_for_another": lambda search: False},
    ),
    "jumps": Rule(
        "chains on s go from mode to mode", {"approximation.modes.mix": lambda *args: None}
    ),
    "images": Rule("mirrored modes are found", {f"{OF_SEARCH}._look_at_images": no_evaluation}),
    "directions": Rule(
        "few directions among many inputs matter",
        {f"{FIT}._Problem.take_directions": lambda *args: None},
    ),
    "logarithms": Rule(
        "inputs and outputs may vary by orders of magnitude",
        {f"{FIT}.variants_of": lambda x, y: [(False, False)]},
    ),
    "tails": Rule(
        "s is not too low in tails, where a chain would be stuck",
        {"samplers.approximation.learning.look_into_tails": lambda *args: None},
    ),
    "numbers of a process": Rule(
        "four: noise of deep values, noises to try, powers to begin with, the expected density",
        {f"{PROCESS}.DEEP_NOISE": 0.0, f"{PROCESS}.NOISES": (), f"{PROCESS}.SMOOTHS": (5.0,)}
        | {f"{ACTIVE}.draws.Density.of": no_expectation},
    ),
    "unknown": Rule(
        "s has no mass where little is known",
        {f"{ACTIVE}.draws.Density.unknown": lambda density, sd: np.zeros(len(sd))},
    ),
    "powers of scales": Rule(
        "coefficients are functions of scales",
        {f"{PROCESS}.powers": lambda x, hyper: np.zeros((*x.T.shape, 4))},
    ),
    "exact coordinates": Rule(
        "regressions and hierarchies are quadratic in most parameters",
        {f"{STAR}.EXACT_LINE": -1.0, f"{STAR}.MOST_NOISE": -1.0},
    ),
    "pattern search": Rule(
        "the numbers of a process follow its points",
        {f"{PROCESS}.choose": lambda u, y, last, prior: process._climbed(last, u, y, prior)[1]},
    ),
    "slopes": Rule(
        "they are chosen well where averages are made",
        {f"{PROCESS}.best_of_starts": best_by_pattern},
    ),
    "kernels": Rule("a process may be rough or smooth", {f"{PROCESS}.N_KERNELS": 0}),
    "exact with noise": Rule(
        "a solver's tolerance does not hide what is quadratic", {f"{STAR}.MOST_NOISE": -1.0}
    ),
    "stretches": Rule(
        "s may vary faster along some coordinates", {f"{DENSITY}.MOST_FOR_SURROGATE": 0}
    ),
    "rules of the unknown": Rule(
        "three of moves: depths of the lower bound, wide moves, looks into tails",
        {f"{SURROGATE}.inner_chain.DEPTHS": (0.0,)}
        | {f"{SURROGATE}.inner_chain.power": lambda d: 1.0}
        | {f"{SURROGATE}.learning.places_to_look": lambda chain, seen, rng: seen.states[:0]},
    ),
    "look": Rule("modes are found", {"step.warm_start.look.least_for_look": lambda d: np.inf}),
}


@cache
def names_read():
    """Return all names that code of the package reads."""
    trees = [ast.parse(p.read_text("utf-8")) for p in Path(pk.__file__).parent.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    read = [node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Load)]
    return {getattr(node, "id", None) or getattr(node, "attr", None) for node in read}


def patches(without):
    """Yield patches of names, new values by paths, wherever they have been imported."""
    for path, value in without.items():
        owner, name = path.rsplit(".", 1)
        assert name in names_read(), f"Nothing reads {path}: the rule is not switched off."
        owner = resolve_name(f"pymc_kameleon.{owner}")
        own = getattr(owner, name)
        if isinstance(owner, type):
            yield mock.patch.object(owner, name, value)
            continue
        for other in list(sys.modules.values()):
            if other.__name__.startswith("pymc_kameleon") and getattr(other, name, None) is own:
                yield mock.patch.object(other, name, value)


def plan(options):
    """Return what is to be run."""
    cases = [case for family in FAMILIES.values() for case in family]
    budgets = [int(n) for n in options.budgets or BUDGETS]
    rules = ["", *options.rules] if options.rules else RULES
    return each(measured, seed=range(options.seeds), case=cases, budget=budgets, rule=rules)


def add_options(parser):
    """Add the option of this script."""
    parser.add_argument("--rules", nargs="+", help="some of them")


def tables(rows):
    """Return the table of what errors are without each rule, over errors with all."""
    cases = {r["case"] for r in rows}
    families = {name: of for name, of in FAMILIES.items() if cases & {*of}}
    with_all = {(r["case"], r["budget"], r["seed"]): r for r in rows if not r["rule"]}
    lines = []
    for rule, own in grouped(rows, "rule").items():
        if rule in RULES and rule:
            pairs = [(with_all.get((r["case"], r["budget"], r["seed"])), r) for r in own]
            pairs = [pair for pair in pairs if pair[0]]
            cells = [compared([p for p in pairs if p[1]["case"] in of]) for of in families.values()]
            lines.append([rule, RULES[rule].what, *(cell for pair in cells for cell in pair)])
    titles = ["rule", "what for", *(t for name in families for t in (name, "wrong"))]
    return {"ablations.md": {"ablations": table(titles, lines)}}


def compared(pairs):
    """Return the ratio of errors without a rule to those with it, and runs that are wrong."""
    if not pairs:
        return "", ""
    logs = [np.log(without["error"] / own["error"]) for own, without in pairs]
    ratio, error = np.exp(np.mean(logs)), np.std(logs) / np.sqrt(len(logs))
    wrong = [sum(one["wrong"] for one in side) for side in zip(*pairs, strict=True)]
    return f"{ratio:.2f} ± {ratio * error:.2f}", f"{wrong[0]} → {wrong[1]} of {len(pairs)}"


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=4, add_options=add_options)
