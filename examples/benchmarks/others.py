"""Samplers of other packages at a budget of evaluations: one function for each, used by others.

A function takes its name and a `Problem` of problems.py, and returns a run: what takes the
evaluations of each of CHAINS chains, the share of them that is for tuning, and a seed, and returns
draws after tuning, (chains, n, d) on the unconstrained scale. All start where ours do, but for SMC
and pocoMC, which start from a prior, and nutpie, which chooses its own starts about the same point.
Evaluations of the gradient, which gives the log-density too, count as one each.
"""

import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from copy import deepcopy
from functools import partial
from io import StringIO

import numpy as np
import pymc as pm
from benchmark import CHAINS, costs, sample_by_pymc
from scipy.stats import norm

LEAST_TUNING = 5
"""Draws of tuning at least."""

PILOT, PILOT_SEED = 200, 12345
"""Draws of the run in advance that tells what a draw costs, while tuning and after."""


class Spent(Exception):
    """The budget is spent."""


def counted(logp, budget):
    """Return the same function, which raises Spent when it is called more often than this."""
    left = budget

    def function(x):
        nonlocal left
        left -= 1
        if left < 0:
            raise Spent
        return logp(x)

    return function


def planned(go):
    """Return a run of go(tune, draws, seed) that makes about as many evaluations as it should.

    `go` returns the draws after tuning (chains, draws, d), and what each draw cost, tuning first,
    (chains, tune + draws). What goes beyond the budget is cut off.
    """
    _, spent = go(PILOT, PILOT, PILOT_SEED)
    tuning, drawing = spent[:, :PILOT].mean(), spent[:, PILOT:].mean()

    def run(each, share, seed):
        tune = max(LEAST_TUNING, round(share * each / tuning))
        draws = max(1, round((1 - share) * each / drawing))
        x, spent = go(tune, draws, seed)
        n = np.count_nonzero(np.cumsum(spent.sum(axis=0)) <= CHAINS * each)
        return x[:, : max(0, n - tune)]

    return run


# ---- PyMC ---------------------------------------------------------------------------------------


def step_of_pymc(cls, cost, sampler, problem):
    """Return a run of a step of PyMC; cost(statistics, problem) is what each draw costs."""
    with problem.model:
        step = cls()
    fresh = deepcopy(step.sampling_state)

    def go(tune, draws, seed):
        step.sampling_state = deepcopy(fresh)
        dt = sample_by_pymc(
            draws,
            tune=tune,
            step=step,
            model=problem.model,
            initvals=problem.initvals(seed),
            random_seed=seed,
            discard_tuned_samples=False,
            idata_kwargs={"include_transformed": True},
        )
        return problem.coordinates(dt["posterior"]), costs(dt, lambda group: cost(group, problem))

    return planned(go)


def constant(n, stats):
    """Return that each draw costs n, (chains, draws)."""
    return np.full((stats.sizes["chain"], stats.sizes["draw"]), n)


def of_differences(stats, problem):
    """Two evaluations for each variable by Metropolis, which compiles their difference."""
    return constant(2 * len(problem.initial), stats)


def of_slices(stats, problem):
    """Four for each coordinate, and one for each step out and each one back in."""
    steps = [stats[name].values for name in ("nstep_out", "nstep_in")]
    return 4 * problem.d + sum(n.reshape(*n.shape[:2], -1).sum(axis=2) for n in steps)


def of_trees(stats, problem):
    """One for each leapfrog step, and one for the start, which PyMC evaluates again."""
    return stats["n_steps"].values + 1


def sequential(sampler, problem):
    """Return a run of PyMC's SMC from the model's prior, with as many particles as go about."""
    kernel = pm.smc.IMH(model=problem.model)

    def go(n, seed):
        """Return n particles, and how many evaluations of the likelihood they took."""
        kernel.draws = n
        spent = anneal(kernel, None, np.random.default_rng(seed))
        return kernel.tempered_posterior.copy(), spent

    cost = go(PILOT, PILOT_SEED)[1] / PILOT
    return lambda each, share, seed: go(max(2, round(CHAINS * each / cost)), seed)[0][None]


