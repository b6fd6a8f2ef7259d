"""The fit of an EmulatorMetropolis: emulators of what black boxes return.

Symbols: as in density.py and learning.py; w = π/s at the ends of moves.
"""

import numpy as np

from pymc_kameleon.approximation.chain import LEAST_STOPS
from pymc_kameleon.approximation.search import N_DESIGN
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.approximation.fit import Arrays, Fit
from pymc_kameleon.samplers.approximation.learning import drops
from pymc_kameleon.samplers.emulator.density import DensityScratch, Emulated
from pymc_kameleon.samplers.emulator.evaluations import nothing_reused
from pymc_kameleon.samplers.emulator.fit import ALONE
from pymc_kameleon.samplers.emulator.gaussian_process import Structure
from pymc_kameleon.samplers.emulator.inner_chain import EmulatedDensity
from pymc_kameleon.samplers.emulator.learning import (
    BoxCalls,
    Choices,
    Evaluations,
    best_variant,
    contenders,
    curvatures,
    earlier_calls,
    evaluations_of,
    misfit,
    score,
    unpacked,
    unpredicted,
    whole_points,
    with_images,
)
from pymc_kameleon.samplers.emulator.mirrors import Images

MOST_POINTS = 450
"""Points that the emulator of a box is fitted to, at most."""

STOPS_BY_OUTPUTS = 2000
"""Stops of the chain on s times outputs, at most: of many outputs, each takes longer."""

FAR_TOO_HIGH = -5.0
"""Median of log w below which s is high where nothing is known."""


class OutputsFit(Fit):
    """Emulators of black boxes, by which s is the model's own posterior.

    Modes may have so many mirror images.
    """

    def __init__(self, log_density, n_mirrors):
        simulators = log_density.simulators
        self.structure = Structure.of(simulators.sizes, simulators.applications)
        self.sizes = {"P": simulators.p, "Q": simulators.q}
        self.n_outputs, self.n_noted = simulators.q, simulators.p + simulators.q
        self.n_mirrors = n_mirrors

    def stops(self, d):
        """Return R: of many outputs, each stop takes longer."""
        return min(super().stops(d), max(STOPS_BY_OUTPUTS // self.n_outputs, LEAST_STOPS))

    def start(self, step, scales):
        """Return fresh Arrays, with what is taken up of earlier runs."""
        d, before = scales.size, step.of_run.known_before
        sizes = self.structure.sizes(MOST_POINTS)
        sizes |= {"d": d, "tape": 2 * self.n_noted + d, "mirrors": self.n_mirrors}
        if before is None:
            before = nothing_reused(len(self.structure.boxes))
        s = allocate(
            Emulated,
            sizes,
            structure=self.structure,
            factor=np.diag(scales),
            radius=np.inf,
            leap=0.3,
            most_leaps=8,
            n_inner=10,
        )
        n_before = np.count_nonzero(self.are_fine(before.rows))
        known = {"hyper": before.hyper, "scores": before.scores, "n_full": n_before}
        choices = allocate(Choices, sizes, widening=2.0, **known)
        return Arrays(s, choices, allocate(DensityScratch, sizes), before.rows)

    def are_fine(self, reused):
        """Return which calls before this run are not of coarse models, (n,)."""
        return reused[:, 0] < len(self.structure.boxes)

    def density(self, step, rng):
        """Return the emulated posterior of a step."""
        return EmulatedDensity(step.log_density.target(rng), step.parameters.s)

    def noted(self, step, z, outputs):
        """Return inputs and outputs of the black boxes."""
        points = whole_points(step.log_density, z[None])
        return np.append(step.log_density.inputs_at(points, outputs[None])[0], outputs)

    def fit(self, chains, known, new):
        """Fit the emulator of each box."""
        first, structure = chains[0], self.structure
        known, new = (Evaluations.of(part, structure) for part in (known, new))
        choices, emulated, d = first.tuning.choices, first.parameters.s, first.state.x.size
        drop = drops(known.logp, d)
        if not (np.isfinite(drop) & np.isfinite(known.y).all(axis=1)).any():
            return
        reused = first.tuning.reused
        n = len(known.z) + np.count_nonzero(self.are_fine(reused))
        look = "all" if n >= 2 * choices.n_full[0] else "next"
        if look == "all":
            choices.n_full[0] = n
        known, new = (with_images(part, emulated, first.log_density) for part in (known, new))
        drop, curvature = drops(known.logp, d), curvatures(first.log_density, known)
        is_new = np.isin(known.z[:, 0], new.z[:, 0])
        for b in range(len(structure.boxes)):
            earlier = earlier_calls(reused, structure, b, first.log_density, known)
            box = BoxCalls(structure, b, known, drop, curvature, d, MOST_POINTS, earlier)
            if is_new.any() and not is_new.all():
                score(box, choices, first.log_density, is_new)
            likely = contenders(choices.scores[b], box.variants)
            fits = {k: box.fit(k, unpacked(choices.hyper[b, k]), look) for k in likely}
            fits = {k: fitted for k, fitted in fits.items() if fitted is not None}
            for k, fitted in fits.items():
                choices.hyper[b, k] = fitted.hyper
            if fits:
                choices.variant[b] = best_variant(choices.scores[b], fits)
                fits[int(choices.variant[b])].write(structure, emulated.emulator, b)

    def judge(self, choices, log_w):
        """Let s end nearer, or farther, by how far it was off at the newest ends of moves."""
        farther = np.median(np.where(np.isfinite(log_w), log_w, -np.inf)) > FAR_TOO_HIGH
        widening = choices.widening[0] * (1.5 if farther else 0.5)
        choices.widening[0] = np.clip(widening, 1.0, 8.0)

    def bound(self, step, density, known):
        """Let s end where no good points are, and no mode that was found."""
        d, modes = known.z.shape[1], density.chain.modes

        def distances(z):
            return np.linalg.norm(density.u_of(density.nearest_image(z)), axis=1)

        of_good = np.quantile(distances(known.z[drops(known.logp, d) == 0]), 0.9)
        of_modes = distances(modes.mode_means[: modes.n_modes[0]])
        reach = max(of_good, *of_modes, np.sqrt(d))
        density.chain.radius[0] = step.tuning.choices.widening[0] * reach

    def misfit(self, step):
        """Return χ² of the best point's outputs, and their number."""
        return misfit(step.log_density, evaluations_of([step]))

    def unpredicted(self, step, density, n):
        """Return the median error of the newest n outputs, in units of noise."""
        return unpredicted(density, step.log_density, evaluations_of([step]), n)

    def images(self, step):
        """Return the Images of a step."""
        return Images(step)

    def is_guided(self, step):
        """Whether each box has calls of a coarse model, and uses them."""
        choices, boxes = step.tuning.choices, np.arange(len(self.structure.boxes))
        known = np.isin(len(boxes) + boxes, step.tuning.reused[:, 0])
        difference = choices.hyper[boxes, choices.variant, -1]  # NaN before there is a fit
        return bool(np.all(known & (difference != ALONE)))

    def knows_enough(self, step):
        """Whether each box had the calls of a design, and one more for each of its inputs."""
        reused, boxes = step.tuning.reused, self.structure.boxes
        calls = [np.count_nonzero(reused[:, 0] == b) for b in range(len(boxes))]
        return bool(np.all(calls >= N_DESIGN + boxes[:, 0]))
