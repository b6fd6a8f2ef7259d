"""Bugs that a person would make: does the suite catch them?

    python tests/tools/mutants.py               # all of them
    python tests/tools/mutants.py 12 40-45      # by number
    python tests/tools/mutants.py kam.py jump   # by a part of the file's name, or of what is wrong
    python tests/tools/mutants.py --list        # what there is, and whether it still applies
    python tests/tools/mutants.py --baseline    # the tests without mutants, which have to pass

A mutant is a text of one file that is replaced in a copy of the package; there the tests named with
it have to fail. Each one compiles the transitions that its tests use, so it takes from 5 seconds
(functions of the core) to a minute (CyclicalKAM), and all of them about an hour on one core.
Neither pytest nor CI runs this file.
"""

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from os import environ
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

TIMEOUT = 3600
"""Seconds after which tests are taken to hang, which is a way to fail."""


class Mutant(NamedTuple):
    """A text of a file of the package, what replaces it, and the tests that have to see it."""

    number: int
    file: str
    bug: str
    old: str
    new: str
    tests: str

    def __str__(self):
        return f"{self.number:3d} {self.file}: {self.bug}"

    @property
    def applies(self):
        return (ROOT / "pymc_kameleon" / self.file).read_text().count(self.old) == 1

    def apply(self, root):
        path = root / "pymc_kameleon" / self.file
        path.write_text(path.read_text().replace(self.old, self.new))


