"""The GAD paper: its targets and data, and how a chain is run and measured.

Titsias & Dellaportas, "Gradient-based adaptive Markov chain Monte Carlo", NeurIPS 2019. Three
normals, and logistic regressions: the features standardised, with the divisor N − 1, a column of
ones at the end, and all coefficients N(0, 1).

Data are CSV files, their last column the label, 0 or 1. They are searched in the folder given by
`--data`, or else by the environment variable KAMELEON_DATA. Without a folder, four of the six come
from OpenML by scikit-learn, if it is installed and the machine is online; German credit in its
numeric form and Caravan are not looked for there.

The other scripts import this file; tests/whole/test_paper_targets.py checks the estimator of the
effective sample size (ESS) on autoregressions, whose ESS is known.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from common import benchmark

# ---- normals ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Normal:
    """N(0, Σ)."""

    covariance: np.ndarray  # Σ (d, d)

    @property
    def d(self):
        """Dimension."""
        return len(self.covariance)

    def model(self):
        """Return it as a PyMC model, with one variable x."""
        scales = np.sqrt(np.diag(self.covariance))
        with pm.Model() as model:
            if np.array_equal(self.covariance, np.diag(scales**2)):
                pm.Normal("x", sigma=scales)
            else:
                x = pm.Flat("x", shape=self.d)
                precision = pt.as_tensor(np.linalg.inv(self.covariance))
                pm.Potential("normal", -pt.dot(x, pt.dot(precision, x)) / 2)
        return model


PAIR = Normal(np.array([[1, 0.99], [0.99, 1]]))
"""Two dimensions, correlation 0.99."""

NEAL = Normal(np.diag(np.arange(1, 101) / 100) ** 2)
"""Neal's: standard deviations 0.01, 0.02 … 1."""


def gaussian_process():
    """Return the values of a Gaussian process at 51 points from 0 to 4, with noise."""
    points = np.linspace(0, 4, 51)
    distances = points[:, None] - points
    return Normal(np.exp(-(distances**2) / (2 * 0.16)) + 0.01 * np.eye(51))


# ---- regressions --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Regression:
    """A logistic regression whose coefficients are N(0, 1)."""

    features: np.ndarray  # (N, d), the last column of ones
    labels: np.ndarray  # (N,), 0 or 1

    @classmethod
    def standardised(cls, columns, labels):
        """Standardise raw columns (N, d − 1), and append that of ones."""
        columns = (columns - columns.mean(axis=0)) / columns.std(axis=0, ddof=1)
        return cls(np.column_stack([columns, np.ones(len(labels))]), labels)

    @property
    def d(self):
        """Dimension."""
        return self.features.shape[1]

    def model(self):
        """Return it as a PyMC model, with the coefficients as x."""
        with pm.Model() as model:
            x = pm.Normal("x", shape=self.d)
            logits = pm.Data("features", self.features) @ x
            terms = pm.Data("labels", self.labels) * logits - pt.softplus(logits)
            pm.Potential("likelihood", pt.sum(terms))
        return model


SHAPES = {
    "ripley": (250, 2),
    "pima": (532, 7),
    "heart": (270, 13),
    "australian": (690, 14),
    "german": (1000, 24),
    "caravan": (5822, 85),
}
"""Rows and features of the data sets, by dimension."""

OPENML = {
    "ripley": ("prnn_synth", 1),
    "pima": ("diabetes", 1),
    "heart": ("heart-statlog", 1),
    "australian": ("Australian", 4),
}
"""Name and version at OpenML."""


class NoData(Exception):
    """Data are not to be had; the message says why."""


def add_data_option(parser):
    """Add `--data`."""
    folder = os.environ.get("KAMELEON_DATA")
    parser.add_argument("--data", default=folder, help="folder of CSV files; or KAMELEON_DATA")


def load(name, folder):
    """Return a data set as a Regression, from a folder or, if that is None, from OpenML."""
    columns, labels = from_openml(name) if folder is None else from_folder(name, folder)
    if columns.shape != SHAPES[name]:
        raise NoData(f"{name}: {columns.shape} numbers instead of {SHAPES[name]}.")
    return Regression.standardised(columns, labels)


def from_folder(name, folder):
    """Return the columns and the labels of name.csv, or name.csv.gz."""
    for ending in ("csv", "csv.gz"):
        path = Path(folder) / f"{name}.{ending}"
        if path.exists():
            return read(path)
    raise NoData(f"{name}: neither {name}.csv nor {name}.csv.gz in {folder}.")