def anneal(kernel, start, rng):
    """Bring the particles of a kernel to the posterior; return evaluations of the likelihood."""
    kernel.initialize(start, rng)
    spent = kernel.draws
    while kernel.beta < 1:
        kernel.update_beta_and_weights()
        kernel.step()
        spent += kernel.draws * (kernel.n_steps - 1)
    return spent


# ---- others with a gradient ---------------------------------------------------------------------


def nutpie(adaptation, sampler, problem):
    """Return a run of nutpie with one of its mass matrices."""
    import nutpie

    compiled = nutpie.compile_pymc_model(problem.model)

    def go(tune, draws, seed):
        dt = nutpie.sample(
            compiled,
            adaptation=adaptation,
            draws=draws,
            tune=tune,
            seed=seed,
            chains=CHAINS,
            cores=1,
            store_unconstrained=True,
            save_warmup=True,
            progress_bar=False,
        )
        spent = costs(dt, lambda group: group["n_steps"].values)
        return dt["sample_stats"]["unconstrained_draw"].values, spent

    return planned(go)


def blackjax(sampler, problem):
    """Return a run of BlackJAX's NUTS after its window adaptation, one chain after the other.

    JAX compiles the log-density, and a chain anew for each length, when it is first run.
    """
    import jax
    from blackjax import nuts, window_adaptation
    from pymc.sampling.jax import get_jaxified_graph

    x, logp = problem.graph()
    compiled = get_jaxified_graph([x], [logp])  # lets JAX use double precision

    def density(x):
        return compiled(x)[0]

    adaptation = window_adaptation(nuts, density)

    @partial(jax.jit, static_argnums=(2, 3))
    def chain(key, start, tune, draws):
        tuning, drawing = jax.random.split(key)
        (state, parameters), adapted = adaptation.run(tuning, start, tune)
        step = nuts(density, **parameters).step

        def draw(state, key):
            state, info = step(key, state)
            return state, (state.position, info.num_integration_steps)

        _, (x, n_steps) = jax.lax.scan(draw, state, jax.random.split(drawing, draws))
        return x, jax.numpy.append(adapted.info.num_integration_steps, n_steps)

    def go(tune, draws, seed):
        keys = jax.random.split(jax.random.key(seed), CHAINS)
        starts = problem.starts(CHAINS, seed)
        chains = [chain(*both, tune, draws) for both in zip(keys, starts, strict=True)]
        x, spent = zip(*chains, strict=True)
        return np.array(x), np.array(spent)

    return planned(go)


# ---- ensembles ----------------------------------------------------------------------------------


def n_walkers(problem):
    """Return as few walkers as these packages take."""
    return max(CHAINS, 2 * problem.d)


def emcee(move, sampler, problem):
    """Return a run of emcee with one of its moves."""
    from emcee import EnsembleSampler, moves

    n = n_walkers(problem)

    def run(each, share, seed):
        ensemble = EnsembleSampler(n, problem.d, problem.logp, moves=getattr(moves, move)())
        ensemble.random_state = np.random.RandomState(seed).get_state()
        length = CHAINS * each // n - 1  # the starts are evaluated, too
        ensemble.run_mcmc(problem.starts(n, seed), length)
        return ensemble.get_chain(discard=round(share * length)).transpose(1, 0, 2)

    return run


