"""The chain on an approximation s, in plain numpy, with the random numbers of the compiled one."""

import numpy as np
from slow_modes import SlowModes

from pymc_kameleon.approximation.chain import FIRST_STOPS, JUMP_SHARE, LEAP_RANGE, SHORTER


class SlowChain:
    """A chain on s in its own coordinates u = L⁻¹(z − μ).

    `log_s` maps u (d,) to log s and its gradient; `jump` maps u and a generator to another proposal
    and the log of its ratio, or to None where a trajectory is to be made.
    """

    def __init__(self, chain, log_s, jump=lambda u, rng: None):
        self.log_s, self.jump = log_s, jump
        self.mean, self.factor = chain.mean, np.tril(chain.factor)
        self.leap, self.most_leaps = chain.leap[0], chain.most_leaps[0]
        self.n_inner, self.modes = chain.n_inner[0], SlowModes(chain.modes)

    def jump_of_modes(self, u, rng):
        """Return a draw of the mixture of modes, if there is one, and the log of its ratio."""
        if self.modes.n > 0 and rng.random() < JUMP_SHARE:
            before, z = self.mean + self.factor @ u, self.modes.draw(rng)
            log_ratio = self.modes.log_density(before) - self.modes.log_density(z)
            return np.linalg.solve(self.factor, z - self.mean), log_ratio

    def transition(self, u, rng):
        """Return where a transition leads, and its α: NaN of a jump."""
        if (jumped := self.jump_of_modes(u, rng) or self.jump(u, rng)) is not None:
            v, log_ratio = jumped
            change = log_ratio + self.log_s(v)[0] - self.log_s(u)[0]
            return (v if -rng.standard_exponential() < change else u), np.nan
        p = np.array([rng.standard_normal() for _ in u])
        leap = self.leap * (1 + LEAP_RANGE * (2 * rng.random() - 1))
        n_leaps = 1 + int(rng.random() * self.most_leaps)
        v, _, change = self.trajectory(u, p, leap, n_leaps)
        accept_prob = np.exp(min(0.0, change))
        if -rng.standard_exponential() < change:
            return v, accept_prob
        v, q, change = self.trajectory(u, p, leap / SHORTER, n_leaps)
        if change > -np.inf:
            back = np.exp(min(0.0, self.trajectory(v, -q, leap, n_leaps)[2]))
            with np.errstate(divide="ignore"):
                change += np.log(1 - back) - np.log(1 - accept_prob)
        return (v if -rng.standard_exponential() < change else u), accept_prob

    def trajectory(self, v, p, leap, n_leaps):
        """Return where leaps lead, the momentum, and the log of the ratio; -inf if given up."""
        log_s, slope = self.log_s(v)
        energies = [log_s - p @ p / 2]
        for _ in range(n_leaps):
            p = p + leap / 2 * slope
            v = v + leap * p
            log_s, slope = self.log_s(v)
            if log_s == -np.inf:
                return v, p, -np.inf
            p = p + leap / 2 * slope
            energies.append(log_s - p @ p / 2)
            if not np.ptp(energies) < 50:
                return v, p, -np.inf
        return v, p, energies[-1] - energies[0]

    def run(self, u, rng):
        """Return where M transitions lead."""
        if self.log_s(u)[0] > -np.inf:
            for _ in range(self.n_inner):
                u, _ = self.transition(u, rng)
        return u

    def proposal(self, u, n_stops, rng):
        """Return the stop that is proposed, and z of those that are kept."""
        proposed, stops = int(rng.random() * max(n_stops, FIRST_STOPS)), []
        for _ in range(max(proposed + 1, n_stops)):
            stops.append(self.run(stops[-1] if stops else u, rng))
        return stops[proposed], [self.mean + self.factor @ stop for stop in stops[:n_stops]]

    def move(self, x, n_stops, log_pi, rng):
        """Return the new x, α (None if nothing moved), and stops."""
        u = np.linalg.solve(self.factor, x - self.mean)
        v, stops = self.proposal(u, n_stops, rng)
        if v is u:
            return x, None, stops
        y = self.mean + self.factor @ v
        change = log_pi(y) - log_pi(x) + (self.log_s(u)[0] - self.log_s(v)[0])
        accepted = -rng.standard_exponential() < change
        return (y if accepted else x), np.exp(min(0.0, change)), stops
