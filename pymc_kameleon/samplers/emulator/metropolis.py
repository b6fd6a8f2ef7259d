"""EmulatorMetropolis: moves on the posterior with an emulated simulator, accepted by the true one.

An ApproximationMetropolis whose s is the model's posterior with emulated black boxes.
"""

from typing import NamedTuple

from pymc_kameleon.approximation.modes import MOST_MODES
from pymc_kameleon.core.arrays import extended, floats
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.model.layout import elements
from pymc_kameleon.model.pymc_internals import natural_name
from pymc_kameleon.model.simulator_logp import CoarseLogp, SimulatorLogp
from pymc_kameleon.samplers.approximation import metropolis as approximation
from pymc_kameleon.samplers.approximation.initial_search import SearchByApproximation
from pymc_kameleon.samplers.approximation.metropolis import ApproximationMetropolis
from pymc_kameleon.samplers.approximation.step import several_modes
from pymc_kameleon.samplers.emulator import findings
from pymc_kameleon.samplers.emulator.density import Mirrors
from pymc_kameleon.samplers.emulator.evaluations import dataset_of, reused_by
from pymc_kameleon.samplers.emulator.inner_chain import (
    log_emulated_model,
    mirror_jump,
    note_calls,
)
from pymc_kameleon.samplers.emulator.outputs_fit import OutputsFit
from pymc_kameleon.samplers.symmetries import likely_symmetries
from pymc_kameleon.step.groups import EMULATOR_MOVES, Keeps
from pymc_kameleon.step.learned import COORDINATE

Kept = extended("Kept", approximation.Kept, inputs=floats("P"), outputs=floats("Q"))


class Stats(NamedTuple):
    """What a draw tells besides."""

    emulator_accept: floats(1)
    reference_accept: floats(1)
    kept: Kept


@jit
def report(state, parameters, stats):
    """Report what all report, and what the black boxes were given, and have returned."""
    n = stats.kept.inputs.size
    copy(state.noted[:n], stats.kept.inputs)
    copy(state.noted[n:], stats.kept.outputs)
    return approximation.report(state, parameters, stats)


class EmulatorMetropolis(ApproximationMetropolis):
    r"""Metropolis by an emulated simulator: for models with a black box of predictions.

    .. math:: y \sim K_s^M(x, \cdot), \qquad
        \alpha = \min\Bigl(1, \frac{\pi(y)\, s(x)}{\pi(x)\, s(y)}\Bigr)

    s is the model's own posterior density, in which a Gaussian process stands in for what each
    black box returns, and :math:`K_s` a transition of Hamiltonian Monte Carlo on it. Priors,
    hierarchies, transforms and noise are exact, so that only the simulator is to be learned, as a
    function of its own inputs. A move costs one evaluation of the model.

    Parameters
    ----------
    steps_per_draw : int, optional
        Transitions per draw; by default 1, so that a draw costs one evaluation at most.
    target_accept : float, optional
        Acceptance rate that the scale of the random walk is tuned to; 0.234, or 0.44 in one
        dimension. The better the emulator, the more of its moves are accepted.
    {common parameters}

    Notes
    -----
    Before its first draw a chain searches for the posterior with an emulator that it refines as it
    goes. While tuning, emulators learn from the ends of moves. After that they are frozen.
    If emulators do not come to predict, for example a simulator with jumps, walks and draws of a t
    density do most of the work, and a warning says so. A model without a black box that can be
    emulated is refused by a ValueError, which says why.

    The statistics ``emulator_accept`` and ``reference_accept`` are the mean acceptance
    probabilities of the draw's moves by the emulator and by the t, NaN if there were none;
    ``scaling`` is the scale of the walk. See docs/emulator.md.

    References
    ----------
    Christen & Fox (2005). Markov chain Monte Carlo using an approximation. Journal of Computational
    and Graphical Statistics 14.

    Conti & O'Hagan (2010). Bayesian emulation of complex multi-output and dynamic computer models.
    Journal of Statistical Planning and Inference 140.

    Neal (2011). MCMC using Hamiltonian dynamics. Handbook of Markov Chain Monte Carlo.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     dt = pk.sample(step=pk.EmulatorMetropolis())
    ...     pk.summary(dt)  # averages that the emulator has corrected
    """

    name = "emulator_metropolis"
    kinds = "walk", "reference", "emulator"
    initial_search = SearchByApproximation
    stats = Stats
    algorithm = approximation.algorithm_of(log_emulated_model, mirror_jump, note_calls)._replace(
        report=report
    )
    keeps = Keeps(
        EMULATOR_MOVES,
        {"others": ["run", COORDINATE], "inputs": ["input"], "outputs": ["output"]},
    )
    lengths_of_run = ApproximationMetropolis.lengths_of_run | {*Mirrors._fields}

    def _log_density_of(self, own, region):
        return SimulatorLogp(self.model, own, self._initial_point, self._compile_kwargs, region)

    def make_fit(self, log_density):
        """Return the OutputsFit."""
        n_mirrors = MOST_MODES - 1 if likely_symmetries(self) else 0
        return OutputsFit(log_density, n_mirrors)

    def _findings(self):
        has_looked = self.fit.n_mirrors == 0 or self.tuning.found.looked[0]
        found = [
            findings.of_efficiency(self.tuning.worth, self._names_of_boxes),
            several_modes(self.parameters.s.modes),
            findings.of_mirrors(self.parameters.s.mirrors, self._names_of_parameters),
            None if has_looked else finding("mirrors_not_sought"),
        ]
        return list(filter(None, found))

    @property
    def _names_of_parameters(self):
        """What users call the coordinates."""
        shapes = self.layout.shapes.items()
        return [one for name, shape in shapes for one in elements(natural_name(name), shape)]

    @property
    def _names_of_boxes(self):
        return [box.name for box in self.log_density.simulators.boxes]

    # ---- evaluations of this run, and of earlier ones -------------------------------------------

    def evaluations(self, states, numbers, kept):
        """Return a Dataset of what chains have evaluated."""
        return dataset_of(self, states, numbers, kept)

    def reused(self, datasets):
        """Return what the step takes up of Datasets of evaluations."""
        return reused_by(self, datasets)


class _CoarseEmulatorMetropolis(EmulatorMetropolis):
    """Moves on the posterior that the coarse models of black boxes give."""

    def _log_density_of(self, own, region):
        return CoarseLogp(self.model, own, self._initial_point, self._compile_kwargs, region)


def coarse_twin(step):
    """Return an EmulatorMetropolis like another one, by the coarse models of its black boxes."""
    _, given = step.__getnewargs_ex__()
    return _CoarseEmulatorMetropolis(**given)
