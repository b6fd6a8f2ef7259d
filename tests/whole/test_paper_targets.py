"""The targets of examples/papers: exact draws, log-densities, models and measures agree."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples" / "papers"))
import ckam_targets
import cmtm_targets
import gad_targets
import kam_targets
from mixtures import Mixture

MIXTURES = {
    **ckam_targets.TARGETS,
    "small": cmtm_targets.SMALL,
    "medium": cmtm_targets.MEDIUM,
    "large": cmtm_targets.LARGE,
}
CURVED = {
    **kam_targets.TARGETS,
    "ring": kam_targets.Flower(amplitude=0.0),
    "banana of CMTM": cmtm_targets.BANANA,
}


@pytest.mark.slow
@pytest.mark.parametrize("target", (MIXTURES | CURVED).values(), ids=MIXTURES | CURVED)
def test_models_have_the_log_densities(target):
    x = target.draw(np.random.default_rng(1), 20)
    logp = target.model().compile_logp()
    differences = [logp({"x": row}) for row in x] - target.log_density(x)
    np.testing.assert_allclose(differences, differences[0], atol=1e-9)


@pytest.mark.parametrize("name", MIXTURES)
def test_exact_draws_of_mixtures_have_their_log_density(name):
    """E q/π over draws of π is 1, with q the same mixture but wider."""
    target = MIXTURES[name]
    x = target.draw(np.random.default_rng(1), 20_000)
    variances = tuple(tuple(1.05 * np.array(own)) for own in target.variances)
    wider = Mixture(target.weights, target.means, variances, copies=target.copies)
    ratio = np.exp(wider.log_density(x) - target.log_density(x))
    error = ratio.std() / len(x) ** 0.5
    assert error < 0.02
    assert abs(ratio.mean() - 1) < 4 * error


@pytest.mark.parametrize("name", ["A.2", "A.3"])
def test_exact_draws_have_as_much_divergence_as_bins(name):
    """N times the symmetric divergence is χ² with one degree of freedom less than bins."""
    target = MIXTURES[name]
    x = target.draw(np.random.default_rng(1), 100_000)
    n = target.bins[2] - 1
    found = len(x) * target.symmetric_kl(x)
    assert abs(found - n) < 4 * (2 * n) ** 0.5
    assert len(x) * target.symmetric_kl(1.1 * x) > 10 * n


@pytest.mark.parametrize("name", CURVED)
def test_exact_draws_are_in_their_quantile_regions(name):
    target = CURVED[name]
    x = target.draw(np.random.default_rng(1), 100_000)
    assert np.abs(kam_targets.deviations(target.level(x))).max() < 0.005
    assert np.abs(kam_targets.deviations(target.level(1.1 * x))).max() > 0.02


@pytest.mark.parametrize("a", [0.0, 0.5, 0.9])
def test_the_ess_of_autoregressions_is_known(a):
    rng, n = np.random.default_rng(1), 20_000
    x = rng.normal(size=(n, 20))
    for i in range(1, n):
        x[i] = a * x[i - 1] + np.sqrt(1 - a**2) * x[i]
    sizes = gad_targets.effective_sizes(x)
    assert sizes.mean() == pytest.approx(n * (1 - a) / (1 + a), rel=0.05)


def test_the_process_has_the_eigenvalues_of_the_paper():
    eigenvalues = np.linalg.eigvalsh(gad_targets.gaussian_process().covariance)
    np.testing.assert_allclose(eigenvalues[[-1, 0]], [12.07, 0.01], atol=0.005)