def zeus(sampler, problem):
    """Return a run of zeus, which is cut short where the budget is spent."""
    from zeus import EnsembleSampler

    n = n_walkers(problem)

    def run(each, share, seed):
        np.random.seed(seed)  # noqa: NPY002 (it takes no generator)
        logp = counted(problem.logp, CHAINS * each)
        ensemble, x = EnsembleSampler(n, problem.d, logp, verbose=False), []
        options, told = {"iterations": CHAINS * each // n, "progress": False}, StringIO()
        with suppress(Spent), redirect_stdout(told), redirect_stderr(told):  # it prints errors
            for state in ensemble.sample(problem.starts(n, seed), **options):
                x.append(np.array(state[0]))
        return np.array(x)[round(share * len(x)) :].reshape(-1, n, problem.d).transpose(1, 0, 2)

    return run


# ---- others -------------------------------------------------------------------------------------


def pints(sampler, problem):
    """Return a run of the adaptive Metropolis of PINTS, its default, which never stops adapting."""
    from pints import HaarioBardenetACMC

    def run(each, share, seed):
        np.random.seed(seed)  # noqa: NPY002 (it takes no generator)
        chains, tune = [], round(share * each)
        for start in problem.starts(CHAINS, seed):
            chain, x = HaarioBardenetACMC(start), []
            for i in range(each):
                if i == min(200, tune // 2):  # its default is 200, too many where there are few
                    chain.set_initial_phase(False)
                told = chain.tell(problem.logp(chain.ask()))
                x.append(told[0])
            chains.append(x[tune:])
        return np.array(chains)

    return run


def preconditioned(sampler, problem):
    """Return a run of pocoMC, from wide normals about the initial point to the posterior.

    It is cut short where the budget is spent; before it has arrived at the posterior, that leaves
    no draws.
    """
    import pocomc

    prior = pocomc.Prior([norm(x, WIDE) for x in problem.centre])

    def run(each, share, seed):
        budget = CHAINS * each
        logp = counted(problem.logp, budget)
        n_active = min(256, max(2 * problem.d, budget // 50))
        smc = pocomc.Sampler(
            prior,
            lambda x: logp(x) - prior.logpdf(x[None])[0],
            n_effective=2 * n_active,
            n_active=n_active,
            random_state=seed,
        )
        with suppress(Spent), redirect_stderr(StringIO()):
            smc.run(n_total=budget, n_evidence=0, progress=False)
        if smc.particles.get("beta", -1) < 1:
            return np.empty((1, 0, problem.d))
        return smc.posterior(resample=True)[0][None]

    return run


def variational(sampler, problem):
    """Return a run of PyVBMC from one start.

    Its answer is a mixture of normals, of which we draw. A run that fails leaves no draws.
    Plausible bounds are a unit about the start, as the starts of all samplers are.
    """
    from pyvbmc import VBMC

    def run(each, share, seed):
        [start], size = problem.starts(1, seed), problem.case.jitter
        try:
            vbmc = VBMC(
                problem.logp,
                start,
                plausible_lower_bounds=start - size,
                plausible_upper_bounds=start + size,
                options={"max_fun_evals": CHAINS * each, "display": "off"},
                seed=seed,
            )
            posterior, _ = vbmc.optimize()
        except (ValueError, FloatingPointError, np.linalg.LinAlgError) as error:
            print(f"PyVBMC of {problem.name}, seed {seed}: {error!r}", file=sys.stderr)
            return np.empty((1, 0, problem.d))
        return posterior.sample(VARIATIONAL_DRAWS)[0][None]

    return run


WIDE = 5.0
"""Standard deviation of the normals from which pocoMC starts."""
VARIATIONAL_DRAWS = 4000
"""Draws of the mixture that PyVBMC answers."""


SAMPLERS = {
    "NUTS": partial(step_of_pymc, pm.NUTS, of_trees),
    "nutpie": partial(nutpie, "diag"),
    "nutpie low rank": partial(nutpie, "low_rank"),
    "BlackJAX": blackjax,
    "DEMetropolisZ": partial(step_of_pymc, pm.DEMetropolisZ, lambda s, _: constant(2, s)),
    "Metropolis": partial(step_of_pymc, pm.Metropolis, of_differences),
    "Slice": partial(step_of_pymc, pm.Slice, of_slices),
    "SMC": sequential,
    "emcee": partial(emcee, "StretchMove"),
    "emcee DE": partial(emcee, "DEMove"),
    "zeus": zeus,
    "PINTS": pints,
    "pocoMC": preconditioned,
    "PyVBMC": variational,
}
PACKAGES = {
    "nutpie": "nutpie",
    "nutpie low rank": "nutpie",
    "BlackJAX": "blackjax",
    "emcee": "emcee",
    "emcee DE": "emcee",
    "zeus": "zeus",
    "PINTS": "pints",
    "pocoMC": "pocomc",
    "PyVBMC": "pyvbmc",
}
"""What they need besides PyMC."""
WITH_GRADIENT = ("NUTS", "nutpie", "nutpie low rank", "BlackJAX")
BY_LENGTH = ("BlackJAX",)
"""Those that compile for each number of draws."""
