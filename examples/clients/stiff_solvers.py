"""A stiff ODE, solved by SUNDIALS or by diffrax: Robertson's reactions, the example of both.

Three substances, and three rates that differ by nine orders of magnitude. Each substance is
measured at eight times. The solver is a black box of PyMC, which returns predictions, and
EmulatorMetropolis calls it a few hundred times.

    python stiff_solvers.py sundials  # pip install sundials4py
    python stiff_solvers.py diffrax  # pip install diffrax
"""

import argparse

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_kameleon as pk

RATES = np.array([0.04, 3e7, 1e4])
START = np.array([1.0, 0.0, 0.0])
TIMES = np.geomspace(0.01, 1e4, 8)
SHOWN = ["mean", "sd", "mcse_mean", "ess"]
RTOL, ATOL, MOST_STEPS = 1e-8, 1e-12, 10_000


def speeds(a, b, c, rates):
    """Return how fast each of the substances grows."""
    first, second, back = rates[0] * a, rates[1] * b * b, rates[2] * b * c
    return back - first, first - second - back, second


def by_sundials(rates):
    """Return what there is of the substances at TIMES (8, 3), NaN where CVODE gives up."""
    from sundials4py import core, cvodes

    _, context = core.SUNContext_Create(core.SUN_COMM_NULL)
    state = START.copy()
    y = core.N_VMake_Serial(len(state), state, context)

    def right_hand_side(t, y, dy, _):
        core.N_VGetArrayPointer(dy)[:] = speeds(*core.N_VGetArrayPointer(y), rates)
        return 0

    solver = cvodes.CVodeCreate(cvodes.CV_BDF, context)
    matrix = core.SUNDenseMatrix(len(state), len(state), context)
    linear = core.SUNLinSol_Dense(y, matrix, context)
    cvodes.CVodeInit(solver.get(), right_hand_side, 0.0, y)
    cvodes.CVodeSStolerances(solver.get(), RTOL, ATOL)
    cvodes.CVodeSetLinearSolver(solver.get(), linear, matrix)
    cvodes.CVodeSetMaxNumSteps(solver.get(), MOST_STEPS)
    found = np.full((len(TIMES), len(state)), np.nan)
    for row, time in zip(found, TIMES, strict=True):
        flag, _ = cvodes.CVode(solver.get(), time, y, cvodes.CV_NORMAL)
        if flag < 0:
            return np.full_like(found, np.nan)
        row[:] = state
    return found


def make_diffrax():
    """Return the same by diffrax, a function of JAX."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import diffrax
    import jax.numpy as jnp

    @jax.jit
    def by_diffrax(rates):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, rates: jnp.stack(speeds(*y, rates))),
            diffrax.Kvaerno5(),
            t0=0.0,
            t1=TIMES[-1],
            dt0=1e-4,
            y0=jnp.array(START),
            args=rates,
            saveat=diffrax.SaveAt(ts=jnp.array(TIMES)),
            stepsize_controller=diffrax.PIDController(RTOL, ATOL),
            max_steps=MOST_STEPS,
            throw=False,  # NaN rejects, and an exception would end the run
        )
        is_good = solution.result == diffrax.RESULTS.successful
        return jnp.where(is_good, solution.ys, jnp.nan)

    return by_diffrax


def build_model(substances, observed):
    """Return the model: rates to factors of e in advance, and errors of some per cent."""
    with pm.Model() as model:
        rates = pm.LogNormal("rates", np.log(2 * RATES), 1, shape=3)
        spread = pm.HalfNormal("spread", 0.1)
        pm.LogNormal("seen", pt.log(substances(rates)), spread, observed=observed)
    return model


def main(arguments=None):
    """Sample, and print averages beside the rates that the data were made with."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("solver", choices=["sundials", "diffrax"])
    parser.add_argument("--evaluations", type=int, default=400)
    options = parser.parse_args(arguments)
    solve = by_sundials if options.solver == "sundials" else make_diffrax()

    @pk.black_box(ndim=2)
    def reactions(rates):
        return np.asarray(solve(rates))

    noise = np.random.default_rng(1).lognormal(0, 0.05, (len(TIMES), len(START)))
    observed = np.asarray(solve(RATES)) * noise
    with build_model(reactions, observed):
        dt = pk.sample(max_evaluations=options.evaluations, random_seed=1)
        print(pk.summary(dt)[SHOWN])
    print("the data are of", RATES)


if __name__ == "__main__":
    main()