BUGS = {
    "sampling/first_way.py": [
        (
            "a way is told values in the order in which they come back",
            "while self.evaluations and self.evaluations[0].found is not None:\n"
            "            done = self.evaluations.pop(0)",
            "if True:\n            done = self.evaluations.pop(self.evaluations.index(evaluation))",
            "test_evaluations_at_once.py -k depend",
        ),
    ],
    "result/superchains.py": [
        (
            "superchains are of chains that did not begin together",
            "return np.arange(n) * k // n",
            "return np.arange(n) % k",
            "test_evaluations_at_once.py -k 'neighbours or nested'",
        ),
    ],
    "sampling/settings.py": [
        (
            "few evaluations are shared by as many chains as others",
            "FEW_CHAINS if max_evaluations <",
            "CHAINS if max_evaluations <",
            "test_max_evaluations.py -k two_chains",
        ),
        (
            "a run that goes on pools what was not pooled",
            "for name, kind in kept.items()",
            'for name, kind in kept.items() if name != "pool_tuning"',
            "test_workers.py -k not_pooled",
        ),
        (
            "a run that goes on forgets what it does about errors",
            "for name, kind in kept.items()",
            'for name, kind in kept.items() if name != "on_error"',
            "test_watch.py -k goes_on",
        ),
    ],
    "model/advice.py": [
        (
            "NUTS is advised without a gradient",
            "    if has_gradient(model):\n",
            "    if True:\n",
            "test_advice.py -k by_the_gradient",
        ),
    ],
    "samplers/surrogate/problems.py": [
        (
            "NUTS is advised without a gradient",
            '["NUTS"] * has_gradient(model)',
            '["NUTS"]',
            "test_surrogate.py -k what_to_try",
        ),
    ],
    "samplers/kameleon/way_back.py": [
        (
            "the way back is that of proposals near the points",
            "np.argsort(-distances, kind",
            "np.argsort(distances, kind",
            "test_way_back.py -k by_hand",
        ),
        (
            "long runs are warned as well",
            "not steps_back > LONG_WAY or OUTER_SHARE * n >= FEW_STAYS * steps_back",
            "not steps_back > LONG_WAY",
            "test_way_back.py -k few_stays",
        ),
    ],
    "analysis/batches.py": [
        (
            "rare moves to where nothing is known do not count",
            "np.maximum(np.maximum(within, between), least)",
            "np.maximum(within, between)",
            "test_expectation.py -k slow_version",
        ),
        (
            "a coefficient knows its own chain",
            "np.delete(part, row, axis=0)",
            "np.delete(part, [], axis=0)",
            "test_expectation.py -k slow",
        ),
        (
            "the error of E_s g is forgotten",
            "variance = shown + common + np",
            "variance = shown + np",
            "test_expectation.py -k slow",
        ),
        (
            "doubts count without bound",
            "np.minimum(unseen**2, before)",
            "unseen**2",
            "test_expectation.py -k slow",
        ),
        (
            "chains that differ have small errors",
            "np.maximum(np.maximum(within, between), least)",
            "np.maximum(within, least)",
            "test_expectation.py -k slow",
        ),
    ],
    "analysis/evidence/bridge.py": [
        (
            "draws of a chain are taken for independent ones",
            "variance = max(values.var() / ess, between)",
            "variance = values.var() / values.size",
            "test_bridge.py -k knows_its_error",
        ),
        (
            "new draws and those of the posterior change places",
            "return expit(-at_p - odds) / (1 - share), expit(at_g + odds) / share",
            "return expit(-at_p + odds) / share, expit(at_g - odds) / (1 - share)",
            "test_bridge.py -k knows_its_error",
        ),
        (
            "draws of another distribution do not contradict",
            "return float(log_z[1] - log_z[0]),",
            "return 0 * float(log_z[1] - log_z[0]),",
            "test_bridge.py -k contradict",
        ),
    ],
    "analysis/evidence/reference.py": [
        (
            "a t density is not divided by its volume",
            "self._log_constants = log_det + of_t",
            "self._log_constants = of_t",
            "test_bridge.py -k constants",
        ),
    ],
    "analysis/evidence/warp.py": [
        (
            "a scale is not counted as a volume",
            "            log_det += log_scale",
            "            log_det += 0 * log_scale",
            "test_bridge.py -k warp_makes",
        ),
    ],
    "analysis/evidence/draws.py": [
        (
            "a draw is where its last move ended, accepted or not",
            "return np.where(moved[..., None], end, start)[..., order]",
            "return end[..., order]",
            "test_evidence.py -k of_a_surrogate",
        ),
        (
            "another likelihood is not seen",
            "if not np.allclose(logp, known, OF_SIZE, ROUNDING):",
            "if False:",
            "test_evidence.py -k another_likelihood",
        ),
    ],
    "sampling/bridging.py": [
        (
            "angles are counted again and again",
            "within = ((low <= x) & (x < high)).all(axis=1)",
            "within = np.ones(len(x), bool)",
            "test_evidence.py -k angle",
        ),
        (
            "what was evaluated before is evaluated again",
            "self._known.logp_at(x)",
            "np.full(len(x), np.nan)",
            "test_evidence_of_run.py -k ctrl_c",
        ),
    ],
    "sampling/evidence_of_run.py": [
        (
            "an evidence that begins again has other points",
            "default_rng(int(digest[:16], 16))",
            "default_rng()",
            "test_evidence_of_run.py -k ctrl_c",
        ),
    ],
    "analysis/evidence/result.py": [
        (
            "the evidence of other draws is taken for that of these",
            """ or kept["draws"] != digest_of(dt)""",
            "",
            "test_evidence_of_run.py -k others_have",
        ),
    ],
    "analysis/evidence/comparison.py": [
        (
            "prior odds do not count",
            "probability = _probabilities(log_z + log_odds)",
            "probability = _probabilities(log_z)",
            "test_evidence.py -k priors",
        ),
    ],
    "analysis/control_correction.py": [
        (
            "a chain's u is not moved to the common centre",
            "shift = (means - centre)[:, None]",
            "shift = 0 * (means - centre)[:, None]",
            "test_control_variates.py -k centre",
        ),
        (
            "controls are always used",
            "_variance(left) < MOST_VARIANCE_LEFT * _variance(a)",
            "_variance(left) >= 0",
            "test_control_variates.py -k noise",
        ),
    ],
    "analysis/zero_variance.py": [
        (
            "draws that stay count as others",
            "/ n_places) ** 2 / 2",
            "/ (chains * draws)) ** 2 / 2",
            'test_zero_variance.py -k "different_draws and 4"',
        ),
        (
            "a control lacks its Laplacian",
            "1 + off * gradient,",
            "off * gradient,",
            "test_zero_variance.py -k laplacian",
        ),
        (
            "coefficients know their own fold",
            "if block.fold != fold]",
            "if block.fold >= 0]",
            "test_zero_variance.py -k own_fold",
        ),
        (
            "the mean of a step is not taken off",
            "return below - ndtr(point) + psi",
            "return below - 0.5 + psi",
            "test_zero_variance.py -k steps",
        ),
        (
            "the ridge is never strong",
            "best = np.argmin(errors, axis=0)",
            "best = np.full(errors.shape[1], len(errors) - len(RIDGES))",
            "test_zero_variance.py -k noise",
        ),
    ],
    "analysis/identity.py": [
        (
            "few effective draws excuse any R-hat",
            "np.where(ess < LEAST_ESS, HIGH_RHAT,",
            "np.where(ess < 0, HIGH_RHAT,",
            'test_zero_variance.py -k "broken_chains and slow"',
        ),
        (
            "nothing rounds",
            'if names or any(out.dtype.startswith(("int", "uint")) for out in node.outputs):',
            "if False:",
            'test_any_run.py -k "silence and fine"',
        ),
        (
            "lines are not followed to the end",
            "if halving == MOST_HALVINGS or not open_.any():",
            "if halving >= 0:",
            'test_any_run.py -k "continuous and kink"',
        ),
        (
            "an end of the density is none",
            "if np.isinf(jump):",
            "jump = jump if np.isfinite(jump) else 0.0\n    if False:",
            'test_any_run.py -k "silence and uniform"',
        ),
        (
            "jumps far away are not looked for",
            "mean + STRETCH * (x[out] - mean)",
            "x[out]",
            'test_any_run.py -k "any_direction and 3.5"',
        ),
        (
            "a gradient may be a little wrong",
            "MOST_WRONG * (2 * STEP",
            "1e-2 * (2 * STEP",
            'test_any_run.py -k "silence and hardly"',
        ),
        (
            "a density may be periodic",
            "(density(far)[0] < logp[base] - LEAST_FALL).all()",
            "True",
            'test_any_run.py -k "silence and circle"',
        ),
    ],
    "analysis/gradients_of_draws.py": [
        (
            "the log-density that was kept does not matter",
            "if off > SAME_LOGP + ROUNDINGS",
            "if off < 0 * ROUNDINGS",
            "test_any_run.py -k nuts",
        ),
        (
            "data may have changed",
            "    _check_data(dt, model, logp)",
            "",
            "test_any_run.py -k data_that_have",
        ),
        (
            "means of controls do not matter",
            "if not p > LEAST_P:",
            "if False:",
            'test_any_run.py -k "silence and selected"',
        ),
        (
            "a region does not matter",
            'in getattr(dt, "children", ()) and restrictions(dt[STATE_GROUP].attrs):',
            'in getattr(dt, "children", ()) and False:',
            "test_kept_gradients.py -k region",
        ),
    ],
    "analysis/unconstrained_draws.py": [
        (
            "labels do not matter",
            "own = own.sel({dim: known",
            "own.sel({dim: known",
            "test_any_run.py -k labels",
        ),
    ],
    "analysis/recomputed.py": [
        (
            "coordinates are in the draws' order",
            "self._order = [coordinates.index(name) for name in layout.coordinates()]",
            "self._order = list(range(len(coordinates)))",
            "test_expectation.py -k another_order",
        ),
        (
            "draws may have been changed",
            "return np.any([_are_close(flat, own, tolerance) for own in values], axis=0).all()",
            "return True",
            "test_recomputed.py -k were_changed",
        ),
        (
            "elements are found by their places",
            "known.get_indexer(np.ravel(wanted))",
            "np.arange(np.size(wanted))",
            "test_recomputed.py -k by_their_labels",
        ),
        (
            "dimensions are in the model's order",
            "return values.transpose(0, *self._axes)",
            "return values",
            "test_recomputed.py -k both",
        ),
        (
            "a black box is called again",
            "if var.name not in self._boxes\n",
            "if True\n",
            "test_recomputed.py -k black_box",
        ),
    ],
    "analysis/draws_of_result.py": [
        (
            "R-hat is told only where averages are corrected",
            "self.should_be_corrected = True",
            "pass",
            "test_expectation.py -k nothing_is_corrected",
        ),
        (
            "chains whose surrogates share what they learned from count as independent",
            "return np.sqrt((n - 1) * means.var(axis=0)) if known",
            "return np.sqrt(means.var(axis=0) / n) if known",
            "test_expectation.py -k learn_from_other_chains",
        ),
        (
            "a function may mix draws",
            "not np.allclose(",
            "0 and np.allclose(",
            "test_recomputed.py -k looks_at_other",
        ),
        (
            "functions that mix draws are called with extreme draws only",
            "    ranks = np.abs(np.argsort(order, axis=0) - len(columns) / 2)",
            "    return\n    ranks = np.abs(np.argsort(order, axis=0) - len(columns) / 2)",
            "test_recomputed.py -k looks_at_other",
        ),
        (
            "draws that are numbered anew keep what was kept of others",
            "not np.isin(own, known[dim]).all()",
            "False",
            "test_recomputed.py -k numbers",
        ),
        (
            "the imaginary part of a function is dropped",
            'values.dtype.kind not in "biuf"',
            'values.dtype.kind not in "biufc"',
            "test_expectation.py -k real_numbers",
        ),
    ],
    "analysis/expectation.py": [
        (
            "signs are those of the summary only",
            "warn_of(dt, names, values, r_hat, draws, apart)",
            "pass",
            "test_expectation.py -k told",
        ),
    ],
    "analysis/mode_occupancy.py": [
        (
            "a visit counts once per draw",
            "comes = inside & ~inside.shift(draw=1, fill_value=False)",
            "comes = inside",
            "test_mode_occupancy.py -k counts",
        ),
        (
            "one mode is printed with NaN",
            'table = table.dropna(axis=1, how="all")',
            "table = table",
            "test_mode_occupancy.py -k one_mode",
        ),
        (
            "few visits tell the weights",
            '(found["ess"] * rarest >= LEAST_INDEPENDENT)',
            '(found["ess"] >= 0)',
            "test_mode_occupancy.py -k verdicts",
        ),
        (
            "a mode that is known and not visited is not told",
            "missed = [str(mode) for mode in np.flatnonzero(~visited)]",
            "missed = []",
            "test_mode_occupancy.py -k verdicts",
        ),
    ],
    "analysis/modes_of_draws.py": [
        (
            "draws of a slow chain count as independent",
            "correlation = products.mean() / np.square(deviations).mean()",
            "correlation = 0.0",
            "test_mode_occupancy.py -k one_mode_is_not_split",
        ),
        (
            "groups are not joined along a curve",
            "                joined.merge(i, j)",
            "                pass",
            "test_mode_occupancy.py -k along_a_curve",
        ),
        (
            "a group with points of two modes joins them",
            "        if density < best:",
            "        if False:",
            "test_mode_occupancy.py -k short_axis",
        ),
        (
            "the distance between modes makes the scale",
            "LOCAL_SHARE, LOCAL_WIDTH = 0.1, 0.25",
            "LOCAL_SHARE, LOCAL_WIDTH = 0.6, 1.7",
            "test_mode_occupancy.py -k many_coordinates",
        ),
        (
            "a draw between two modes is a visit",
            "    last = np.maximum.accumulate(np.where(real,",
            "    last = np.maximum.accumulate(np.where(True,",
            "test_mode_occupancy.py -k 'well_into or no_jumps'",
        ),
        (
            "the largest mode is not the first",
            "order = np.argsort(-np.bincount",
            "order = np.argsort(np.bincount",
            "test_mode_occupancy.py -k two_modes",
        ),
        (
            "chains that do not move are no posterior",
            "shrunk_covariance(points) + RIDGE * np.eye(points.shape[1])",
            "shrunk_covariance(points)",
            "test_mode_occupancy.py -k few_draws",
        ),
    ],
    "samplers/surrogate/active/process.py": [
        (
            "noise is what it was thought to be",
            "LEAST_NOISE + np.exp(2 * hyper.logs[NOISE]) + deep**2",
            "LEAST_NOISE + deep**2",
            "test_active.py -k noise_is_found",
        ),
    ],
    "samplers/surrogate/active/search.py": [
        (
            "a search where f is exact ends where it was interrupted",
            "longest = MOST_FOR_ALL if self._learns_all else self._longest",
            "longest = self._longest",
            "test_active.py -k interrupted",
        ),
    ],
    "samplers/surrogate/active/star.py": [
        (
            "what is quadratic is not recognised with noise",
            "found = found | (may_be_exact & (misfits <= NOISY * noise))",
            "pass",
            "test_active.py -k noise_of_a_solver",
        ),
    ],
    "samplers/surrogate/active/way.py": [
        (
            "a second mode that a scout has found is left out",
            "is_new |= self._join(way)",
            "pass",
            "test_active.py -k second_mode",
        ),
        (
            "R is no larger where f still rises",
            "if RAY[k] > 1 and f[k] > best:",
            "if False:",
            "test_active.py -k beyond_its_radius",
        ),
        (
            "coordinates are those of the way",
            "if is_usual and not however_little:",
            "if is_usual:",
            "test_active.py -k coordinates_are_those",
        ),
    ],
    "samplers/surrogate/active/averages.py": [
        (
            "errors leave out what paths differ by",
            "of_draws + np.square(self.scale * (high - low) / 2)",
            "of_draws",
            "test_process_correction.py -k errors_hold",
        ),
        (
            "draws of s begin at points of its power",
            "shares = _shares((1 - POWER) * (logs - density.given(found).size))",
            "shares = _shares(0 * logs)",
            "test_active.py -k begin_all_over",
        ),
    ],
    "analysis/process_correction.py": [
        (
            "errors of sds do not tell how good draws are",
            "return np.concatenate([z, z**2 / 2], axis=1)",
            "return z",
            "test_process_correction.py -k of_sds",
        ),
        (
            "what both estimates differ by is no error",
            "np.where(by_process, error, mcse) ** 2 + np.fmax(beyond_errors, 0)",
            "np.where(by_process, error, mcse) ** 2",
            "test_process_correction.py -k differ",
        ),
        (
            "draws that miss a tail are believed",
            "mcse = np.fmax(mcse, np.where(mcse > 0, sd / np.sqrt(counted), 0))",
            "pass",
            "test_process_correction.py -k miss_a_tail",
        ),
        (
            "a process is believed wherever chains are",
            "posterior.n_effective >= LEAST_EFFECTIVE and covered >= LEAST_COVERED",
            "posterior.n_effective >= LEAST_EFFECTIVE",
            "test_process_correction.py -k refuse",
        ),
    ],
    "analysis/summary.py": [
        (
            "R-hat does not see that corrected averages differ",
            "mean.gain, self.r_hat(below.halves, mean.halves)][better]",
            "mean.gain, np.ones(q)][better]",
            "test_expectation.py -k summary_has_them",
        ),
        (
            "R-hat knows no scale",
            "found = np.fmax.reduce(found)",
            "found = found[0]",
            "test_emulator_correction.py -k like_that_of_draws",
        ),
        (
            "what is not shown is computed, too",
            "draws.at(x, side_by_side, names)",
            "draws.at(x, lambda v: side_by_side({name: v[name] for name in names}))",
            "test_expectation.py -k computes_what",
        ),
        (
            "the path of a result has no corrections",
            "    dt = opened(dt, model)\n",
            "",
            "test_expectation.py -k outlive",
        ),
        (
            "an interval does not follow",
            "changed = below.is_better.reshape(GRID, q).any(axis=0) & real",
            "changed = real & False",
            "test_expectation.py -k summary_has",
        ),
        (
            "the standard deviation is about another mean",
            "variance = square.mean - (new - self.centre) ** 2",
            "variance = square.mean + 1",
            "test_expectation.py -k summary_has",
        ),
    ],
    "analysis/emulator_correction.py": [
        (
            "rejected moves do not count",
            "(start - end) + end - tamed[0]",
            "0 * start + end - tamed[0]",
            "test_emulator_correction.py -k bad_the_emulator",
        ),
        (
            "far off f counts in k alone",
            "+ end - tamed[0]",
            "",
            "test_emulator_correction.py -k slow_version",
        ),
        (
            "rare moves that are lacking make no error",
            "batches.lengths, least, 0.0)",
            "batches.lengths, 0.0, 0.0)",
            "test_emulator_correction.py -k slow_version",
        ),
        (
            "where f is not finite it remains so",
            "np.where(np.isfinite(values), values, centre)",
            "values",
            "test_emulator_correction.py -k slow_version",
        ),
    ],
    "samplers/emulator/density.py": [
        (
            "the wall is around one of mirrored modes alone",
            "if square < least:",
            "if False:",
            "test_emulated_density.py -k mirror_images",
        ),
    ],
    "samplers/emulator/inner_chain.py": [
        (
            "a mirror image is always accepted",
            "if log_uniform(rng) < log_s_v - log_s:",
            "if log_s_v > -np.inf:",
            "test_inner_chain.py -k draws_of_s",
        ),
    ],
    "samplers/emulator/metropolis.py": [
        (
            "chains that follow begin at any draw",
            "top = self.guide.top_logp[0]",
            "top = -np.inf",
            "test_way.py -k nowhere_near",
        ),
        (
            "a look that was not made is not told",
            "self._n_mirrors == 0 or looked[0]",
            "True",
            "test_mirrors.py -k is_told",
        ),
    ],
    "samplers/emulator/mirrors.py": [
        (
            "outputs of mirror images may differ",
            "[-n:] < SAME",
            "[-n:] < np.inf",
            "test_mirrors.py -k along_with_rates",
        ),
        (
            "what has to be exchanged together is not",
            "return list(found.values())",
            "return []",
            "test_mirrors.py -k along_with_rates",
        ),
        (
            "outputs that agree at one place are enough",
            "(far < SAME).all(axis=1)",
            "(far < np.inf).all(axis=1)",
            "test_mirrors.py -k at_one_place_alone",
        ),
        (
            "images of which there are too many are cut off",
            "if len(found) <= most:",
            "if True:",
            "test_mirrors.py -k too_many_modes",
        ),
        (
            "what was tried alone is tried as a product, too",
            "is_inverse and is_new and",
            "is_inverse and",
            "test_mirrors.py -k rows_of_a_square",
        ),
    ],
    "samplers/emulator/moves.py": [
        (
            "moves whose stops were not kept count",
            '~np.isnan(of("end_log_s")) & were_kept',
            '~np.isnan(of("end_log_s"))',
            "test_emulator_correction.py -k what_has_been",
        ),
    ],
    "analysis/surrogate_correction.py": [
        (
            "what is clipped is left out",
            "inner.unseen(b), inner.beyond(b))",
            "inner.unseen(b))",
            "test_expectation.py -k several_runs",
        ),
        (
            "where nothing is known f counts in k alone",
            "change = end - inner.tamed(row, moves.end[part])",
            "change = 0 * end",
            "test_expectation.py -k slow_version",
        ),
        (
            "all runs have the same points",
            "generator_of(moves.end), 0, 0.0",
            "np.random.default_rng(21), 0, 0.0",
            "test_expectation.py -k points_of_its_own",
        ),
        (
            "what lies beyond all draws does not count",
            "return np.abs(beyond) + np.sqrt(",
            "return np.sqrt(",
            "test_expectation.py -k 'slow_version or beyond'",
        ),
        (
            "accepted moves count as rejected ones",
            "rejected, end = (1 - moves.accept_prob[part])[:, None]",
            "rejected, end = moves.accept_prob[part][:, None]",
            "test_expectation.py -k 'exact or slow'",
        ),
        (
            "new runs begin elsewhere",
            "pairs = moves.start[own], ",
            "pairs = moves.end[own], ",
            "test_expectation.py -k 'exact or slow'",
        ),
        (
            "nothing is clipped",
            "np.clip(values, low, high)",
            "values",
            "test_expectation.py -k slow",
        ),
        (
            "all surrogates cost what the first one does",
            "_work(of[one.rows[0]])",
            "_work(of[0])",
            "test_expectation.py -k work",
        ),
    ],
    "analysis/surrogate_posterior.py": [
        (
            "a poor surrogate is no alarm",
            "if close.ess_share >= CLOSE_SHARE and",
            "if",
            "test_expectation.py -k warned_of",
        ),
        (
            "draws of the surrogate are in the step's order",
            "points[:, places] = own",
            "points[:] = own",
            "test_expectation.py -k another_order",
        ),
    ],
    "analysis/trust.py": [
        (
            "a large error of a standard deviation is not told",
            "errors = np.concatenate([of_mean, of_sd])",
            "errors = np.concatenate([of_mean, 0 * of_sd])",
            "test_trust.py -k known_badly",
        ),
        (
            "events that follow each other soon count as many",
            "number[own] * np.fmin(1, ess / size)",
            "number[own]",
            "test_trust.py -k too_small_errors",
        ),
        (
            "half of the draws are a few",
            "(number < size / 2)",
            "(number > size / 2)",
            "test_trust.py -k what_is_counted",
        ),
        (
            "only one tail may be long",
            'for tail in ("left", "right"):',
            'for tail in ("left",):',
            "test_expectation.py -k signs",
        ),
    ],
    "compile.py": [
        (
            "what chains learn together is left to the first run",
            ".compile_learning()",
            "",
            "test_compile.py -k learn_together",
        ),
    ],
    "core/chain.py": [
        (
            "a statistic has the name of another",
            "row[COMMON.accept_prob] = sum_accept_prob / n_transitions",
            "row[COMMON.accept_prob] = sum_accepted / n_transitions",
            "test_random_walk.py -k transitions_by_hand",
        ),
        (
            "what a draw does not write is that of the draw before",
            "row[k] = np.nan",
            "pass",
            "test_statistics.py -k what_was_written",
        ),
        (
            "an estimate is made again where parameters were learned",
            "if status & STALE_LOGP:",
            "if status != CURRENT:",
            "test_noise.py -k 'kept_until_a_move and CyclicalKAM'",
        ),
        (
            "what other steps moved goes unnoticed",
            "for j in range(d, places.size):",
            "for j in range(d, d):",
            "test_contract.py -k 'logp_follows_the_other_steps and RWM and not Gad'",
        ),
        (
            "the gradient is stale where another step moved",
            "status |= MOVED if target.gradient.size > 0 else STALE_LOGP",
            "status |= STALE_LOGP",
            "test_gad.py -k some_variables_of_a_model",
        ),
        (
            "what derives from the position is not computed where a chain starts",
            "if status & STALE_DERIVED:\n            derived",
            "if status & STALE_LOGP and not status & STALE_DERIVED:\n            derived",
            "test_gad.py -k test_mala",
        ),
        (
            "a chain may start where the density is zero",
            "if state.logp[0] == -np.inf:",
            "if state.logp[0] == np.inf:",
            "test_contract.py -k 'start_outside_the_support and GAM'",
        ),
        (
            "the search for modes goes on after tuning",
            "if tune:\n                return tuning_transition",
            "if True:\n                return tuning_transition",
            "test_chain.py",
        ),
        (
            "adaptation goes on after tuning",
            "if tune and not adapt(",
            "if not adapt(",
            "test_random_walk.py -k parameters_are_constant_after_tuning",
        ),
        (
            "the acceptance probability is a sum over transitions",
            "sum_accept_prob / n_transitions",
            "sum_accept_prob",
            "test_random_walk.py -k a_draw_is_many_transitions",
        ),
        (
            "evaluations are not counted but assumed",
            "row[COMMON.n_logp] = target.count[0] - count",
            "row[COMMON.n_logp] = n_transitions",
            "test_sample.py -k evaluating_anew_is_counted",
        ),
        (
            "a step writes where another one's variables are",
            "point[places[j]] = state.x[j]",
            "point[j] = state.x[j]",
            "test_invariance.py -k two_steps_in_turn",
        ),
        (
            "the wrong step is blamed if one cannot start",
            "progress[AT_STEP] += 1",
            "progress[AT_STEP] += 0",
            "test_sample.py -k cannot_start_where_another_went",
        ),
        (
            "an exception does not say in which draw it came",
            "progress[DRAWS_MADE] = i",
            "progress[DRAWS_MADE] = 0",
            "test_sample.py -k 'exceptions_arrive or says_in_which_draw'",
        ),
        (
            "tallies are of all draws so far",
            "clear_tally(state)",
            "pass",
            "test_cmtm.py -k statistics_are_of_the_draw",
        ),
    ],
    "core/compiler.py": [
        (
            "what PyTensor compiles later is linked with a part of ours",
            'function.name = f"{function.name}.{own}"',
            "pass",
            "test_compiler.py -k not_linked_with_it",
        ),
        (
            "what is called is linked before who calls it",
            "return called_first[::-1]",
            "return called_first",
            "test_compiler.py -k parts_are_no_machine_code",
        ),
        (
            "another whole's version of a function may be taken",
            'function.linkage = "internal"',
            'function.linkage = "linkonce_odr"',
            "test_compiler.py -k parts_are_no_machine_code",
        ),
        (
            "garbage is not collected any more",
            "        if collects:",
            "        if not collects:",
            "test_compiler.py -k garbage",
        ),
    ],
    "core/factor.py": [
        (
            "the diagonal is divided by",
            "out[i] = factor[i, 0] * v[i]",
            "out[i] = v[i] / factor[i, 0]",
            "test_fisher.py -k test_products",
        ),
        (
            "a transposed factor is taken for one that is not",
            "multiply_lower_transposed(factor, v, out)",
            "multiply_lower(factor, v, out)",
            "test_fisher.py -k test_products",
        ),
    ],
    "core/fingerprint.py": [
        (
            "an edit of the source goes unnoticed",
            "yield repr((kind, value.co_code, value.co_names, value.co_varnames)).encode()",
            "return",
            "test_jit.py -k until_the_code_changes",
        ),
        (
            "a sampler is compiled by each process, as its code names a mapping",
            "isinstance(value, MappingProxyType)",
            "False",
            "test_contract.py -k compile_once",
        ),
        (
            "a constant that changes goes unnoticed",
            "return [*closure, *defaults, *named, *in_modules]",
            "return [*closure, *defaults, *in_modules]",
            "test_jit.py -k outside_the_package",
        ),
        (
            "closures of one factory share machine code",
            "closure = [cell.cell_contents for cell in function.__closure__ or ()]",
            "closure = []",
            "test_compiler.py -k closures",
        ),
    ],
    "core/history.py": [
        (
            "thinning keeps the wrong half",
            "points[2 * i + 1 - capacity % 2]",
            "points[2 * i]",
            "test_history.py -k every_stride_th",
        ),
        (
            "the stride does not double",
            "counts[1] *= 2",
            "counts[1] += 1",
            "test_history.py -k every_stride_th",
        ),
        (
            "the whole past is recent",
            "return history.counts[0] // 2, history.counts[0]",
            "return 0, history.counts[0]",
            "test_history.py -k recent",
        ),
        (
            "rows are drawn with a biased shuffle",
            "j = i + int(rng.random() * (n - i))",
            "j = int(rng.random() * n)",
            "test_history.py -k choose",
        ),
        (
            "all pairs are forgotten, not the older half",
            "history.counts[0] = stop - start",
            "history.counts[0] = 0",
            "test_gad.py -k 'test_chains and fisher'",
        ),
    ],
    "core/jit.py": [
        (
            "NaN and infinity lose their meaning",
            '"arcp", "nsz"}',
            '"arcp", "nsz", "nnan", "ninf"}',
            "test_jit.py -k nan_and_infinity",
        ),
    ],
    "core/linalg.py": [
        (
            "a rank-one update multiplies instead of dividing",
            "(factor[i, k] + s * v[i]) / c",
            "(factor[i, k] + s * v[i]) * c",
            "test_linalg.py -k rank_one_update",
        ),
        (
            "a downdate accepts NaN and zero",
            "if not square > 0.0:",
            "if square < 0.0:",
            "test_linalg.py -k downdate_refuses",
        ),
        (
            "an infinite matrix has a factor",
            "elif s > 0.0 and s < np.inf:",
            "elif s > 0.0:",
            "test_linalg.py -k cholesky_refuses",
        ),
        (
            "the determinant of L is that of its square",
            "s += np.log(factor[i, i])",
            "s += 2.0 * np.log(factor[i, i])",
            "test_linalg.py -k log_determinant",
        ),
        (
            "the geometric mean takes the wrong inverse",
            "0.5 * (scale * a[i, j] + b_inverse[i, j] / scale)",
            "0.5 * (scale * a[i, j] + a_inverse[i, j] / scale)",
            "test_fisher.py -k test_geometric_mean",
        ),
        (
            "eigenvectors are not orthogonal",
            "product[i] -= s * vectors[other, i]",
            "product[i] -= 0.0 * s",
            "test_pca_kam.py -k directions_and_what_follows",
        ),
    ],
    "core/metropolis.py": [
        (
            "the ratio is inverted",
            "log_ratio = logp_y - state.logp[0]",
            "log_ratio = state.logp[0] - logp_y",
            "test_random_walk.py -k transitions_by_hand",
        ),
        (
            "the log-density is that of the last position",
            "state.logp[0] = logp_y",
            "pass",
            "test_random_walk.py -k transitions_by_hand",
        ),
        (
            "an acceptance probability above 1",
            "np.exp(min(0.0, min(0.0, log_ratio) - min(0.0, cap)))",
            "np.exp(log_ratio - min(0.0, cap))",
            "test_random_walk.py -k transitions_by_hand",
        ),
        (
            "the reported acceptance is biased by early rejections",
            "np.exp(min(0.0, min(0.0, log_ratio) - min(0.0, cap)))",
            "np.exp(min(0.0, log_ratio))",
            "test_kam.py -k reported_acceptance_is_unbiased",
        ),
        (
            "a ratio of NaN is one",
            "if np.isnan(log_ratio):",
            "if False:",
            "test_metropolis.py -k test_the_rule",
        ),
        (
            "the gradient is that of the last position",
            "        take_gradient(target, state)\n",
            "",
            "test_metropolis.py -k the_state_follows",
        ),
        (
            "a normal step ignores its covariance",
            "multiply_lower(factor, xi, step)",
            "copy(xi, step)",
            "test_random_walk.py -k transitions_by_hand",
        ),
    ],
    "core/moments.py": [
        (
            "the covariance is taken about the new mean",
            "add_deviation(mean, factor, x, eta, v)\n"
            "    for i in range(x.size):\n"
            "        mean[i] += eta * (x[i] - mean[i])\n",
            "for i in range(x.size):\n"
            "        mean[i] += eta * (x[i] - mean[i])\n"
            "    add_deviation(mean, factor, x, eta, v)\n",
            "test_moments.py -k update_is_the_slow_recursion",
        ),
        (
            "a rejected proposal counts as an accepted one",
            "add_deviation(mean, factor, y, eta * alpha, v)",
            "add_deviation(mean, factor, y, eta, v)",
            "test_moments.py -k test_update_from_both",
        ),
        (
            "the covariance of few points is not shrunk",
            "covariance[i, j] *= keep",
            "pass",
            "test_moments.py -k test_shrink",
        ),
        (
            "the covariance of few points is not blended with the last one",
            "keep * covariance[i, j] + (1.0 - keep) * last",
            "covariance[i, j]",
            "test_moments.py -k blended",
        ),
        (
            "the learning rate does not know the dimension",
            "max(16.0 * moments.mean.size, t / 1.5)",
            "max(16.0, t / 1.5)",
            "test_moments.py -k 16_transitions",
        ),
        (
            "moments are seeded afresh beyond half of tuning",
            "if 2 * (t + 1) <= moments.n_fast:",
            "if True:",
            "test_moments.py -k seeding_and_the_slow",
        ),
        (
            "the way from a far start is not forgotten",
            "start, stop = recent(moments.history)",
            "start, stop = 0, moments.history.counts[0]",
            "test_moments.py -k seeding_forgets_the_start",
        ),
        (
            "early steps throw a good guess of the scale away",
            "(GOOD_GUESS if last > 0 else 0)",
            "0",
            "test_moments.py -k scale_steps_restart",
        ),
        (
            "the recursion on the factor takes all of the diagonal",
            "0.5 * (here * v[k] - factor[i, k])",
            "(here * v[k] - factor[i, k])",
            "test_moments.py -k update_of_the_factor_itself",
        ),
    ],
    "core/numba_cache.py": [
        (
            "what was damaged on disk is run",
            "if sha256(code).digest() != digest:",
            "if False:",
            "test_faults.py -k damaged_on_disk",
        ),
        (
            "the code of other arguments is run",
            "return data if found == key else None",
            "return data",
            "test_faults.py -k another_key",
        ),
        (
            "a full disk stops what could be compiled",
            '    except OSError as error:\n        _say_once(f"Compiled code cannot',
            '    except KeyError as error:\n        _say_once(f"Compiled code cannot',
            "test_faults.py -k cannot_be_kept",
        ),
        (
            "what is cached of a class that is gone breaks its successor",
            "except Exception:  # whatever unpickling raises\n            return {}",
            "except ImportError:\n            return {}",
            "test_compiler.py -k class_that_is_gone",
        ),
        (
            "each of several processes compiles the same",
            "if isinstance(cache, Cache) and not cache.holds(signature):",
            "if False:",
            "test_jit.py -k one_compiles",
        ),
        (
            "each environment compiles the same",
            "(SharedPlace, *CompileResultCacheImpl._locator_classes)",
            "CompileResultCacheImpl._locator_classes",
            "test_jit.py -k until_the_code_changes",
        ),
    ],
    "core/numba_calls.py": [
        (
            "exceptions of what is called by address are lost",
            "context.call_conv.return_status_propagate(builder, status)",
            "pass",
            "test_compiler.py -k raises",
        ),
    ],
    "core/scaling.py": [
        (
            "the scale grows where too little is accepted",
            "(accept_prob - tuning.target_accept)",
            "(tuning.target_accept - accept_prob)",
            "test_scaling.py -k tune_and_settle",
        ),
        (
            "the scale never settles",
            "if t == stop - 1:",
            "if t == stop:",
            "test_scaling.py -k tune_and_settle",
        ),
        (
            "the scale leaves its bounds",
            "log_scales[k] = min(max(value, tuning.bounds[k, 0]), tuning.bounds[k, 1])",
            "log_scales[k] = value",
            "test_scaling.py -k bounds",
        ),
    ],
    "core/schedules.py": [
        (
            "a schedule falls at once, whatever its delay",
            "((schedule.delay + t) / schedule.delay)",
            "(1.0 + t)",
            "test_schedules.py",
        ),
    ],
    "core/shape.py": [
        (
            "a walk keeps its scale when its covariance is seeded afresh",
            "if learn_moments(tuning.moments, x, t, v):\n        set_to_best(shape, tuning)",
            "learn_moments(tuning.moments, x, t, v)",
            "test_random_walk.py -k 'walks_with_adaptation and gam'",
        ),
    ],
    "core/target.py": [
        (
            "all estimates have the same noise",
            "target.seed[i] = N_SEEDS * target.rng.random()",
            "pass",
            "test_noise.py -k 'draws_are_exact and RWM'",
        ),
        (
            "a region has no upper end",
            "target.region[0, i] <= y[i] <= target.region[1, i]",
            "target.region[0, i] <= y[i]",
            "test_target.py -k outside_a_region",
        ),
        (
            "the gradient that is kept is the position",
            "row[k], row[d + k] = state.x[k], state.gradient[k]",
            "row[k], row[d + k] = state.x[k], state.x[k]",
            "test_kept_gradients.py -k 'those_of_the_model and MALA'",
        ),
        (
            "NaN counts as +inf",
            "    if logp == np.inf:",
            "    if not logp < np.inf:",
            "test_target.py -k plus_infinity",
        ),
        (
            "NaN is a log-density",
            "return logp if logp < np.inf else -np.inf",
            "return logp",
            "test_target.py -k not_finite",
        ),
        (
            "the region of the first coordinate holds for all",
            "target.region[0, k] <= value <= target.region[1, k]",
            "target.region[0, 0] <= value <= target.region[1, 0]",
            "test_cmtm.py -k 'test_sweeps_by_hand and mixture'",
        ),
    ],
    "model/entry_points.py": [
        (
            "a function that cannot be copied is called as a copy from a pickle",
            "value = _call_in_python(number, x, data, shapes, last)",
            "value = function(x, data, shapes, last)",
            "test_faults.py -k 'linkers_give and C and GadMALA'",
        ),
        (
            "Python beneath another operation is not seen",
            "*numba_calls.overloads_of(part)]",
            "]",
            "test_functions.py -k 'recognised and Blockwise'",
        ),
    ],
    "model/black_box.py": [
        (
            "a call that raises rejects all its rows",
            "            if len(evaluations) == 1:\n                return [error]",
            "            return [error for _ in evaluations]",
            "test_black_box.py -k that_of_its_row",
        ),
        (
            "rows of another call's length are given out",
            " or array.shape[: len(rows)] != rows:",
            ":",
            "test_black_box.py -k number_for_all_rows",
        ),
        (
            "functions of a notebook travel by names that nobody has",
            "return self.__qualname__ if found is self else",
            "return self.__qualname__ if True else",
            "test_black_box.py -k travels",
        ),
    ],
    "model/gathering.py": [
        (
            "calls are made while others may come",
            "return len(self._calls) == self._wanted",
            "return bool(self._calls)",
            "test_black_box.py -k may_begin_other_tasks",
        ),
        (
            "tasks wait for a run that has ended",
            "            self._ended = True",
            "            pass",
            "test_black_box.py -k has_ended",
        ),
        (
            "inputs of other shapes fail in one call, and are computed one by one",
            "alike[call.op, *map(np.shape, call.inputs)]",
            "alike[call.op, 0]",
            "test_black_box.py -k other_shapes",
        ),
    ],
    "model/black_box_calls.py": [
        (
            "what is noted changes with the next call",
            "notes.add(point, self.number, given, list(map(_copy, returned)))",
            "notes.add(point, self.number, given, returned)",
            "test_black_box_calls.py -k are_evaluations",
        ),
        (
            "what is recalled is changed in place",
            "storage[0] = _copy(value)",
            "storage[0] = value",
            "test_black_box_calls.py -k are_evaluations",
        ),
        (
            "a black box that writes into its input is noted with what it wrote",
            "[np.array(value) for value in own]  # it may write there",
            "own",
            "test_black_box_calls.py -k writes_into",
        ),
        (
            "black boxes are mistaken for each other",
            "if note.number == number and note.took(agree, inputs)",
            "if note.took(agree, inputs)",
            "test_black_box_calls.py -k 'are_evaluations or found_by'",
        ),
        (
            "other inputs of a black box do not count",
            "if note.number == number and note.took(agree, inputs)",
            "if note.number == number",
            "test_black_box_calls.py -k 'is_told or found_by'",
        ),
        (
            "memory is not bounded",
            "while self._size > MOST_BYTES",
            "while False",
            "test_black_box_calls.py -k bounded",
        ),
        (
            "where the chain is, is forgotten",
            "for other in self._at if other != self._here)",
            "for other in self._at)",
            "test_black_box_calls.py -k bounded",
        ),
    ],
    "model/functions.py": [
        (
            "a function that Python is called for is told with each that is compiled",
            "said.update(ops)",
            "pass",
            "test_functions.py -k once_for_each_model",
        ),
        (
            "a worker process is warned of what has been said",
            """{"said": Said([*self.python_ops])} | state""",
            "state",
            "test_functions.py -k worker_is_not_warned",
        ),
        (
            "PyTensor warns once more for each chain",
            "    Said([*ops])",
            "",
            "test_functions.py -k once_for_each_model",
        ),
        (
            "the log-density takes what it has computed before",
            'what, kind_of_box, n_trials = "The model\'s log-density", Noted, 0',
            'what, kind_of_box, n_trials = "The model\'s log-density", Recalled, 0',
            "test_black_box_calls.py -k are_evaluations",
        ),
        (
            "chains share the seed of their estimates",
            "self._data = self._data.copy()",
            "pass",
            "test_noise.py -k seeds_are_drawn",
        ),
        (
            "a model that changed keeps its old log-density",
            "equal_computations(self.results, results)",
            "results",
            "test_functions.py -k compiled_anew",
        ),
        (
            "data of another shape are taken for the same",
            "repr((array.dtype.str, array.shape))",
            "repr(array.dtype.str)",
            "test_functions.py -k another_shape",
        ),
        (
            "the step's own variables do not come first",
            "value_vars = [*own, *(var for var in model.value_vars if var not in own)]",
            "value_vars = list(model.value_vars)",
            "test_invariance.py -k two_steps_in_turn",
        ),
        (
            "Python evaluates outside the region",
            "if not self.inside(x):",
            "if False:",
            "test_sample.py -k starts_are_in_the_region",
        ),
        (
            "data of the same shape are taken for the same",
            "        digest.update(np.ascontiguousarray(array))\n    return digest.digest",
            "        pass\n    return digest.digest",
            "test_sample.py -k changed_data_are_refused",
        ),
        (
            "a noisy log-density is accepted",
            "if isinstance(value, np.random.Generator):",
            "if False:",
            "test_contract.py -k refuses_a_noisy_logp",
        ),
        (
            "outputs of another run are kept although other names are asked for",
            "return list(self.variables) == list(names) and",
            "return",
            "test_sample.py -k options_mean_what_they_mean",
        ),
    ],
    "model/layout.py": [
        (
            "a region of NaN is none",
            "if not np.all(bounds[0] < bounds[1]):",
            "if np.any(bounds[0] >= bounds[1]):",
            "test_contract.py -k refuses_impossible_regions",
        ),
        (
            "a step of some variables reports the log-density as the model's",
            "self.covers_all = not others",
            "self.covers_all = True",
            "test_contract.py -k 'logp_follows_the_other and RWM and not Gad'",
        ),
    ],
    "model/noise.py": [
        (
            "undeclared noise goes unnoticed",
            "if differ.any():",
            "if False:",
            "test_noise.py -k nobody_declared",
        ),
        (
            "a seed is no input of the model",
            "model.register_data_var(seed)",
            "pm.modelcontext(model)",
            "test_noise.py -k a_deterministic",
        ),
    ],
    "model/pymc_internals.py": [
        (
            "a missing part is told of without its feature",
            "has no {part}, which is needed for {feature}.",
            "has no {part}.",
            "test_pymc_internals.py -k missing_part",
        ),
        (
            "what one run said is not said by the next",
            "self._bar, self._said = ref(bar), set()",
            "self._bar = ref(bar)",
            "test_warnings.py -k once_per_run",
        ),
        (
            "each chain of a run warns",
            "if (heading, problem) not in self._said]",
            "if True]",
            "test_warnings.py -k once_per_run",
        ),
    ],
    "model/simulators.py": [
        (
            "a black box that raises at the initial point is not looked at elsewhere",
            "MOST_TRIALS, AROUND = 10, 1.0",
            "MOST_TRIALS, AROUND = 10, 0.0",
            "test_simulators.py -k raises_at_the_initial_point",
        ),
    ],
    "model/starts.py": [
        (
            "jitter to one side",
            "rng.uniform(-1, 1, value.shape)",
            "rng.uniform(0, 1, value.shape)",
            "test_starts.py -k jitter_is_uniform",
        ),
        (
            "the seed is ignored",
            "rng = np.random.default_rng(random_seed)",
            "rng = np.random.default_rng()",
            "test_starts.py -k a_seed_repeats",
        ),
        (
            "a start where the density is zero",
            "if np.isfinite(logp(point)):",
            "if True:",
            "test_starts.py -k 'retries or gives_up'",
        ),
        (
            "chains start from the first draws",
            "return [(chain, n_draws - 1) for chain in range(chains)]",
            "return [(chain, 0) for chain in range(chains)]",
            "test_starts_of_run.py -k from_the_last",
        ),
        (
            "chains more than there are in the result start from its end",
            "ends = -(-np.arange(1, chains + 1) * n // chains) - 1",
            "ends = n - np.arange(1, chains + 1)",
            "test_starts_of_run.py -k far_apart",
        ),
        (
            "elements are taken in the draws' order",
            "        values = values.isel({dim: places})",
            "        values = values.isel({dim: sorted(places)})",
            "test_starts_of_run.py -k by_their_labels",
        ),
    ],
    "model/python_calls.py": [
        (
            "an array of more dimensions reaches numba",
            "if value.ndim == declared.ndim and all(",
            "if all(",
            "test_python_calls.py -k misread",
        ),
        (
            "what was written into an input stays",
            "                value[...] = np.frombuffer(old, value.dtype).reshape(value.shape)",
            "                pass",
            "test_python_calls.py -k writes",
        ),
        (
            "a mistake is a numerical failure",
            "isinstance(error, ArithmeticError | np.linalg.LinAlgError | Warning)",
            "isinstance(error, Exception)",
            "test_python_calls.py -k mistakes",
        ),
    ],
    "model/watch.py": [
        (
            "an exception is counted, and its point accepted",
            "        gradient[:] = np.nan\n        return np.nan",
            "        gradient[:] = np.nan\n        return 0.0",
            "test_watch.py -k rejected_as_nan",
        ),
        (
            "errors of memory are rejected",
            "MemoryError | WrongReturn | NotHere",
            "WrongReturn | NotHere",
            "test_watch.py -k never_counts",
        ),
        (
            "an alarm rings after the evaluation, too",
            "            signal.setitimer(signal.ITIMER_REAL, 0)\n    finally:\n"
            "        signal.setitimer(signal.ITIMER_REAL, 0)\n",
            "            pass\n    finally:\n",
            "test_watch.py -k limit_leaves",
        ),
        (
            "NaN is believed at once",
            "MOST_DOUBTS = 2",
            "MOST_DOUBTS = 0",
            "test_watch.py -k random_is_noticed",
        ),
        (
            "one side of a coordinate is never looked at",
            "1 - 2 * (turn % 2)",
            "1",
            "test_watch.py -k noise_away",
        ),
        (
            "evaluations that doubt are not counted",
            "            chain.count[0] += 1\n",
            "",
            "test_watch.py -k random_is_noticed",
        ),
    ],
    "plots/common.py": [
        (
            "labels are cut off",
            "figure_of(backend, {}, figsize=size, sharey=True)",
            '{"figsize": size, "sharey": True}',
            "test_compare.py -k a_plot",
        ),
        (
            "a result without draws is plotted",
            """ or not dt["posterior"].sizes.get("draw"):""",
            """:""",
            "test_opening.py -k without_draws",
        ),
        (
            "a coordinate that there is not ends in an error of xarray",
            "if unknown := [dim for dim in coords if dim not in data.dims]:",
            "if unknown := []:",
            "test_plots.py -k coords_are",
        ),
        (
            "draws are on the natural scale",
            "return values if into is None else into(values)",
            "return values",
            "test_plots.py -k correlations",
        ),
        (
            "the first of several steps is taken without a word",
            "if (step is None and len(able) > 1) or step",
            "if step",
            "test_plots.py -k several_steps",
        ),
    ],
    "plots/compare.py": [
        (
            "a result ends in an error of xarray",
            "    _check_table(table)\n",
            "",
            "test_plots.py -k no_table",
        ),
    ],
    "plots/modes.py": [
        (
            "the rows of chains are upside down",
            "row = xr.DataArray(np.arange(len(chains))[::-1], ",
            "row = xr.DataArray(np.arange(len(chains)), ",
            "test_plots.py -k test_modes",
        ),
    ],
    "plots/proposals.py": [
        (
            "a contour has 95 % of one dimension",
            "CONTOUR = np.sqrt(-2 * np.log(1 - 0.95))",
            "CONTOUR = 1.96",
            "test_plots.py -k 95",
        ),
    ],
    "plots/tuning.py": [
        (
            "the end of tuning is where the draws end",
            "end = parts[0].sizes[along]",
            "end = parts[-1].sizes[along]",
            "test_plots.py -k adaptation",
        ),
        (
            "covariances are taken for correlations",
            "return covariance / (sd[..., None] * sd[..., None, :])",
            "return covariance",
            "test_plots.py -k 'correlations or factor'",
        ),
        (
            "CyclicalKAM's learned correlations are those within modes",
            'own.get("global_covariance", own["covariance"])',
            'own["covariance"]',
            "test_plots.py -k whole_past",
        ),
    ],
    "result/columns.py": [
        (
            "a variable is called as a dimension",
            "if taken := [name",
            "if taken := [] and [name",
            "test_faults.py -k called_as",
        ),
        (
            "the last step overwrites the others' statistics",
            "else np.stack(parts, axis=1)",
            "else np.stack([parts[-1]] * len(parts), axis=1)",
            "test_sample.py -k evaluating_anew_is_counted",
        ),
        (
            "draws of tuning are kept unasked",
            "        if keeps_warmup:\n",
            "        if not keeps_warmup:\n",
            "test_sample.py -k resumes_again_and_again",
        ),
        (
            "the log-density has another name than in PyMC",
            'RENAMED = {"model_logp": "lp"}',
            "RENAMED = {}",
            "test_sample.py -k 'draws_what_pm_sample_draws and GAM'",
        ),
    ],
    "result/memory.py": [
        (
            "draws are copied for the result",
            "array[:, start:stop][own]",
            "array.copy()[:, start:stop][own]",
            "test_faults.py -k takes_all -m slow",
        ),
    ],
    "result/opening.py": [
        (
            "a store whose run was killed is averaged over draws that were not made",
            'if tree.attrs["draws_kept"] < 0:',
            "if False:",
            "test_store.py -k after_kill_9",
        ),
        (
            "what chains have made beyond the result is part of it",
            "data = data.sel(chain=chains).isel(draw=slice(n))",
            "pass",
            "test_store.py -k after_a_stop",
        ),
        (
            "~ is a folder",
            "return Path(value).expanduser()",
            "return Path(value)",
            "test_store.py -k paths_may_be_text",
        ),
        (
            "variables of a store come back in the disk's order",
            "for name in names if name in data]]",
            "for name in sorted(names) if name in data]]",
            "test_opening.py -k as_it_was_returned",
        ),
    ],
    "result/state.py": [
        (
            "the parameters are not restored",
            "for name in STEP_TUPLES:\n        template",
            "for name in STEP_TUPLES[1:]:\n        template",
            "test_sample.py -k resumes_again_and_again",
        ),
        (
            "the generator is not restored",
            'step.rng = _generator_from_text(str(arrays[f"{prefix}rng"].item()))',
            "pass",
            "test_sample.py -k resumes_with_any_generator",
        ),
        (
            "what tuning remembers is not restored",
            'STEP_TUPLES = ("parameters", "state", "tuning", "guide", "watch")',
            'STEP_TUPLES = ("parameters", "state")',
            "test_sample.py -k 'adaptation_goes_on and GAM'",
        ),
        (
            "the state is not restored",
            'STEP_TUPLES = ("parameters", "state", "tuning", "guide", "watch")',
            'STEP_TUPLES = ("parameters", "tuning")',
            "test_sample.py -k resumes_again_and_again",
        ),
        (
            "two steps are stored under one name",
            'f"step_{k}_" if n_steps > 1',
            '"step_" if n_steps > 1',
            "test_sample.py -k several_steps_resume",
        ),
    ],
    "result/steps.py": [
        (
            "a step with other options is resumed",
            '("sampler", "variables", "shapes", *description["configuration"])',
            '("sampler", "variables", "shapes")',
            "test_sample.py -k another_step_is_refused",
        ),
    ],
    "result/store.py": [
        (
            "two runs that begin together write to one store",
            "_refuse_existing(path)  # another",
            "pass  # another",
            "test_store.py -k made_meanwhile",
        ),
        (
            "draws that are lost are read as NaN",
            "            self._check_draws(row, state.monitor)\n",
            "            pass\n",
            "test_store.py -k damaged",
        ),
        (
            "variables come back in the disk's order",
            "stored = stored[list(self.columns.groups[group])]",
            "stored = stored[list(stored)]",
            "test_store.py -k order_of_variables",
        ),
        (
            "draws that are all NaN are not written",
            '{"write_empty_chunks": True}',
            '{"write_empty_chunks": False}',
            "test_store.py -k all_nan",
        ),
        (
            "a store that was not made whole stays",
            "        if self._is_new:\n",
            "        if False:\n",
            "test_store.py -k full_at_the_beginning",
        ),
        (
            "a refusal removes the store that the run was to go on with",
            "        if self._is_new:\n",
            "        if True:\n",
            "test_store.py -k is_refused_leaves",
        ),
        (
            "only the first part of what waits is written",
            "name, np.concatenate(parts))\n            for",
            "name, parts[0])\n            for",
            "test_store.py -k 'full_disk_loses or kill_9'",
        ),
        (
            "what waits is read from the beginning only",
            "begin - first : end - first",
            "0 : end - begin",
            "test_store.py -k what_waits",
        ),
        (
            "an array of a store has no dimensions, as xarray needs them",
            'dimension_names=("checkpoint", "byte"),',
            "",
            "test_save.py -k xarray_reads_a_store",
        ),
        (
            "metadata are not put together",
            "        self._consolidate()\n",
            "        pass\n",
            "test_opening.py -k without_a_warning",
        ),
        (
            "xarray reads a store that goes on as it was at the end before",
            'self._root = zarr.open_group(self.path, mode="a", use_consolidated=False)',
            'self._root = zarr.open_group(self.path, mode="a")',
            "test_opening.py -k goes_on_removes",
        ),
    ],
    "result/tree.py": [
        (
            "a run without draws has no posterior",
            "if n > 0 or group in DRAWN_GROUPS:",
            "if n > 0:",
            "test_opening.py -k without_draws",
        ),
    ],
    "samplers/choice.py": [
        (
            "a step without variables takes those of others",
            "if var not in moved]\n        if not left",
            "if True]\n        if not left",
            "test_unbound.py -k however_they_are_given",
        ),
        (
            "a sampler stays in PyMC's list after an error",
            """    try:
        yield
    finally:
        STEP""",
            """    if True:
        yield
        STEP""",
            "test_unbound.py -k chosen_by_pm_sample",
        ),
    ],
    "samplers/componentwise/cmh.py": [
        (
            "CMH tunes the scale of another coordinate",
            "tuning.scale, k, work.accept_prob[k], eta)",
            "tuning.scale, k, work.accept_prob[work.order[k]], eta)",
            "test_cmh.py -k 'cmh_with_adaptation and random'",
        ),
    ],
    "samplers/componentwise/cmtm.py": [
        (
            "x takes the place of the wrong reference",
            "if j == s:",
            "if j == 0:",
            "test_cmtm.py -k test_sweeps_by_hand",
        ),
        (
            "references are drawn about x",
            "z = y + ladder[j] * rng.standard_normal()",
            "z = state.x[k] + ladder[j] * rng.standard_normal()",
            "test_cmtm.py -k test_sweeps_by_hand",
        ),
        (
            "a reference's distance is taken from x",
            "log_weight(logp, z - y, alpha)",
            "log_weight(logp, z - state.x[k], alpha)",
            "test_cmtm.py -k test_sweeps_by_hand",
        ),
        (
            "a try of weight 0 is selected",
            "if weights[j] > 0.0 and left >= 0.0:",
            "if left >= 0.0:",
            "test_cmtm.py -k selection",
        ),
        (
            "points of adaptation are counted from the start",
            "(t - tuning.n_shifting) % every == 0",
            "t % every == 0",
            "test_cmtm.py -k ladders_are_shifted_first",
        ),
        (
            "adaptation ends too soon",
            "max(0.99 ** (r - 1.0), r**-0.5)",
            "min(0.99 ** (r - 1.0), r**-0.5)",
            "test_cmtm.py -k probability_of_adaptation",
        ),
        (
            "ladders change with too little time to decide on their tries",
            "tuning.t[0] > tuning.n - LEAST_OBSERVED",
            "tuning.t[0] > tuning.n",
            "test_cmtm.py -k 'ladders_stay_before or cmtm_with_adaptation and default'",
        ),
        (
            "single tries although they cost as much",
            "if n_single * n_steps < n_logp:",
            "if n_single * n_steps <= n_logp:",
            "test_cmtm.py -k decision_on_single_tries",
        ),
        (
            "single tries are decided on before tuning ends",
            "if t == tuning.n and tuning.fewer_tries:",
            "if t == tuning.n - 1 and tuning.fewer_tries:",
            "test_cmtm.py -k 'cmtm_with_adaptation and default'",
        ),
        (
            "the narrow end of a ladder moves the wrong way",
            "math.ldexp(ladder[0], -first)",
            "math.ldexp(ladder[0], first)",
            "test_cmtm.py -k test_adapted_ladders",
        ),
    ],
    "samplers/componentwise/sweeps.py": [
        (
            "the target stays at a rejected try",
            "    target.point[k] = state.x[k]",
            "    pass",
            "test_cmtm.py -k leaves_the_target_where_the_chain_is",
        ),
        (
            "two steps share the name of a statistic",
            "names = [] if self._moves_all_continuous() else self.var_names",
            "names = []",
            "test_sweeps.py -k statistics_of_steps_with_other_numbers",
        ),
    ],
    "samplers/control_variates/option.py": [
        (
            "other steps may move variables, too",
            "if wanted and not self.layout.covers_all:",
            "if False:",
            "test_control_variates.py -k a_part",
        ),
    ],
    "samplers/control_variates/tally.py": [
        (
            "the energy error of leapfrog steps is that of a walk",
            "controls.steepness[0] * (square - square_y)",
            "0.5 * (square - square_y)",
            "test_control_variates.py -k leapfrog_steps_add",
        ),
        (
            "E is left out",
            "expected = e[SQUARE_COLUMN] * u**2 + e[VARIANCE_COLUMN] * controls.variance[k]",
            "expected = 0.0",
            "test_control_variates.py -k 'defined or zero'",
        ),
        (
            "the table is read beyond its end",
            "    if not r < controls.farthest[0]:\n        return False\n",
            "",
            "test_control_variates.py -k beyond",
        ),
    ],
    "samplers/gradient/barker.py": [
        (
            "the proposal is taken for a symmetric one",
            "accept(target, state, work.y, logp_y, log_hastings, rng)",
            "accept(target, state, work.y, logp_y, 0.0, rng)",
            "test_calibration.py -k 'uniform and Barker and hierarchy'",
        ),
        (
            "the gradient does not decide on the sign",
            "softplus(-w * state.u[i]) else -w",
            "softplus(w) else -w",
            "test_barker.py -k by_hand",
        ),
        (
            "the way back is taken for the way there",
            "- softplus(work.w[i] * work.u[i])",
            "- softplus(-work.w[i] * work.u[i])",
            "test_barker.py -k by_hand",
        ),
        (
            "Lᵀg is not handed over",
            "    if accepted:\n        copy(work.u, state.u)\n",
            "",
            "test_barker.py -k by_hand",
        ),
    ],
    "samplers/gradient/controlled_leapfrog.py": [
        (
            "z stays where it was",
            "        copy(work.zy, state.z)",
            "        pass",
            "test_control_variates.py -k 'zero and GadMALA'",
        ),
        (
            "z does not follow somebody else's moves",
            "state.x, work.v, state.z)",
            "state.x, work.v, work.v)",
            "test_control_variates.py -k 'follows and GadMALA'",
        ),
        (
            "what is known of ξ is subtracted from another proposal",
            "np.exp(parameters.log_scale[0]), n_steps)",
            "np.exp(parameters.log_scale[0]), parameters.n_leapfrog)",
            "test_control_variates.py -k leapfrog_steps_add",
        ),
    ],
    "samplers/gradient/fisher.py": [
        (
            "regularisation falls too slowly with the number of pairs",
            "0.05 / (0.05 + k * k)",
            "0.05 / (0.05 + k)",
            "test_fisher.py -k test_factor",
        ),
        (
            "gradients are divided by the scale",
            "(pairs[r, d + i] - mean_g) * scale",
            "(pairs[r, d + i] - mean_g) / scale",
            "test_fisher.py -k test_factor",
        ),
        (
            "weak gradients are believed",
            "max(0.0, 1.0 - information[i] / least)",
            "0.0",
            "test_fisher.py -k 'weak_gradients_are_not_believed or constant_gradients'",
        ),
    ],
    "samplers/gradient/fisher_rule.py": [
        (
            "Lᵀg is stale after L is learned",
            "return not refreshes",
            "return True",
            "test_gad.py -k 'test_chains and fisher'",
        ),
        (
            "L is learned too often",
            "following = done + max(20, done // 2)",
            "following = done + max(20, done // 3)",
            "test_gad.py -k 'test_chains and fisher'",
        ),
        (
            "L is first learned from a handful of pairs",
            "min(n_tune // 3, max(20",
            "min(n_tune // 10, max(20",
            "test_gad.py -k when_it_is_first_learned",
        ),
        (
            "the distance of modes widens the pooled L",
            "[window - window.mean(axis=0) for",
            "[window for",
            "test_gad.py -k pool_their_pairs",
        ),
        (
            "a chain's own pairs replace the pooled L at once",
            "chain.tuning.is_pooled[0] = True",
            "pass",
            "test_gad.py -k pool_their_pairs",
        ),
        (
            "a chain never learns alone again",
            "    tuning.is_pooled[0] = False\n",
            "",
            "test_gad.py -k pool_their_pairs",
        ),
        (
            "what was not finite is learned from",
            "if plausible and work.log_hastings[0] > -np.inf:",
            "if plausible:",
            "test_gad.py -k 'chains_with_holes and fisher'",
        ),
    ],
    "samplers/gradient/gad.py": [
        (
            "the gradient of the objective has the wrong sign",
            "slope * (objective.left[0, i] - target.gradient[i])",
            "slope * (target.gradient[i] - objective.left[0, i])",
            "test_gad.py -k 'compiled_gradient and published and not walk'",
        ),
        (
            "the second derivative takes the gradient of the wrong end",
            "left[2, i] = 0.5 * state.gradient[i]",
            "left[2, i] = 0.5 * target.gradient[i]",
            "test_gad.py -k 'test_chains and exact'",
        ),
        (
            "a gradient is taken from where there is none",
            "is_inside and squared_norm(target.gradient) < np.inf",
            "squared_norm(target.gradient) < np.inf",
            "test_gad.py -k 'chains_with_holes and whitened'",
        ),
        (
            "RMSprop begins with a mean of nothing",
            "forget = 1.0 if is_first else 0.1",
            "forget = 0.1",
            "test_gad.py -k 'compiled_gradient and published and not walk'",
        ),
        (
            "a triangle is summed from the wrong end",
            "for j in range(i, -1, -1):",
            "for j in range(i + 1):",
            "test_gad.py -k 'test_target_accept and whitened and not walk'",
        ),
        (
            "the entropy's weight falls where too much is accepted",
            "objective.beta[0] * (1.0 + change)",
            "objective.beta[0] * (1.0 - change)",
            "test_gad.py -k 'test_target_accept and whitened and not walk'",
        ),
        (
            "published adaptation that goes on does not slow down",
            "if t >= tuning.n:  # the user keeps adapting",
            "if False:",
            "test_gad.py -k 'test_keep_adapting and published and not walk'",
        ),
        (
            "the first scales are variances",
            "size, 1.0) ** -0.5",
            "size, 1.0) ** -1.0",
            "test_gad.py -k 'test_chains and fisher'",
        ),
    ],
    "samplers/gradient/last_phase.py": [
        (
            "leapfrog never begins",
            "else parameters.n_leapfrog",
            "else 1",
            "test_gad.py -k 'test_leapfrog_chains and fisher'",
        ),
        (
            "trajectories turn back",
            "bounds = -np.inf, longest_scale(n_leapfrog)",
            "bounds = -np.inf, np.inf",
            "test_gad.py -k 'test_leapfrog_chains and fisher'",
        ),
        (
            "the scale does not settle with the last transition of tuning",
            "settled, max(n, t + 1))",
            "settled, n + 1)",
            "test_gad.py -k 'test_chains and fisher'",
        ),
        (
            "a scale that goes on being tuned is no longer averaged",
            "settled, max(n, t + 1))",
            "settled, n)",
            "test_gad.py -k 'test_keep_adapting and fisher'",
        ),
    ],
    "samplers/gradient/mala.py": [
        (
            "the proposal is taken for a symmetric one",
            "accept(target, state, work.y, logp_y, log_hastings, rng)",
            "accept(target, state, work.y, logp_y, 0.0, rng)",
            "test_calibration.py -k 'uniform and MALA and hierarchy'",
        ),
        (
            "the Hastings ratio is inverted",
            "log_hastings = kinetic - kinetic_y",
            "log_hastings = kinetic_y - kinetic",
            "test_gad.py -k test_mala",
        ),
        (
            "the energy is that of the proposal, even where it is rejected",
            "energy_y if accepted else energy",
            "energy_y",
            "test_gad.py -k 'test_chains and whitened'",
        ),
        (
            "an energy that is not finite is no divergence",
            "if not energy_y - energy <= LARGEST_ENERGY_ERROR:",
            "if LARGEST_ENERGY_ERROR < energy_y - energy < np.inf:",
            "test_gad.py -k 'chains_with_holes and fisher'",
        ),
        (
            "statistics have the names of those of NUTS beside it",
            "return field if step._moves_all_continuous() else",
            "return field if True else",
            "test_gad.py -k beside_nuts",
        ),
        (
            "the last half step forgets the scale",
            "work.h[i] + 0.5 * scale * work.uy[i]",
            "work.h[i] + 0.5 * work.uy[i]",
            "test_gad.py -k test_mala",
        ),
        (
            "the gradient is that of the last position",
            "copy(work.uy, state.u)",
            "pass",
            "test_gad.py -k test_mala",
        ),
        (
            "one leapfrog step too few",
            "return largest // 2 + 1 + int(",
            "return largest // 2 + int(",
            "test_gad.py -k numbers_of_steps",
        ),
        (
            "leapfrog makes a whole step of the momentum at its end",
            "if step < n_steps - 1:",
            "if True:",
            "test_gad.py -k leapfrog_comes_back",
        ),
        (
            "a chain may start where the gradient is NaN",
            "if not squared_norm(state.gradient) < np.inf:",
            "if squared_norm(state.gradient) == np.inf:",
            "test_gad.py -k start_without_a_finite_gradient",
        ),
    ],
    "samplers/kameleon/cyclical_kam.py": [
        (
            "jumps of tuning count",
            "state.jumps[:] = 0",
            "pass",
            "test_cyclical_kam.py -k counted_from_the_end_of_tuning",
        ),
        (
            "a chain does not tell that no jump was accepted",
            "return [explain_jumps(self)]",
            "return []",
            "test_cyclical_kam.py -k of_which_none_is_accepted",
        ),
        (
            "cycles are one transition too long",
            "(position + 1) % parameters.cycle_length",
            "(position + 1) % (parameters.cycle_length + 1)",
            "test_cyclical_kam.py -k transitions_by_hand",
        ),
        (
            "ν is tuned by all moves",
            "elif work.move[0] == LOCAL_MOVE:",
            "else:",
            "test_cyclical_kam.py -k nu_is_tuned_by_the_local_moves",
        ),
        (
            "a move that is not accepted is worth as much",
            "+= accept_prob * squared_norm",
            "+= squared_norm",
            "test_cyclical_kam.py -k worth_is_learned_by_hand",
        ),
        (
            "a kind of move is given up",
            "LEAST_SHARE = 0.04",
            "LEAST_SHARE = 0.0",
            "test_cyclical_kam.py -k worth_is_learned_by_hand",
        ),
    ],
    "samplers/kameleon/kam.py": [
        (
            "KAM sees its points from where they are not",
            "u, work = np.linalg.solve(root, x)",
            "u, work = x",
            "test_plots.py -k of_the_sampler",
        ),
        (
            "the proposal is taken for a symmetric one",
            "state, y, logp_y, log_hastings, log_u, cap)",
            "state, y, logp_y, 0.0, log_u, cap)",
            "test_kam.py -k transitions_by_hand",
        ),
        (
            "points are of the own past alone",
            "pool_histories([chain.tuning.past.history for chain in in_the_same_place(chains)])",
            "pass",
            "test_pooling.py -k points_of_kam",
        ),
        (
            "points are told in whitened coordinates",
            "(np.tril(subsample.shape.factor) @ subsample.z[:, :m]).T",
            "subsample.z[:, :m].T",
            "test_learned.py -k of_the_past",
        ),
        (
            "the forward density lacks its normalisation",
            "-0.5 * squared_norm(xi) - log_determinant(local.factor)",
            "-0.5 * squared_norm(xi)",
            "test_kam.py -k transitions_by_hand",
        ),
        (
            "the reverse density is the forward one",
            "log_hastings = log_normal(step, work.factor)",
            "log_hastings = log_normal(step, local.factor)",
            "test_kam.py -k transitions_by_hand",
        ),
        (
            "the normal density lacks its normalisation",
            "return -0.5 * squared_norm(scaled) - log_determinant(factor)",
            "return -0.5 * squared_norm(scaled)",
            "test_kam.py -k log_normal_is_scipys",
        ),
        (
            "ν for ν²",
            "factor[i, j] = nu * nu * covariance[i, j]",
            "factor[i, j] = nu * covariance[i, j]",
            "test_kam.py -k log_normal_is_scipys",
        ),
        (
            "proposals are rejected early that might be accepted",
            "variance = max(gamma * gamma, distance2)",
            "variance = gamma * gamma",
            "test_kam.py -k reverse_bound",
        ),
        (
            "the covariance is that of the last position",
            "copy_matrix(work.covariance, local.covariance)",
            "pass",
            "test_kam.py -k state_follows_each_redraw",
        ),
        (
            "the factor outlives the covariance it was made from",
            "        local.scales[0] = np.nan",
            "        pass",
            "test_kam.py -k state_follows_each_redraw",
        ),
        (
            "the state does not follow new coordinates",
            "return not is_new",
            "return True",
            "test_kam.py -k state_follows_each_redraw",
        ),
        (
            "z is redrawn up to the end of tuning",
            "if t < past.n_walk or past.n_learning <= t < tuning.n:",
            "if t < past.n_walk:",
            "test_kam.py -k test_adaptation_by_hand",
        ),
        (
            "redraws are counted from the start of tuning",
            "(1.0 + t - past.first[0]) ** -tuning.redraw_decay",
            "(1.0 + t) ** -tuning.redraw_decay",
            "test_kam.py -k test_redraw_decay",
        ),
        (
            "without a z it is KAM's move",
            "if subsample.m[0] == 0:\n        return random_walk",
            "if subsample.m[0] < 0:\n        return random_walk",
            "test_kam.py -k until_there_is_a_z",
        ),
        (
            "ν₀ is not a scale but its square",
            "OPTIMAL_SCALE * s / np.sqrt(trace)",
            "OPTIMAL_SCALE * s / trace",
            "test_kam.py -k z_and_what_follows",
        ),
    ],
    "samplers/kameleon/kernels.py": [
        (
            "the table's slopes are by u, not by its root",
            "-2 * root[1:] * unit",
            "-unit",
            "test_kernels.py -k the_table_is_exact",
        ),
        (
            "True is a bandwidth",
            " and not isinstance(value, bool)",
            "",
            "test_kernels.py -k refuses_impossible_bandwidths",
        ),
        (
            "a kernel that has no gradient is accepted",
            "1.5 <= self.order <= 30",
            "1.0 <= self.order <= 30",
            "test_kernels.py -k refuses_impossible_orders",
        ),
        (
            "rules for the bandwidth are exchanged",
            '{"median": MEDIAN, "knn": KNN}',
            '{"median": KNN, "knn": MEDIAN}',
            "test_kernels.py -k a_rule_leaves_the_bandwidth_open",
        ),
    ],
    "samplers/kameleon/learn_modes.py": [
        (
            "an image is taken for a mode without looking",
            "if not change > -MOST_ASYMMETRY:",
            "if False:",
            "test_cyclical_kam.py -k clusters_are_learned_by_hand",
        ),
        (
            "chains of a run learn alone",
            "    archives = [archived(c.tuning.search",
            "    if len(chains) > 1:\n        return [learn_modes([c]) for c in chains]\n"
            "    archives = [archived(c.tuning.search",
            "test_cyclical_kam.py -k chains_jump_to_what_others_found",
        ),
        (
            "a chain in a bad place adds to the clusters",
            "archives = [archive.above(floor) for archive in archives]",
            "archives = [a.above(a.logps.max() - 16) for a in archives]",
            "test_cyclical_kam.py -k all_chains_get_the_same",
        ),
        (
            "what other chains learned of the clusters is dropped",
            "elif len(chains) > 1:",
            "elif False:",
            "test_cyclical_kam.py -k of_the_clusters_is_pooled",
        ),
        (
            "means that chains learned differ for nothing",
            'covariances += np.einsum("ck,cki,ckj->kij", shares, deviations, deviations)',
            "pass",
            "test_cyclical_kam.py -k of_the_clusters_is_pooled",
        ),
        (
            "a mode weighs as much as it is high",
            " + np.log(np.diagonal(factors[known], axis1=1, axis2=2)).sum(axis=1)",
            "",
            "test_learn_modes.py -k log_masses",
        ),
        (
            "a cluster that does not matter is kept",
            "> np.log(NEGLIGIBLE_WEIGHT)",
            "> -np.inf",
            "test_learn_modes.py -k drop_clusters",
        ),
        (
            "z is not drawn evenly from the modes",
            "chosen = choose_evenly(labels, subsample.z.shape[1], step.rng)",
            "chosen = step.rng.permutation(len(points))[: subsample.z.shape[1]]",
            "test_cyclical_kam.py -k test_what_is_learned",
        ),
        (
            "a valley is measured from the lower end",
            "np.linspace(logps[0], logps[-1], len(logps)) - logps",
            "min(logps[0], logps[-1]) - logps",
            "test_learn_modes.py -k test_valley",
        ),
        (
            "modes are joined across a valley",
            "if valley(path) < VALLEY_DEPTH and",
            "if",
            "test_learn_modes.py -k two_modes",
        ),
        (
            "what is chosen is not in random order",
            'return rng.permutation(order[np.argsort(ranks[order], kind="stable")][:m])',
            'return order[np.argsort(ranks[order], kind="stable")][:m]',
            "test_learn_modes.py -k choose_evenly",
        ),
        (
            "the nearest mode does not depend on how wide it is",
            "        - np.log(np.diag(factor)).sum()\n",
            "",
            "test_learn_modes.py -k nearest_modes",
        ),
        (
            "distances between modes count",
            "pdist(points[labels == k])",
            "pdist(points)",
            "test_learn_modes.py -k median_distance_within",
        ),
        (
            "a mode of few points takes the size of all modes",
            "(1 - own) * volume * pooled",
            "(1 - own) * pooled",
            "test_learn_modes.py -k blended_factors",
        ),
    ],
    "samplers/kameleon/mode_moves.py": [
        (
            "a jump forgets its Jacobian",
            "log_hastings += log_determinant(clusters.factors[j]) - "
            "log_determinant(clusters.factors[i])",
            "pass",
            "test_cyclical_kam.py -k transitions_by_hand",
        ),
        (
            "a jump forgets how likely its mode was",
            "log_hastings -= work.log_r[i]",
            "pass",
            "test_cyclical_kam.py -k transitions_by_hand",
        ),
        (
            "a jump takes the responsibilities where it began",
            "responsibilities(clusters, y, work.log_r, step)",
            "pass",
            "test_cyclical_kam.py -k transitions_by_hand",
        ),
        (
            "a jump forgets how its end was chosen",
            "np.log(own / (total - other)) - np.log(other / (total - own))",
            "0.0",
            "test_cyclical_kam.py -k transitions_by_hand",
        ),
        (
            "a mirror image has the signs of the other side",
            "walk.y[i] += maps[k, i, j] * state.x[j]",
            "walk.y[i] -= maps[k, i, j] * state.x[j]",
            "test_cyclical_kam.py -k transitions_by_hand",
        ),
        (
            "a difference is not symmetric",
            "z[i, a] - z[i, b] + gamma",
            "z[i, a] + gamma",
            "test_cyclical_kam.py -k transitions_by_hand",
        ),
        (
            "whitened coordinates do not follow a jump",
            "kam.derived(state, parameters.kam, work.kam)",
            "pass",
            "test_cyclical_kam.py -k transitions_by_hand",
        ),
    ],
    "samplers/kameleon/mode_search.py": [
        (
            "tuning reads what another chain left in scratch",
            "work.move[0] = SEARCH_MOVE  # also the last kick home, when clusters are known",
            "pass",
            "test_contract.py -k 'scratch and Cyclical'",
        ),
        (
            "nothing is found along rays",
            "elif logp > max(search.lowest[0] + LEAST_RISE, search.highest[0]):",
            "elif False:",
            "test_cyclical_kam.py -k narrow_mode_is_found",
        ),
        (
            "a kick goes on",
            "    search.kick[0] = 0.0\n    if searches",
            "    if searches",
            "test_cyclical_kam.py -k test_what_is_learned",
        ),
        (
            "all clusters learn as the first is visited",
            "search.visits[i] += 1.0",
            "search.visits[0] += 1.0",
            "test_cyclical_kam.py -k clusters_are_learned_by_hand",
        ),
        (
            "the search settles where there is nothing",
            "if state.logp[0] > search.home_logp[0] - search.negligible:",
            "if True:",
            "test_cyclical_kam.py -k search_comes_home",
        ),
    ],
    "samplers/kameleon/pca_kam.py": [
        (
            "the normal density lacks its normalisation",
            "- d * np.log(gamma) - 0.5 * np.log1p(excess)",
            "- d * np.log(gamma)",
            "test_pca_kam.py -k log_normal_is_scipys",
        ),
        (
            "the reverse density looks from the wrong end",
            "directions[j], work.weights, work.u, work.there)",
            "directions[j], local.weights, local.u, work.there)",
            "test_pca_kam.py -k transitions_by_hand",
        ),
        (
            "the weights are those of the last position",
            "copy(work.weights, local.weights)",
            "pass",
            "test_pca_kam.py -k transitions_by_hand",
        ),
        (
            "all directions count as the first one",
            "tuning.counts[j] += 1",
            "tuning.counts[0] += 1",
            "test_pca_kam.py -k test_adaptation_by_hand",
        ),
        (
            "probabilities do not add up to 1",
            "probabilities[j] /= total",
            "probabilities[j] /= 1.0",
            "test_pca_kam.py -k directions_and_what_follows",
        ),
    ],
    "samplers/kameleon/published_cyclical_kam.py": [
        (
            "ν falls from where Exploration ends by a wrong cosine",
            "2.0 * state.nu[1] / (np.cos(np.pi * parameters.beta) + 1.0)",
            "state.nu[1]",
            "test_published_cyclical_kam.py -k nu_falls_with_the_cosine",
        ),
        (
            "ν grows where too little is accepted",
            "eta * (accept_prob - parameters.target_accept)",
            "eta * (parameters.target_accept - accept_prob)",
            "test_published_cyclical_kam.py -k cycles_by_hand",
        ),
    ],
    "samplers/kameleon/rkhs.py": [
        (
            "the kernel covariance is not centred",
            "v[k, i] -= mean",
            "v[k, i] -= 0.0 * mean",
            "test_rkhs.py -k test_kernel_covariance",
        ),
        (
            "weights of Matérn's kernel lack their normalisation",
            "kernel.order / (kernel.order - 1.0)",
            "kernel.order",
            "test_kernels.py -k gradients_of_the_kernel",
        ),
        (
            "interpolation forgets the unit of the derivative",
            "t * unit * left[column + 1]",
            "t * left[column + 1]",
            "test_kernels.py -k the_table_is_exact",
        ),
        (
            "the kernel matrix is not centred on both sides",
            "total - means[i] - means[j]",
            "total - 2.0 * means[i]",
            "test_rkhs.py -k test_centred_gram",
        ),
        (
            "points that are equal count as a distance",
            "if s > 0.0:",
            "if s >= 0.0:",
            "test_rkhs.py -k leaves_zeros_out",
        ),
        (
            "a point is its own first neighbour",
            "np.sqrt(smallest(r2, k))",
            "np.sqrt(smallest(r2, k - 1))",
            "test_rkhs.py -k test_neighbour_distance",
        ),
    ],
    "samplers/kameleon/subsample.py": [
        (
            "a schedule of γ is counted from the start of tuning",
            "decayed(past.gamma, tuning.t[0] - past.first[0])",
            "decayed(past.gamma, tuning.t[0])",
            "test_kam.py -k gamma_on_a_schedule",
        ),
        (
            "z is drawn from all of the past",
            "start, stop = recent(past.history)",
            "start, stop = 0, past.history.counts[0]",
            "test_kam.py -k z_and_what_follows",
        ),
        (
            "without whitening the walk learns a shape",
            "        if past.whiten:\n            learn_shape",
            "        if True:\n            learn_shape",
            "test_kam.py -k until_there_is_a_z",
        ),
    ],
    "samplers/symmetries.py": [
        (
            "a weight has no sign",
            "part.middle in MIDDLES]",
            "part.middle == 0]",
            "test_symmetries.py -k likeliest",
        ),
        (
            "that some of a vector are weights is enough",
            "np.all((low + high) / 2 == one)",
            "np.any((low + high) / 2 == one)",
            "test_symmetries.py -k one_half",
        ),
        (
            "rows of a square matrix are exchanged along with columns alone",
            "if len(axes) > 1 else [None]",
            "if len(axes) > 2 else [None]",
            "test_symmetries.py -k rows_of_a_square",
        ),
        (
            "what PyMC leaves out of a simplex is not exchanged",
            "-values.sum(axis=-2, keepdims=True)",
            "0 * values.sum(axis=-2, keepdims=True)",
            "test_symmetries.py -k exchanged_in_all",
        ),
        (
            "labels are exchanged in each variable alone",
            "for some in chain([having], zip(having))",
            "for some in zip(having)",
            "test_symmetries.py -k exchanged_in_all",
        ),
    ],
    "samplers/learned_shape.py": [
        (
            "means that differ much count in full",
            "np.clip(values, 0.0, 1.0)",
            "np.maximum(values, 0.0)",
            "test_pooling.py -k differ_much",
        ),
        (
            "a chain that has lost its shape spoils that of all",
            ".min() > COLLAPSED]",
            ".min() != 1.0]",
            "test_pooling.py -k has_collapsed",
        ),
        (
            "nothing is pooled",
            "        pool_moments([c._shape()",
            "        ([c._shape()",
            "test_pooling.py -k pool_their_covariances",
        ),
    ],
    "samplers/one_scale.py": [
        (
            "a fixed scale is tuned",
            "else np.full(2, start)",
            "else None",
            "test_random_walk.py -k rwm_with_a_fixed_scale",
        ),
        (
            "the scale of RWM settles at its mean over all of tuning",
            "settle_scale(parameters.log_scale, tuning.scale, 0, t, tuning.n // 2, tuning.n)",
            "settle_scale(parameters.log_scale, tuning.scale, 0, t, 0, tuning.n)",
            "test_random_walk.py -k rwm_with_adaptation",
        ),
    ],
    "samplers/random_walk/adaptive.py": [
        (
            "AM learns from the state before the move",
            "update_mean_and_factor(moments.mean, moments.factor, state.x, eta, work.v)",
            "update_mean_and_factor(moments.mean, moments.factor, work.x, eta, work.v)",
            "test_random_walk.py -k 'walks_with_adaptation and am and not gam'",
        ),
        (
            "AM tunes its scale for ever",
            "if moments.seeding[1] == 0 or t < moments.n_fast:",
            "if True:",
            "test_random_walk.py -k 'walks_with_adaptation and am and not gam'",
        ),
        (
            "RBAM learns from the state after the move",
            "moments.factor, work.x, work.y, accept_prob, eta, work.v)",
            "moments.factor, state.x, work.y, accept_prob, eta, work.v)",
            "test_random_walk.py -k 'walks_with_adaptation and rbam'",
        ),
        (
            "the scale of GAM settles over the first half",
            "t, n - n // 2, n)",
            "t, 0, n)",
            "test_random_walk.py -k 'walks_with_adaptation and gam'",
        ),
    ],
    "samplers/random_walk/controlled.py": [
        (
            "z stays where it was",
            "            state.z[k] += work.v[k]",
            "            state.z[k] += 0.0",
            "test_control_variates.py -k 'zero and GAM'",
        ),
        (
            "z does not follow somebody else's moves",
            "state.x, work.v, state.z)",
            "state.x, work.v, work.v)",
            "test_control_variates.py -k 'follows and GAM'",
        ),
    ],
    "samplers/random_walk/ram.py": [
        (
            "RAM's steps fall too slowly",
            "d * (t + 1) ** (-2.0 / 3.0)",
            "d * (t + 1) ** (-1.0 / 3.0)",
            "test_random_walk.py -k ram_with_adaptation",
        ),
        (
            "RAM's direction has not length 1",
            "(abs(eta) / squared_norm(work.xi)) ** 0.5",
            "abs(eta) ** 0.5",
            "test_random_walk.py -k ram_with_adaptation",
        ),
    ],
    "samplers/surrogate/archive.py": [
        (
            "points that are far out count like others",
            "far = np.maximum(squares[rows] / (SPARSE_DISTANCE * d), 1)",
            "far = 1",
            "test_surrogate.py -k far_out",
        ),
        (
            "rejected points are forgotten",
            "moves.append(tuning.moves.points[: tuning.moves.counts[0], d : 2 * d + 1])",
            "moves.append(tuning.moves.points[:0, d : 2 * d + 1])",
            "test_surrogate.py -k what_all_have_seen",
        ),
    ],
    "samplers/surrogate/density.py": [
        (
            "the slope of the quadratic is left out",
            "s = linear[i]",
            "s = 0.0",
            "test_density.py",
        ),
        (
            "kernels beyond those in use count",
            "for j in range(n):\n        total",
            "for j in range(weights.size):\n        total",
            "test_density.py",
        ),
        (
            "the surrogate may be wild far out",
            "return base + min(max(h, surrogate.bounds[0]), surrogate.bounds[1])",
            "return base + h",
            "test_density.py -k far",
        ),
    ],
    "samplers/surrogate/emulator.py": [
        (
            "a saved Hessian is taken for what compiled code multiplies with",
            "quadratic[np.diag_indices(len(quadratic))] /= 2",
            "pass",
            "test_emulator.py -k its_own",
        ),
        (
            "centres are kept in another unit than they are read in",
            "surrogate.centres[:, :n].T / surrogate.rates",
            "surrogate.centres[:, :n].T",
            "test_emulator.py -k its_own",
        ),
        (
            "an emulator is of the worst chain",
            ".idxmin(",
            ".idxmax(",
            "test_emulator.py -k best",
        ),
        (
            "draws are taken for where the last move began",
            'moves["end_logp"] == logp, moves["end"]',
            'moves["end_logp"] == logp, moves["start"]',
            "test_emulator.py -k of_the_model",
        ),
    ],
    "samplers/surrogate/fit.py": [
        (
            "a surrogate lacks the level of the log-density",
            "level + coefficients[0]",
            "coefficients[0]",
            "test_emulator.py -k of_the_model",
        ),
        (
            "its bounds lack it",
            "level + typical - LOWER_MARGIN, level + h.max() + UPPER_MARGIN",
            "typical - LOWER_MARGIN, h.max() + UPPER_MARGIN",
            "test_emulator.py -k of_the_model",
        ),
        (
            "errors are those of the fit, not left out",
            "self.mean_error(alpha / np.sum(np.tril(inverse) ** 2, axis=0))",
            "self.mean_error(alpha / alpha.size)",
            "test_surrogate.py -k without_each_point",
        ),
        (
            "so are those of a quadratic alone",
            "self.features @ coefficients) / (1 - leverage)",
            "self.features @ coefficients)",
            "test_surrogate.py -k brute_force",
        ),
        (
            "a quadratic alone keeps the kernels of the last fit",
            "surrogate.nu[0], surrogate.n[0] = nu, 0",
            "surrogate.nu[0] = nu",
            "test_surrogate.py -k brute_force",
        ),
        (
            "coordinates are never stretched",
            "hyper = min([hyper, *_stretched(hyper, k)], key=error)",
            "pass",
            "test_surrogate.py -k banana",
        ),
        (
            "the Hessian of the base is left out",
            "surrogate.quadratic[np.diag_indices(d)] -= 1.0",
            "pass",
            "test_surrogate.py -k gaussian_process",
        ),
        (
            "diagonal of the Hessian counts twice",
            "surrogate.quadratic[np.diag_indices(d)] /= 2.0",
            "pass",
            "test_surrogate.py -k gaussian_process",
        ),
        (
            "points that are not scored are not fitted",
            "    if len(u) > effort.n_scored:\n",
            "    if False:\n",
            "test_surrogate.py -k decide_on_the_choice",
        ),
        (
            "numpy's surrogate has no bounds",
            "np.clip(unbounded_values(surrogate, u) - base, *surrogate.bounds)",
            "unbounded_values(surrogate, u) - base",
            "test_density.py",
        ),
    ],
    "samplers/surrogate/inner_chain.py": [
        (
            "the bound of h stays where it was",
            "surrogate.bounds[0] = fitted - depth",
            "pass",
            "test_surrogate.py -k volume_is_unknown",
        ),
    ],
    "samplers/surrogate/learning.py": [
        (
            "chains stay where hardly any mass is",
            "if lost > NEGLIGIBLE_MASS:",
            "if False:",
            "test_surrogate.py -k hardly_any_mass",
        ),
        (
            "μ stays as it was",
            "    parameters.mean[:], parameters.factor[:] = seen.mean, seen.factor\n",
            "    parameters.factor[:] = seen.factor\n",
            "test_surrogate.py -k 'nearly_independent or learn_together'",
        ),
        (
            "news are what is known",
            "parameters.surrogate, u[known]) > KNOWN_WITHIN",
            "parameters.surrogate, u[known]) < KNOWN_WITHIN",
            "test_surrogate.py -k news",
        ),
        (
            "chains look at nothing",
            "int(LOOK_SHARE * chain.tuning.t[0] + rng.random())",
            "0",
            "test_surrogate.py -k look",
        ),
        (
            "the bound of h is lowered whatever was found",
            "np.mean(found[low] > bound - depth + 1) < SURPRISES",
            "True",
            "test_surrogate.py -k known_depth",
        ),
        (
            "kernels are never fitted where evaluations are cheap",
            "    few = [part[: effort.n_centres] for part in sample]\n",
            "    if effort.is_cheap:\n        return plain\n"
            "    few = [part[: effort.n_centres] for part in sample]\n",
            "test_surrogate.py -k kernels_are_fitted",
        ),
        (
            "what a move costs does not count",
            "        e = inner_chain.effective(e) / costs\n",
            "        pass\n",
            "test_surrogate.py -k worth_per_cost",
        ),
    ],
    "samplers/surrogate/metropolis.py": [
        (
            "a search in batches ends after so many evaluations as one after another may take",
            "self._most_of_search if self.evaluations_at_once > 1 else self._usual_budget()",
            "self._usual_budget()",
            "test_evaluations_at_once.py -k goes_on_in_batches",
        ),
        (
            "ways take most evaluations in many dimensions",
            "return 0.9 if self._is_active else super().way_share",
            "return 0.9",
            "test_max_evaluations.py -k ways_take_more",
        ),
        (
            "moves by the surrogate do not mind its density",
            "log_hastings = power * (state.log_s[0] - log_s)",
            "log_hastings = 0.0",
            "test_surrogate.py -k each_kind_of_move",
        ),
        (
            "reference moves do not mind the mixture that they are from",
            "log_hastings -= log_of_modes(parameters.modes, work.y, work.w)",
            "pass",
            "test_surrogate.py -k 'mixture_of_modes or by_hand'",
        ),
        (
            "chains do not know what others have found",
            "modes.share_what_was_found(in_the_same_place(chains))",
            "pass",
            "test_look.py -k far_mode",
        ),
        (
            "a look that is interrupted searches again",
            "q[: self._d] = x\n        self._fill",
            "q[: self._d], self._active_search = x, None\n        self._fill",
            "test_look.py -k interrupted",
        ),
        (
            "few evaluations are spent on a look, too",
            "and n >= LEAST_FOR_LOOK",
            "and True",
            "test_look.py -k few",
        ),
        (
            "reference moves do not mind the t density",
            "log_hastings = log_t(surrogate, u) - log_t(surrogate, v)",
            "log_hastings = 0.0",
            "test_surrogate.py -k each_kind_of_move",
        ),
        (
            "the inner chain begins elsewhere",
            "copy(u, v)\n        log_s = inner",
            "copy(u, v)\n        v[0] *= 0.8\n        log_s = inner",
            "test_surrogate.py -k each_kind_of_move",
        ),
        (
            "wide moves do not mind their power",
            "log_hastings = power * (",
            "log_hastings = 1.0 * (",
            "test_surrogate.py -k 'each_kind_of_move or by_hand'",
        ),
        (
            "log s(u) outlives u",
            "            state.log_s[0] = log_s\n",
            "",
            "test_surrogate.py -k 'by_hand or derives'",
        ),
        (
            "log s(u) outlives the surrogate",
            "    state.log_s[0] = np.nan\n",
            "",
            "test_surrogate.py -k derives_follows",
        ),
        (
            "u outlives an accepted move",
            "            copy(work.v, state.u)\n",
            "",
            "test_surrogate.py -k by_hand",
        ),
        (
            "what has not moved is evaluated",
            "    if moved:\n",
            "    if True:\n",
            "test_surrogate.py -k by_hand",
        ),
        (
            "a look counts as a move",
            "    if kind == LOOK:\n        return True\n",
            "",
            "test_surrogate.py -k look",
        ),
        (
            "a cheap log-density counts as dear",
            "self.log_density.holds_gil if given is None",
            "True if given is None",
            "test_surrogate.py -k expensive",
        ),
        (
            "a chain far below learns with the others",
            "together = in_the_same_place(chains)",
            "together = chains",
            "test_surrogate.py -k learn_together",
        ),
        (
            "chains never learn together",
            "together = in_the_same_place(chains)",
            "together = chains[:1]",
            "test_surrogate.py -k learn_together",
        ),
        (
            "keep_adapting is taken",
            'if common.get("keep_adapting"):',
            "if False:",
            "test_surrogate.py -k keep_adapting",
        ),
    ],
    "samplers/surrogate/look.py": [
        (
            "f need not dip before a new mode",
            "if all(_dips(search, x, f, mode) for mode in known):",
            "if True:",
            "test_look.py -k one_mode",
        ),
        (
            "a new mode may be a known one",
            "or any(one.holds(mode.mean) for one in known)",
            "",
            "test_look.py -k no_mass",
        ),
    ],
    "samplers/surrogate/modes.py": [
        (
            "modes are never taken for one",
            "merged = _merge(found, learned)",
            "merged = False",
            "test_look.py -k states_join",
        ),
    ],
    "samplers/surrogate/moves.py": [
        (
            "draws of chains that are taken for one are numbered by chain",
            "self.row % size * draws + self.draw",
            "self.draw",
            "test_evaluations_at_once.py -k superchain_for",
        ),
        (
            "partners are one chain before both have accepted",
            "if accepted and other_accepted and is_same:",
            "if (accepted or other_accepted) and is_same:",
            "test_expectation.py -k 'exact or new_runs'",
        ),
        (
            "a partner's proposal has another distribution",
            "cosine * other[i] + ratio * (w[i] - cosine * v[i])",
            "cosine * other[i] + (w[i] - cosine * v[i])",
            "test_expectation.py -k new_runs",
        ),
        (
            "points are not weighted",
            "np.exp(log_w - self._most).reshape(g.shape)",
            "np.ones(g.shape)",
            "test_expectation.py -k exact",
        ),
        (
            "weights of points without mass count as missing",
            "len(w) * np.square(w).sum()",
            "finite.sum() * np.square(w).sum()",
            "test_expectation.py -k certificate",
        ),
        (
            "draws of the surrogate are those of the posterior",
            "x = new_ends(parameters, x, rng)",
            "pass",
            "test_expectation.py -k poor_surrogate_are_of",
        ),
        (
            "all runs have the same draws of the surrogate, but for their starts",
            "rng, x = generator_of(start)",
            "rng, x = np.random.default_rng(0)",
            "test_expectation.py -k poor_surrogate_are_of",
        ),
    ],
    "samplers/surrogate/proposal.py": [
        (
            "g does not depend on u",
            "g = rng.standard_gamma(0.5 * (nu + d)) / (0.5 * (nu + squared_norm(u)))",
            "g = rng.standard_gamma(0.5 * nu) / (0.5 * nu)",
            "test_surrogate.py -k 'inner_chain or each_kind'",
        ),
        (
            "reference moves of the inner chain do not mind it",
            "log_ratio += log_t(surrogate, work.v) - log_t(surrogate, work.w)",
            "pass",
            "test_surrogate.py -k by_hand",
        ),
    ],
    "samplers/surrogate/second.py": [
        (
            "a surrogate learns from the chain that it is judged by",
            "seen = np.delete(moves.seen, row, axis=0).reshape(-1, own.mean.size + 1)",
            "seen = moves.seen.reshape(-1, own.mean.size + 1)",
            "test_expectation.py -k does_not_learn_from",
        ),
        (
            "a second surrogate forgets what tuning has seen",
            "f = np.concatenate([seen[:, -1], fit.values(surrogate, centres)])",
            "f = np.concatenate([seen[:, -1], 0 * fit.values(surrogate, centres)])",
            "test_expectation.py -k learn_from_other_chains",
        ),
    ],
    "sampling/chain_of_run.py": [
        (
            "a worker that dies of too many draws gets as many again",
            "self._n = max(1, self._n // 4)",
            "pass",
            "test_faults.py -k leaks_until -m slow",
        ),
        (
            "an advance goes on beyond the end of tuning",
            "stops = (*pauses, self.tune, self.total)",
            "stops = (*pauses, self.total)",
            "test_sample.py -k 'draws_what_pm_sample_draws and GAM'",
        ),
        (
            "an advance goes on where something is to be learned in Python",
            "stops = (*pauses, self.tune, self.total)",
            "stops = (self.tune, self.total)",
            "test_sample.py -k 'draws_what_pm_sample_draws and CyclicalKAM'",
        ),
    ],
    "sampling/compare.py": [
        (
            "each driver takes its own number of cores",
            '"cores": cores,',
            '"cores": None,',
            "test_compare.py -k as_many_cores",
        ),
        (
            "the step that is wrong is as good as any",
            'rows[label]["ok"] and z <= limit',
            'rows[label]["ok"]',
            "test_compare.py",
        ),
        (
            "the nearest judge decides",
            "apart[(len(apart) - 1) // 2]",
            "apart[0]",
            "test_compare.py -k majority",
        ),
        (
            "chains that never moved have an ESS",
            "np.where(moves, np.nan_to_num(ess), 0.0)",
            "np.nan_to_num(ess)",
            "test_compare.py -k does_not_move",
        ),
        (
            "steps that have not converged judge the others",
            "for k in judges",
            "for k in draws",
            "test_compare.py -k judges_nobody",
        ),
        (
            "evaluations of tuning do not count",
            '(WARMUP_STATS, "sample_stats")',
            '("sample_stats",)',
            "test_compare.py -k evaluations",
        ),
    ],
    "sampling/ctrl_c.py": [
        (
            "a second Ctrl-C right after the first is lost",
            "self._pressed, self._pressed_again = True, self._pressed",
            "self._pressed = True",
            "test_workers.py -k not_lost",
        ),
    ],
    "sampling/limits.py": [
        (
            "target_ess looks at the tail alone",
            'for method in ("bulk", "tail")]',
            'for method in ("tail", "tail")]',
            "test_run.py -k what_is_enough",
        ),
        (
            "what lacked most is looked at for ever",
            "self._worst = int(np.argmax(lack))",
            "self._worst = int(np.argmin(lack))",
            "test_run.py -k lacked_most",
        ),
    ],
    "sampling/new_run.py": [
        (
            "the value of a start is taken for that of another point",
            "None if begins_elsewhere else noted",
            "noted",
            "test_evaluations_at_once.py -k values_of_starts",
        ),
        (
            "all steps of a chain share a generator",
            "rng.spawn(len(own)) if len(own) > 1 else [rng]",
            "[rng] * len(own)",
            "test_sample.py -k several_steps_resume",
        ),
    ],
    "sampling/starts_of_run.py": [
        (
            "a start may be outside the region of the second step",
            "return min(self._values)",
            "return self._values[0]",
            "test_sample.py -k starts_are_in_the_region",
        ),
        (
            "starts are tried with the data that the step was made with",
            "            step.log_density.read_data()",
            "            pass",
            "test_starts_of_run.py -k prior_are_possible",
        ),
        (
            "a start of another shape is accepted",
            "if found != shape:",
            "if False:",
            "test_sample.py -k impossible_initvals",
        ),
        (
            "what pm.find_MAP returns is refused",
            "if var not in follow",
            "if True",
            "test_starts_of_run.py -k find_map",
        ),
        (
            "chains about the mode are about the initial point",
            '"map", jittered(model, mode), n=n_looked_at)',
            '"map", jittered(model), n=n_looked_at)',
            "test_starts_of_run.py -k the_mode",
        ),
        (
            "without a gradient the mode is where the search began",
            "return _named(layout, found.x)",
            "return _named(layout, start)",
            "test_starts_of_run.py -k without_a_gradient",
        ),
    ],
    "sampling/outcome.py": [
        (
            "what is computed besides loses the draws if it fails",
            "                except Exception:  # a finished run is worth",
            "                except KeyError:  # a finished run is worth",
            "test_faults.py -k computed_besides_may",
        ),
        (
            "surrogates for plots are fitted by threads that wait for each other",
            "with threadpool_limits(1):",
            "with threadpool_limits(2):",
            "test_expectation.py -k not_worth_a_run",
        ),
        (
            "a run that goes on says again what was said",
            "if (i, problem) not in chain.given_warnings:",
            "if True:",
            "test_messages.py -k say_together",
        ),
        (
            "what differs in numbers is said once per chain",
            "said[i, _without_numbers(problem)]",
            "said[i, problem]",
            "test_messages.py -k differs_in_numbers",
        ),
        (
            "tuning that was planned is taken for tuning that was made",
            "tuned = min(chain.done, chain.tune) -",
            "tuned = chain.tune -",
            "test_messages.py -k what_this_run_made",
        ),
        (
            "an interrupted run keeps the longest chain, not the most draws",
            "length * (i + 1) for i, length",
            "length for i, length",
            "test_sample.py -k an_interrupted_run_gives",
        ),
    ],
    "sampling/prepared.py": [
        (
            "what chains learn together is compiled in the middle of the run",
            "_compile_learning(settings, steps, states)\n    numbered",
            "numbered",
            "test_run.py -k compiled_before_the_first_draw",
        ),
        (
            "what cannot be returned is drawn",
            "    check_names(steps[0].model, columns, origin.numbers)\n",
            "",
            "test_faults.py -k 'refused_before or called_as'",
        ),
    ],
    "sampling/progress.py": [
        (
            "chains in turn are taken for chains at a time",
            "max(work.sum() * elapsed / seconds, work.max())",
            "work.max()",
            "test_progress.py -k time_left",
        ),
        (
            "the search for scales before the first draw is taken for part of each draw",
            "min(self.evaluations / self.done, self.most)",
            "self.evaluations / self.done",
            "test_progress.py -k time_left",
        ),
        (
            "the clock stands still between two news",
            "max(self._left - since, 0.1 * self._left)",
            "self._left",
            "test_progress.py -k time_goes_by",
        ),
        (
            "chains that waited for the posterior are taken for chains in turn",
            "seconds_left(self._rows, self.elapsed - elapsed, seconds)",
            "seconds_left(self._rows, self.elapsed)",
            "test_progress.py -k waited_for_the_posterior",
        ),
        (
            "the way to the posterior is shown once there are draws",
            "if row.done > before.done or row.search != before.search:",
            "if row.done > before.done:",
            "test_progress.py -k way_to_the_posterior",
        ),
        (
            "without a terminal each news is a line",
            "self._due = now + LINE_INTERVAL",
            "self._due = now",
            "test_progress.py -k without_a_terminal",
        ),
        (
            "without a terminal nothing is said until the end",
            "_log.info(self._progress.in_a_line())",
            "pass",
            "test_progress.py -k without_a_terminal",
        ),
        (
            "columns are cut in a narrow terminal",
            "shown.remove(i)",
            "pass",
            "test_progress.py -k narrow",
        ),
        (
            "in a file the next message is glued to the bars",
            "console.line()",
            "pass",
            "test_progress.py -k is_shown",
        ),
    ],
    "sampling/resumed_run.py": [
        (
            "what only some chains had made is lost",
            "for part in (group, AHEAD + group, BEHIND + group):",
            "for part in (group, BEHIND + group):",
            "test_sample.py -k an_interrupted_run_gives",
        ),
        (
            "what chains had made that were left out is lost",
            "for part in (group, AHEAD + group, BEHIND + group):",
            "for part in (group, AHEAD + group):",
            "test_sample.py -k an_interrupted_run_gives",
        ),
        (
            "a chain that is behind gets as many more draws as a new run",
            "or not (ended or self._until_enough)",
            "",
            "test_faults.py -k one_chain_may",
        ),
        (
            "an estimate is compared with another one where a run goes on",
            "if step.point is None or step.pseudo_marginal:",
            "if step.point is None:",
            "test_noise.py -k 'kept_until_a_move and GAM'",
        ),
        (
            "draws in another order are taken",
            "if n > 0 and not np.array_equal(",
            "if n > 9**9 and not np.array_equal(",
            "test_store.py -k changed_is_refused",
        ),
        (
            "thinned tuning is taken",
            "WARMUP_STATS: tuned}",
            "}",
            "test_store.py -k changed_is_refused",
        ),
        (
            "another model is resumed",
            "if now == step.log_density(q):",
            "if now != step.log_density(q):",
            "test_sample.py -k another_model_is_refused",
        ),
    ],
    "sampling/budget.py": [
        (
            "evaluations of the chains themselves are not counted",
            "sum(state.evaluations + state.checks for state in states)",
            "sum(state.checks for state in states)",
            "test_max_evaluations.py -k no_more",
        ),
        (
            "evaluations of a run that goes on are not counted",
            "sum(state.evaluations + state.checks for state in states)",
            "sum(state.evaluations for state in states)",
            "test_max_evaluations.py -k resuming_takes",
        ),
        (
            "evaluations after tuning that look at a point again come on top",
            "return to_go + self._looks(draws) - self._looks(least)",
            "return to_go",
            "test_max_evaluations.py -k no_more",
        ),
        (
            "chains tune longer after an interruption",
            "left = self.left(states) + sum(state.checks for state in states)",
            "left = self.left(states)",
            "test_max_evaluations.py -k resuming_takes",
        ),
        (
            "the first chain may search as long as it likes",
            "most - n_others * other",
            "10 * most",
            "test_max_evaluations.py -k no_more",
        ),
    ],
    "sampling/run.py": [
        (
            "chains that nothing guides begin where nobody has looked",
            "self._lead()\n            self._save(",
            "self._save(",
            "test_evaluations_at_once.py -k nothing_guides_them",
        ),
        (
            "nothing is left for the result where memory is full",
            "self._error, None\n        if isinstance",
            "self._error, self._reserve\n        if isinstance",
            "test_faults.py -k takes_all -m slow",
        ),
        (
            "draws that are lost with an exception are not told",
            "            except Exception as another:",
            "            except ZeroDivisionError as another:",
            "test_faults.py -k put_together",
        ),
        (
            "a likelihood that is interrupted ends the run in silence",
            """the likelihood's own
            self._end("interrupted")""",
            "the likelihood's own",
            "test_faults.py -k ctrl_c_itself",
        ),
        (
            "a task that is interrupted costs others their draws",
            """        except KeyboardInterrupt:
            self._end("interrupted")
            return""",
            """        except ZeroDivisionError:
            self._end("interrupted")
            return""",
            "test_workers.py -k costs_no_other",
        ),
        (
            "data that change during a run are not told",
            "!= self._data:",
            "!= self._data and False:",
            "test_faults.py -k change_during",
        ),
        (
            "chains begin before the first one has come home",
            "return self._follow and begins and not first.has_arrived",
            "return False and not first.has_arrived",
            "test_surrogate.py -k follow_the_first",
        ),
        (
            "an interrupted way is not kept",
            "self._flush()  # how far ways have come",
            "pass",
            "test_evaluations_at_once.py -k stopped",
        ),
        (
            "a store does not hear of what chains have learned together",
            "chain.state = state\n                self._record.save(chain.row, state)\n",
            "chain.state = state\n",
            "test_surrogate.py -k store_keeps",
        ),
        (
            "a store is written between chains that have learned together",
            "self._record.save(chain.row, state)\n            self._flush_if_due()",
            "self._save(chain)",
            "test_store.py -k written_together",
        ),
        (
            "a pause learns when one chain has come to it",
            "if due == 0 or not all(chain.has_passed",
            "if due == 0 or not any(chain.has_passed",
            "test_stragglers.py -k any_moment",
        ),
        (
            "chains that do not wait at pauses wait for each other there",
            "self._late = set(example[0].pauses()[1:-1]) if late else set()",
            "self._late = set()",
            "test_stragglers.py -k takes_long",
        ),
        (
            "where the first chain has come is told to nobody",
            "if not self._follow or chain.done > 0 or chain.is_on_its_way:",
            "if True:",
            "test_surrogate.py -k follow_the_first",
        ),
        (
            "only the first step may ask for a meeting",
            "in zip(self._learning_draws, chain.state.steps, strict=True)",
            "in zip(self._learning_draws[:1], chain.state.steps[:1], strict=True)",
            "test_workers.py -k second_step",
        ),
        (
            "draws of a chain that was given up cut the others",
            "[chain for chain in self._chains if not chain.lost] or self._chains)",
            "self._chains)",
            "test_workers.py -k of_two_chains",
        ),
        (
            "target_ess forgets what was drawn before",
            "while self._look < prepared.before:",
            "while False:",
            "test_run.py -k drawn_before_is_kept",
        ),
        (
            "the last draws are not looked at",
            "0 < (look := min(self._look, most)) <= made",
            "0 < (look := self._look) <= made",
            "test_run.py -k most_draws_may",
        ),
        (
            "a disk that is full at the end loses the run",
            "self._flush()\n        tree",
            "self._record.flush()\n        tree",
            "test_store.py -k full_at_the_end",
        ),
        (
            "a chain that is behind waits for ever",
            "chains = [chain for chain in waiting if chain.done == first]",
            "chains = [chain for chain in self._chains if not chain.lost]",
            "test_workers.py -k given_up_learns_later",
        ),
        (
            "chains learn together though they should not",
            "if pools and step.learns_together",
            "if step.learns_together",
            "test_workers.py -k not_pooled",
        ),
    ],
    "sampling/run_costs.py": [
        (
            "what is measured moves the step itself",
            "twin, rng = step.for_chain(), ",
            "twin, rng = step, ",
            "test_messages.py -k arithmetic",
        ),
        (
            "a black box runs in the user's process for the sake of a message",
            "if step.log_density.holds_gil or not",
            "if not",
            "test_messages.py -k python_is_not_called",
        ),
        (
            "an executor is taken for a single core",
            '"of computing" if cores is None else ',
            "",
            "test_messages.py -k an_expensive_run",
        ),
        (
            "the search for scales before the first draw is not told",
            "scouted += alone + at_a_time",
            "pass",
            "test_messages.py -k looking_for_scales",
        ),
        (
            "the one chain that looks for the posterior does so on all cores",
            "alone * logp + (evaluations * (logp + own) + at_a_time * logp)",
            "(evaluations * (logp + own) + (alone + at_a_time) * logp)",
            "test_messages.py -k others_follow",
        ),
    ],
    "sampling/worker_process.py": [
        (
            "a worker takes the function of a notebook for that of the same name",
            "reduced(obj) if type(obj) is FromFunctionOp else ",
            "",
            "test_workers.py -k of_a_notebook",
        ),
        (
            "Ctrl-C in a terminal ends the workers of an executor",
            "            ignore_ctrl_c()\n            threadpool",
            "            threadpool",
            "test_workers.py -k began_before",
        ),
        (
            "Ctrl-C in a terminal ends the workers of Dask",
            "add_callback(ignore)",
            "add_callback(int)",
            "test_workers.py -k dask_cluster",
        ),
        (
            "a worker remembers all jobs",
            "while len(memory) > MOST_JOBS:",
            "while False:",
            "test_workers.py -k arrives_once_at_each",
        ),
        (
            "a worker compiles the model for each run",
            "_compiled[parcel.key], _jobs[token] = kept, job",
            "_jobs[token] = job",
            "test_workers.py -k keep_what",
        ),
        (
            "a worker takes a black box that has changed for the old one",
            "kept is None or not kept.are_as_they_were",
            "kept is None",
            "test_workers.py -k changed_model",
        ),
        (
            "an exception that cannot be unpickled kills the run",
            "pickle.loads(pickle.dumps(self.error))",
            "pickle.dumps(self.error)",
            "test_workers.py -k failures_travel",
        ),
    ],
    "sampling/workers.py": [
        (
            "a broken executor is used again",
            "self._broken = self._broken or isinstance(error, BrokenExecutor)",
            "pass",
            "test_workers.py -k dies_once",
        ),
        (
            "executors that cannot cancel tasks, as loky's, are told to",
            "shutdown(wait=False)  # loky's",
            "shutdown(wait=False, cancel_futures=True)  # loky's",
            "test_workers.py -k own_processes_and",
        ),
        (
            "workers outlive their parent",
            "threading.Thread(target=_end_with_parent, daemon=True).start()",
            "pass",
            "test_workers.py -k parent_is_killed",
        ),
        (
            "Ctrl-C kills workers",
            "    ignore_ctrl_c()",
            "    pass",
            "test_workers.py -k leave_ctrl_c",
        ),
        (
            "Ctrl-C does not wait for the workers of a cluster",
            "and not client.nthreads()",
            "and client.nthreads()",
            "test_workers.py -k nobody_is_left",
        ),
        (
            "a worker is without the model for ever",
            "TASKS_WITH_JOB if lacks else max(0, self._tasks_with_job - 1)",
            "int(lacks is not None)",
            "test_workers.py -k never_has_the_same",
        ),
    ],
    "step/base.py": [
        (
            "where the way has led is evaluated again",
            "                self.state.logp[0] = value\n                return True",
            "                self.state.logp[0] = value\n                return False",
            "test_max_evaluations.py -k two_chains",
        ),
        (
            "evaluations that find a start are not counted",
            "self.monitor.uncounted = n - begins_there",
            "self.monitor.uncounted = 0",
            "test_black_box_calls.py -k no_good",
        ),
        (
            "chains in threads write their statistics into one row",
            "twin.patience, twin._buffer = WARM_START_PATIENCE, self.statistics.buffer()",
            "twin.patience = WARM_START_PATIENCE",
            "test_statistics.py -k its_own",
        ),
        (
            "nothing is moved",
            "if d == 0:",
            "if d < 0:",
            "test_faults.py -k of_no_elements",
        ),
        (
            "a chain jumps to where its gradient is not finite",
            " and np.isfinite(self.log_density.gradient).all():",
            ":",
            "test_starts.py -k gradient_is_finite",
        ),
        (
            "chains of pk.sample jump from the user's start",
            "self.log_density.copy(), False",
            "self.log_density.copy(), True",
            "test_starts.py -k leave_starts_alone",
        ),
        (
            "a chain stays at the last place where it cannot start",
            """                return
        q[:d] = start""",
            """                return""",
            "test_starts.py -k finds_no_place",
        ),
        (
            "a chain without tuning tunes",
            "self.tune = tune > 0",
            "self.tune = True",
            "test_contract.py -k 'tune_zero and RWM and not Gad'",
        ),
        (
            "the generator of the last chain is used again",
            "self.rng = get_random_generator(rng, copy=False)",
            "pass",
            "test_random_walk.py -k transitions_by_hand",
        ),
        (
            "draws of tuning are taken for transitions",
            "self._fill(np.ones(self._d), tune * self.steps_per_draw)",
            "self._fill(np.ones(self._d), tune)",
            "test_warnings.py -k 'tuning_too_short and RWM and not Gad'",
        ),
        (
            "a float32 position is taken for one that somebody moved",
            "self.layout.round(self.point)",
            "pass",
            "test_contract.py -k 'float32_keeps_the_logp and RWM and not Gad'",
        ),
    ],
    "step/draw_costs.py": [
        (
            "evaluations by which a step was made are told with each run",
            "        step.n_trials = 0\n",
            "        pass\n",
            "test_black_box_calls.py -k pm_sample_calls",
        ),
        (
            "a likelihood of minutes is timed three times",
            "if seconds < 1:",
            "if True:",
            "test_messages.py -k at_most_three_times",
        ),
    ],
    "step/job.py": [
        (
            "a way is made again for each point of the next step",
            "own[k] = step.sampling_state",
            "pass",
            "test_evaluations_at_once.py -k have_ways_too",
        ),
        (
            "NaN is evaluated again on ways that are made many at a time",
            "replace(job.rule, doubts=False)",
            "replace(job.rule, doubts=True)",
            "test_evaluations_at_once.py -k evaluated_again",
        ),
        (
            "what a black box returned stays behind when a chain goes on elsewhere",
            "job.leave(steps, point, notes.at(point))",
            "job.leave(steps, point)",
            "test_black_box_calls.py -k are_evaluations",
        ),
        (
            "a chain goes on from what another left",
            "step.take_up(own)",
            "step.point is None and step.take_up(own)",
            "test_workers.py -k 'arrays_does_not_matter and GAM'",
        ),
        (
            "learning goes by the first chain alone",
            "learn_together([chain[k] for chain in chains], points)",
            "learn_together([chains[0][k]], points)",
            "test_workers.py -k learn_together",
        ),
        (
            "what was learned at the pause before is not taken up",
            "            step.adopt(learned)\n",
            "            pass\n",
            "test_stragglers.py -k take_up",
        ),
        (
            "what chains learn late repeats their random numbers",
            "[replace(own, rng=_another(own.rng)) for own in new.steps]",
            "[*new.steps]",
            "test_stragglers.py -k take_up",
        ),
        (
            "tuning does not stop",
            "step.stop_tuning()",
            "pass",
            "test_sample.py -k 'draws_what_pm_sample_draws and GAM'",
        ),
        (
            "a Python deterministic runs in several threads",
            "return self.outputs, *(step.log_density for step in self.steps)",
            "return [step.log_density for step in self.steps]",
            "test_sample.py -k black_box_deterministic",
        ),
        (
            "functions of PyTensor that keep what they compute are called in threads",
            "bool(self.batched) and all(functions.in_numba for functions in self._functions)",
            "bool(self.batched)",
            "test_together.py -k not_safe_in_threads",
        ),
    ],
    "step/learned.py": [
        (
            "labels of dimensions are lost",
            "elif dim in one.labels:",
            "elif False:",
            "test_emulator.py -k shares_are_of",
        ),
        (
            "of a factor that is a diagonal, the scales are told as variances",
            "values = factor[:, 0] ** 2",
            "values = factor[:, 0]",
            "test_learned.py -k told_as_variances",
        ),
        (
            "two steps of one sampler overwrite each other",
            "if name in several",
            "if False",
            "test_learned.py -k do_not_collide",
        ),
        (
            "a chain that learned less ends in zeros",
            "np.full((len(values), *largest), np.nan)",
            "np.zeros((len(values), *largest))",
            "test_learned.py -k end_in_nan",
        ),
    ],
    "step/make_draws.py": [
        (
            "an estimate is made again where another step has moved",
            "if step.pseudo_marginal and status == MOVED:",
            "if False:",
            "test_noise.py -k beside_it",
        ),
        (
            "an error on the way to the posterior is one of a draw",
            "if step.is_warm_starting:",
            "if False:",
            "test_sample.py -k on_the_way_to_the_posterior",
        ),
        (
            "a chain tells of +inf that it has told of before",
            "    step.log_density.count[1] = 0\n",
            "",
            "test_warnings.py -k plus_infinity",
        ),
        (
            "a chain alone pauses where there is nothing to pool",
            "if step.learns_alone and learning_is_due",
            "if learning_is_due",
            "test_workers.py -k gad_mala_pools",
        ),
        (
            "somebody else moved our variables: unnoticed",
            "if step.point is None or not np.array_equal(q[:d], step.point[:d]):",
            "if step.point is None:",
            "test_gad.py -k some_variables_of_a_model",
        ),
        (
            "new data go unnoticed",
            "new_data, step.data = step.data != step.log_density.digest, step.log_density.digest",
            "new_data = False",
            "test_contract.py -k 'logp_follows_the_data and RWM and not Gad'",
        ),
        (
            "the gradient is stale after new data",
            "return MOVED if step.derivatives else STALE_LOGP",
            "return STALE_LOGP",
            "test_gad.py -k some_variables_of_a_model",
        ),
        (
            "adaptation goes on although there was no tuning",
            "step.tune or (step.keep_adapting and step.tuning.n > 0)",
            "step.tune or step.keep_adapting",
            "test_contract.py -k 'test_keep_adapting and RWM and not Gad'",
        ),
        (
            "a chain jumps from the user's start",
            "step.jitters and np.array_equal(q[:d], step._common_start)",
            "step.jitters",
            "test_starts.py -k test_a_chain_stays",
        ),
        (
            "a chain jumps although it does not tune",
            "if step.tune and step.jitters and",
            "if step.jitters and",
            "test_starts.py -k test_a_chain_stays",
        ),
        (
            "evaluations from Python are not counted",
            "rows[0, COMMON.n_logp] += elsewhere\n",
            "rows[0, COMMON.n_logp] += 0\n",
            "test_sample.py -k all_evaluations_of_a_black_box",
        ),
        (
            "evaluations by which chains learn together are not counted",
            "    elsewhere += step.monitor.uncounted\n",
            "",
            "test_cyclical_kam.py -k counts_what_chains",
        ),
    ],
    "step/monitor.py": [
        (
            "runs of rejections end where calls do",
            "longest_rejection(accept_shares, before)",
            "longest_rejection(accept_shares)",
            "test_sample.py -k monitor_counts_the_same",
        ),
        (
            "draws are taken for transitions in a warning",
            "long_enough = self.longest * steps_per_draw >= STUCK_TRANSITIONS",
            "long_enough = self.longest >= STUCK_TRANSITIONS",
            "test_warnings.py -k 'a_long_run_of_rejections and GAM'",
        ),
    ],
    "step/pooling.py": [
        (
            "a chain in a bad place learns with the others",
            "if logp >= least]",
            "]",
            "test_pooling.py -k bad_place",
        ),
        (
            "of a long past only the beginning is pooled",
            "rows[np.linspace(0, len(rows) - 1, n).astype(int)]",
            "rows[:n]",
            "test_pooling.py -k many_pasts",
        ),
    ],
    "step/problems.py": [
        (
            "no warning of a covariance that rounding decides",
            "if not left[i] <= SINGULAR:",
            "if True:",
            "test_warnings.py -k cannot_be_learned",
        ),
        (
            "no warning of a way that is too long",
            "problems = [*_start_problems(step), _explain_way(step), _explain_odd(step)]",
            "problems = _start_problems(step)",
            "test_warnings.py -k way_to_the_posterior",
        ),
        (
            "a chain that is stuck to an estimate is told of narrow posteriors alone",
            "STUCK_ADVICE if step.pseudo_marginal else cure",
            "cure",
            "test_noise.py -k too_much_noise",
        ),
        (
            "no warning of a common start",
            "if not step.monitor.common_start:",
            "if True:",
            "test_warnings.py -k 'start_at_the_initial_point and RWM and not Gad'",
        ),
        (
            "the wrong bound is named",
            'side = "lower" if',
            'side = "upper" if',
            "test_warnings.py -k 'a_scale_at_its_bound and RWM'",
        ),
        (
            "a chain is judged by its tuning before that is over",
            "if step.monitor.done >= step.monitor.tune:",
            "if True:",
            "test_messages.py -k until_it_is_over",
        ),
    ],
    "step/statistics.py": [
        (
            "moves are kept although other steps move other variables",
            "kept if whole else {}",
            "kept",
            "test_statistics.py -k beside_another_step",
        ),
        (
            "a sampler may call its statistic as one of all samplers",
            '{*common, "warning"}',
            '{"warning"}',
            "test_statistics.py -k wrong_declaration",
        ),
    ],
    "step/unbound.py": [
        (
            "an unbound step of pk.sample is used up",
            "        return self.sampler(chosen, **",
            "        self.sampler = self.sampler(chosen, **",
            "test_unbound.py -k leaves_it_as_it_is",
        ),
        (
            "an unbound step draws otherwise than the step that it makes",
            "self.methods[0].setup_chain(rng, tune, draws)",
            "super().setup_chain(rng, tune, draws)",
            "test_unbound.py -k makes_it_the_step",
        ),
    ],
    "step/warm_start/approach.py": [
        (
            "no climb",
            "            _climb(search, least=LINE_EVALUATIONS[1] * d)",
            "            pass",
            "test_approach.py -k climbed",
        ),
        (
            "the way down the neck of a funnel is not taken back",
            "            search.return_to(before)\n            return\n        if d <= MOST_FITTED",
            "            pass\n        if d <= MOST_FITTED",
            "test_approach.py -k neck_of_a_funnel",
        ),
        (
            "a way that used up its evaluations is never told",
            "if is_spent else 0.0",
            "if False else 0.0",
            "test_approach.py -k while_it_climbs",
        ),
        (
            "a way that is at its end counts as one that climbs",
            "if is_spent else 0.0",
            "",
            "test_approach.py -k while_it_climbs",
        ),
        (
            "a jump to where another chain is counts as a climb",
            "search.left == 0 and not has_jumped",
            "search.left == 0",
            "test_approach.py -k while_it_climbs",
        ),
        (
            "a climb of a normal is taken back",
            "strays = solved and len(exact) < d",
            "strays = solved",
            "test_approach.py -k scales_of_fourteen",
        ),
        (
            "nothing is fitted at the top",
            "if d <= MOST_FITTED:",
            "if False:",
            "test_approach.py -k shape_of_what",
        ),
        (
            "a draw near home is any of its normal",
            "if np.log(rng.random()) < logp(x) - found.logp + z @ z / 2:",
            "if True:",
            "test_approach.py -k no_draw_is_accepted",
        ),
        (
            "a chain follows another one across a dip",
            "if np.max(np.minimum(before, after) - f) > LARGEST_DIP or ",
            "if ",
            "test_approach.py -k near_another_mode",
        ),
        (
            "chains do not climb before they look for a dip",
            "        _climb_in_metric(search, guide)\n",
            "        _sweep(search, rng, others, LINE_EVALUATIONS[1])\n",
            "test_approach.py -k ridge_that_it_would",
        ),
        (
            "a chain that does not follow goes to the other place all the same",
            "        search.return_to(own)\n        return False",
            "        return False",
            "test_approach.py -k near_another_mode",
        ),
        (
            "a chain believes that f is quadratic where it begins, too",
            "misfit <= EXACT_LINE * (f[-1] - place[1]) + rounding",
            "True",
            "test_approach.py -k near_another_mode",
        ),
    ],
    "step/warm_start/lines.py": [
        (
            "the volume of the neck of a funnel does not count",
            "return f + self.n * growth",
            "return f",
            "test_approach.py -k neck_of_a_funnel",
        ),
        (
            "the last line tells whether f is quadratic",
            "        if spread > search.ranges[k]:",
            "        if True:",
            "test_approach.py -k pass_for_a_parabola",
        ),
        (
            "rounding counts as misfit",
            "ROUNDING * np.abs(f).max(), 0)",
            "0, 0)",
            "test_approach.py -k scales_of_fourteen",
        ),
        (
            "the scale of a parabola is not believed",
            "    if misfit > EXACT_LINE:",
            "    if True:",
            "test_approach.py -k scales_of_fourteen",
        ),
    ],
    "step/warm_start/quadratics.py": [
        (
            "a volume that is not known is divided by",
            "            return -1.0\n        bracket(",
            "            pass\n        bracket(",
            "test_approach.py -k where_parabolas_end",
        ),
        (
            "a quadratic is fitted within rounding",
            "width = max(1.0, ",
            "width = min(1.0, ",
            "test_approach.py -k scales_of_fourteen",
        ),
        (
            "a rough shape is believed untried",
            "        if not abs(drop",
            "        if False and not abs(drop",
            "test_approach.py -k rough_way",
        ),
    ],
    "step/warm_start/search.py": [
        (
            "the budget is not kept",
            "if self.left == 0:",
            "if self.left < 0:",
            "test_approach.py -k budget_is_kept",
        ),
    ],
    "testing.py": [
        (
            "what is no step may pass",
            "if not isinstance(step, BlockedStep | CompoundStep):",
            "if False:",
            "test_testing.py -k cannot_be_made",
        ),
        (
            "statistics that are declared need not be emitted",
            "emitted = always - unused <= set(row)",
            "emitted = True",
            "test_testing.py -k NotEmitted",
        ),
        (
            "a new step goes on without the state",
            "fresh.sampling_state = pickle.loads(pickled)",
            "pickle.loads(pickled)",
            "test_testing.py -k plain",
        ),
        (
            "no chain is made before the one that should not depend on it",
            "_chain(used, model, seed=2)",
            "_chain(*new(), seed=2)",
            "test_testing.py -k Leaky",
        ),
        (
            "what tuning decided is compared with itself",
            "values[0] == values[-1]",
            "values[-1] == values[-1]",
            "test_testing.py -k 'NeverStops or AlwaysTunes'",
        ),
        (
            "the draws of processes are made in one",
            "cores=2, mp_ctx=method",
            "mp_ctx=method",
            "test_testing.py -k 'processes and fork'",
        ),
        (
            "only the last check that fails is told",
            "failed[str(check)] = error",
            "failed = {str(check): error}",
            "test_testing.py -k all_that_fails",
        ),
    ],
}
"""For each file: what is wrong, the old text, the new one, and tests that have to see it."""

