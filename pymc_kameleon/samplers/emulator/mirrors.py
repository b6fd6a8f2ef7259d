"""A look for modes that mirror the one found: parameters have changed places, or a sign.

No climb comes to such a mode. So a few images of the best place are evaluated, under maps that
models often are symmetric under: those whose log-density would be as high if the black boxes
returned the same there. If two images have the same outputs, their product is tried, too. Where
they do return the same, the emulator is fitted to the images of all evaluations, too. Where they do
not, and the place is good all the same, a climb begins there. In both cases the chain on s goes to
images from then on (inner_chain.py).

Symbols: G a map; as in approximation/search.py.
"""

from itertools import combinations

import numpy as np
from scipy.special import logsumexp

from pymc_kameleon.approximation.drops import NEGLIGIBLE, drop
from pymc_kameleon.approximation.modes import Mode
from pymc_kameleon.samplers.emulator import learning
from pymc_kameleon.samplers.symmetries import likely_symmetries

SAME = 0.1
"""Distance of two rows of outputs, in units of the noise, up to which they are the same."""


class Images:
    """What the search of a step asks of images, and where it keeps the maps that it has found."""

    def __init__(self, step):
        self._step, self._outputs = step, None  # those of the place whose images are asked for
        self._others = None

    def likely(self, z, least, maps=None):
        """Return maps under which log π of z hardly falls if outputs stay, least change first."""
        step = self._step
        maps = likely_symmetries(step) if maps is None else maps
        known = learning.evaluations_of([step])
        rows = np.flatnonzero((known.z == z).all(axis=1))
        if not maps or len(rows) == 0:
            return []
        self._outputs = known.y[rows[0]]
        points = learning.whole_points(step.log_density, np.array([z, *(g @ z for g in maps)]))
        logp = step.log_density.logp_given(points, np.tile(self._outputs, (len(points), 1)))
        change = logp[1:] - logp[0]
        order = np.argsort(np.abs(np.round(change, 6)), kind="stable")
        return [maps[k] for k in order if change[k] > least]

    def are_same(self, n):
        """Return whether the newest n evaluations have the outputs of that place, (n,) bool."""
        known = learning.evaluations_of([self._step])
        return self._distances(known, self._outputs)[-n:] < SAME

    def other_places(self):
        """Return two good places (k, d) with other outputs, which are kept for `agree`."""
        known = learning.evaluations_of([self._step])
        good = np.flatnonzero(known.logp > known.logp.max() - drop(known.z.shape[1], NEGLIGIBLE))
        order = good[np.argsort(self._distances(known, self._outputs)[good])]
        rows = np.unique(order[[len(order) // 2, -1]])
        self._others = known.y[rows]
        return known.z[rows]

    def agree(self, n):
        """Whether the newest evaluations, images of those places under n maps, are as they are."""
        known, k = learning.evaluations_of([self._step]), len(self._others)
        weights = np.sqrt(learning.curvatures(self._step.log_density, known))
        y = known.y[-n * k :].reshape(n, k, -1)
        far = np.linalg.norm(weights * (y - self._others), axis=2)
        return (far < SAME).all(axis=1)

    def products(self, maps):
        """Return products of two maps whose images, evaluated last, have the same other outputs.

        So where amplitudes are to be exchanged along with rates, exchanges of each alone tell.
        """
        known, found = learning.evaluations_of([self._step]), {}
        differ = ~self.are_same(len(maps))
        for i, j in combinations(np.flatnonzero(differ), 2):
            product, y = maps[i] @ maps[j], known.y[i - len(maps)]
            is_inverse = np.array_equal(product @ product, np.eye(len(product)))
            is_new = not any(np.array_equal(product, one) for one in maps)
            if is_inverse and is_new and self._distances(known, y)[j - len(maps)] < SAME:
                found[product.tobytes()] = product
        return list(found.values())

    def _distances(self, known, y):
        """Return how far outputs are from some (Q,), in units of the noise, (n,)."""
        weights = np.sqrt(learning.curvatures(self._step.log_density, known))
        return np.linalg.norm(weights * (known.y - y), axis=1)

    def keep(self, same, others):
        """Let chains on s go by these maps, as many as fit; outputs are equal under the `same`."""
        mirrors = self._step.parameters.s.mirrors
        most, n_same, maps, products = len(mirrors.maps), 0, [], []
        for k, one in enumerate([*same, *others]):
            found = learning.group_of([*maps, one], most + 1)
            if len(found) <= most:  # s has to be the same at all images
                n_same, maps, products = n_same + (k < len(same)), [*maps, one], found
        n = len(products)
        mirrors.n_same[0], mirrors.n_maps[0], mirrors.n_products[0] = n_same, len(maps), n
        mirrors.maps[:n] = np.reshape(products, (n, *mirrors.maps.shape[1:]))

    def of(self, z):
        """Return the images of z (d,) under all products of maps whose outputs are the same."""
        mirrors = self._step.parameters.s.mirrors
        maps = mirrors.maps[: mirrors.n_same[0]]
        return [g @ z for g in learning.group_of(maps, len(mirrors.maps))]

    def modes(self, density, home, draws):
        """Return the Modes that mirror a Mode, with the masses that s has there.

        The mass of an image over that of the mode is the mean of s at the images of `draws` there
        over s at these.
        """
        mirrors = self._step.parameters.s.mirrors
        own = draws[(density.nearest_image(draws) == draws).all(axis=1)]
        found, (log_s, _) = [], density.values(own)
        for g in mirrors.maps[: mirrors.n_products[0]] if len(own) else ():
            log_ratio = logsumexp(density.values(own @ g.T)[0] - log_s) - np.log(len(own))
            found.append(Mode(g @ home.mean, home.factor, home.logp + log_ratio))
        return found
