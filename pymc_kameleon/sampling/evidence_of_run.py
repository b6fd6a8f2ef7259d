"""``pk.sample(evidence=...)``: the evidence at the end of a run, evaluation by evaluation."""

from contextlib import nullcontext

import numpy as np
import xarray as xr

from pymc_kameleon.analysis.evidence.draws import EvidenceDraws, digest_of
from pymc_kameleon.analysis.evidence.result import evidence_in, n_evaluated
from pymc_kameleon.sampling.bridging import Evaluating, Stopped, evidence_by
from pymc_kameleon.step.groups import EVIDENCE
from pymc_kameleon.step.learned import COORDINATE


class EvidenceOfRun:
    """The evidence of a run, which is found when there are all draws.

    All of it follows from the draws, random numbers too. So what was evaluated before the run was
    interrupted is found again by where it was.

    Parameters
    ----------
    density : Density
    n : int
        New points.
    cores : int or None
    executor : concurrent.futures.Executor, callable or None
    saved : Dataset or None
        What an earlier run has evaluated.

    Attributes
    ----------
    found : Evidence or None
    kept : Dataset or None
        The group of the result.
    """

    def __init__(self, density, n, cores, executor, saved=None):
        self._density, self._n, self._saved = density, n, saved
        self._where = cores, executor
        self.found = self.kept = None

    @property
    def evaluations(self):
        """Evaluations so far, those of an earlier run too."""
        return 0 if self.kept is None else n_evaluated(self.kept)

    def find(self, tree, model, most, look, interruptible=nullcontext):
        """Find it, or as much as there is until somebody stops it.

        Parameters
        ----------
        tree : DataTree
            The result of the run.
        model : pm.Model
        most : int
            Evaluations that this may take.
        look : callable
            Is told now and then, and says whether to go on.
        interruptible : callable
            Returns a context in which Ctrl-C may interrupt.
        """
        draws = EvidenceDraws(tree, model)
        digest = digest_of(tree)
        if self._is_known(digest, tree):
            return
        self.kept = self._begun(digest, most, draws.x.shape[2])
        rng = np.random.default_rng(int(digest[:16], 16))
        made = self.kept.isel(evaluation=self.kept["logp"].notnull().values)
        known = (made["x"].values, made["logp"].values) if made.sizes["evaluation"] else None
        evaluate = Evaluating(self._density, *self._where, rng, known)

        def keep_and_look(x, logp):
            first = self.evaluations
            self.kept["x"][first : first + len(x)] = x
            self.kept["logp"][first : first + len(x)] = logp
            return look()

        evaluate.look, evaluate.interruptible = keep_and_look, interruptible
        try:
            with evaluate:
                self.found = evidence_by(draws, evaluate, self._n, rng)
        except Stopped:
            return
        self.kept.attrs |= self.found.attributes()

    def _is_known(self, digest, tree):
        """Whether an earlier run has found it, for the same draws."""
        if self._saved is None or self._saved.attrs.get("draws") != digest:
            self._saved = None
            return False
        self.found = evidence_in(tree.assign({EVIDENCE: xr.DataTree(self._saved)}))
        if self.found is not None:
            self.kept = self._saved
        return self.found is not None

    def _begun(self, digest, most, d):
        """Return what an earlier run has begun, or room."""
        if self._saved is not None and self._saved["x"].shape == (most, d):
            return self._saved.copy(deep=True)
        return xr.Dataset(
            {
                "x": (("evaluation", COORDINATE), np.full((most, d), np.nan)),
                "logp": (("evaluation",), np.full(most, np.nan)),
            },
            {COORDINATE: self._density.coordinates},
            {"draws": digest},
        )