ROWS = [(file, *row) for file, rows in BUGS.items() for row in rows]
MUTANTS = [Mutant(i, *row) for i, row in enumerate(ROWS, 1)]


@contextmanager
def package(mutant=None):
    """Copy the package and its tests, perhaps with a mutant, and remove the copy in the end."""
    with TemporaryDirectory() as directory:
        root, unused = Path(directory), shutil.ignore_patterns("__pycache__")
        for name in ("pymc_kameleon", "tests", "examples", "docs"):
            shutil.copytree(ROOT / name, root / name, ignore=unused)
        shutil.copy(ROOT / "pyproject.toml", root)
        if mutant is not None:
            mutant.apply(root)
        yield root


def run(root, tests):
    """Run the tests of a copy; return pytest's exit code, 1 if they hang, and what it printed."""
    file, *rest = shlex.split(tests)
    path = root / "tests" if file == "." else next((root / "tests").rglob(file))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, path, *rest],
            cwd=root,
            env=environ | {"PYTHONPATH": str(root), "NUMBA_CACHE_DIR": str(root / "cache")},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, ""
    return done.returncode, done.stdout + done.stderr


def judge(mutant, all_tests):
    """Return what becomes of a mutant, and details."""
    if not mutant.applies:
        return "does not apply", ""
    with package(mutant) as root:
        code, output = run(root, "." if all_tests else mutant.tests)
    if code == 0:
        return "SURVIVED", ""
    if code in (2, 3, 4, 5):  # of pytest: the tests could not be collected, or there are none
        return "no tests", output
    failed = re.findall(r"^(?:FAILED|ERROR) (?:tests/)?(\S*)", output, re.MULTILINE)
    return "caught", f"by {failed[0]}" if failed else f"by a crash, or in vain for {TIMEOUT} s"