def read(path):
    """Return the columns and the labels of a CSV file with a header."""
    table = np.genfromtxt(path, delimiter=",", skip_header=1)
    return table[:, :-1], table[:, -1]


def from_openml(name):
    """Return the columns and the labels as OpenML has them."""
    if name not in OPENML:
        raise NoData(f"{name}: not at OpenML in this form. Give a folder by --data.")
    try:
        from sklearn.datasets import fetch_openml
    except ImportError:
        raise NoData(
            f"{name}: give a folder by --data, or install scikit-learn, which fetches it."
        ) from None
    title, version = OPENML[name]
    try:
        bunch = fetch_openml(title, version=version, as_frame=False, n_retries=1)
    except OSError as error:
        raise NoData(f"{name}: no way to OpenML ({error}). Give a folder by --data.") from None
    columns = np.asarray(bunch.data, float)
    labels = (bunch.target == np.unique(bunch.target)[-1]).astype(float)
    if name == "pima":  # the rows that are complete, and without insulin, which often is not
        glucose, pressure, skin, mass = columns[:, [1, 2, 3, 5]].T
        complete = (glucose > 0) & (pressure > 0) & (skin > 0) & (mass > 0)
        columns, labels = np.delete(columns, 4, axis=1)[complete], labels[complete]
    return columns, labels


def load_digits(path):
    """Return MNIST's fives and sixes as a Regression: pixels by 255, y = 1 for a five."""
    path = Path(path)
    if not path.exists():
        raise NoData(f"MNIST: there is no {path}.")
    pixels, labels = read(path)
    return Regression(np.column_stack([pixels / 255, np.ones(len(labels))]), labels)


# ---- chains -------------------------------------------------------------------------------------

TUNE, DRAWS = 20_000, 20_000
"""Of the paper; no thinning."""


class Chain(NamedTuple):
    """A chain after tuning."""

    x: np.ndarray  # (n, d), draws
    acceptance: float  # of the draws
    seconds: float  # CPU time, step by step from Python, compilation not included
    logp: np.ndarray  # (tune + n,), log-density
    last: np.ndarray  # (tune + n,), last coordinate


def run_chain(step, d, seed, tune=TUNE, draws=DRAWS):
    """Run a chain of one transition per draw from N(0, I)."""
    rng = np.random.default_rng(seed)
    x, accepted = np.empty((draws, d)), np.empty(draws)
    logp, last = np.empty((2, tune + draws))
    start = time.process_time()
    chain = benchmark.driven(step, {"x": rng.normal(size=d)}, tune, draws, rng)
    for i, (point, statistics) in enumerate(chain):
        logp[i], last[i] = statistics["model_logp"], point["x"][-1]
        if i >= tune:
            x[i - tune], accepted[i - tune] = point["x"], statistics["accept_share"]
    return Chain(x, accepted.mean(), time.process_time() - start, logp, last)


def compiled_seconds(step, d, tune=TUNE, draws=DRAWS):
    """Return the CPU seconds of a chain, tuning included, without Python's share of each draw."""
    size, step.steps_per_draw = step.steps_per_draw, 1000
    rng = np.random.default_rng(1)
    start = {"x": rng.normal(size=d)}
    chain = benchmark.driven(step, start, tune // 1000, draws // 1000, rng)
    seconds = benchmark.seconds_of(chain).sum()
    step.steps_per_draw = size
    return seconds


def learned_diagonal(step):
    """Return the diagonal of sL, the factor of the proposals' covariance with their scale, (d,)."""
    return np.exp(step.parameters.log_scale[0]) * np.diag(step.parameters.factor)


# ---- effective sample size ----------------------------------------------------------------------


def effective_sizes(x):
    """Return the ESS of each coordinate of a chain (n, d), as the paper has it, at most n.

    n / (−1 + 2 Σ Γ_j) with Γ_j = ρ_2j + ρ_2j+1, summed as long as they are positive, and made
    monotone: Geyer's initial monotone sequence.
    """
    return np.array([effective_size(column) for column in x.T])


def effective_size(x):
    """Return the ESS of one coordinate (n,)."""
    n = len(x)
    spectrum = np.fft.rfft(x - x.mean(), 2 ** int(np.ceil(np.log2(2 * n))))
    covariances = np.fft.irfft(np.abs(spectrum) ** 2)[: n - n % 2]
    pairs = (covariances / covariances[0]).reshape(-1, 2).sum(axis=1)
    monotone = np.minimum.accumulate(pairs)
    return n / max(1.0, -1 + 2 * monotone[monotone > 0].sum())
