"""Unbound steps as samplers of PyMC: ``pm.sample(sampler=pk.GAM.options())``, which it plans.

PyMC plans objects whose constructor takes what belongs to the algorithm, and that know no model.
``pm.sample(sampler=...)`` hands them the model, and what belongs to the run, by `sample_from_init`:
pymc-devs/pymc #7880, #8353 and #8358. An unbound step is such an object, and ``pk.sample`` runs it.
"""

from pymc_kameleon.model.pymc_internals import Sampler
from pymc_kameleon.sampling.sample import sample
from pymc_kameleon.step.unbound import UnboundStep


def sample_from_init(
    self,
    *,
    model=None,
    draws=None,
    tune=None,
    chains=None,
    cores=None,
    blas_cores="auto",
    initvals=None,
    random_seed=None,
    progressbar=True,
    quiet=False,
    discard_tuned_samples=True,
    keep_warning_stat=False,
    var_names=None,
    idata_kwargs=None,
    compute_convergence_checks=True,
    compile_kwargs=None,
):
    """Sample a model as ``pk.sample(step=self, ...)`` does; for ``pm.sample(sampler=self)``.

    The arguments are those of a run that PyMC's drafts name, and no others. All are those of
    ``pk.sample`` but one.

    Parameters
    ----------
    blas_cores : "auto", optional
        Threads of BLAS. Each chain has one; there is no choice.

    Returns
    -------
    DataTree
        As of ``pk.sample``.

    Raises
    ------
    ValueError
        For another number of threads of BLAS, and as ``pk.sample`` does.
    """
    if blas_cores != "auto":
        raise ValueError(f"blas_cores={blas_cores!r} is impossible: each chain has one thread.")
    return sample(
        draws,
        tune=tune,
        chains=chains,
        cores=cores,
        random_seed=random_seed,
        progressbar=progressbar,
        quiet=quiet,
        step=self,
        var_names=var_names,
        initvals=initvals,
        discard_tuned_samples=discard_tuned_samples,
        compute_convergence_checks=compute_convergence_checks,
        keep_warning_stat=keep_warning_stat,
        idata_kwargs=idata_kwargs,
        compile_kwargs=compile_kwargs,
        model=model,
    )


UnboundStep.sample_from_init = sample_from_init
Sampler.register(UnboundStep)