def run_baseline(mutants):
    """Run the tests of the mutants without them; return whether all pass."""
    failures = 0
    with package() as root:
        for tests in dict.fromkeys(mutant.tests for mutant in mutants):
            code, output = run(root, tests)
            failures += code != 0
            print(f"FAILS: {tests}\n{output}" if code else f"passes: {tests}", flush=True)
    return failures == 0


def chosen(words):
    """Return the mutants that are named by number, range of numbers, or a part of their text."""

    def named_by(mutant, word):
        if re.fullmatch(r"\d+(-\d+)?", word):
            first, _, last = word.partition("-")
            return int(first) <= mutant.number <= int(last or first)
        return word.lower() in str(mutant).lower()

    return [m for m in MUTANTS if not words or any(named_by(m, word) for word in words)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="numbers, 3-7, or parts of file or bug")
    parser.add_argument("--list", action="store_true", help="run nothing")
    parser.add_argument("--baseline", action="store_true", help="the tests without mutants")
    parser.add_argument("--all-tests", action="store_true", help="the whole suite for each")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    arguments = parser.parse_args()
    mutants, start = chosen(arguments.words), time.time()

    if arguments.list:
        for mutant in mutants:
            print(mutant, "" if mutant.applies else "DOES NOT APPLY", flush=True)
        return not all(mutant.applies for mutant in mutants)

    if arguments.baseline:
        return not run_baseline(mutants)

    counts = {}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = [(m, pool.submit(judge, m, arguments.all_tests)) for m in mutants]
        for mutant, job in jobs:
            verdict, details = job.result()
            counts[verdict] = counts.get(verdict, 0) + 1
            print(f"{verdict}: {mutant}  {details}".rstrip(), flush=True)
    total = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    print(f"{len(mutants)} mutants: {total}, in {time.time() - start:.0f} s")
    return set(counts) != {"caught"}


if __name__ == "__main__":
    sys.exit(main())
