"""All that a run can tell its user: the words of each finding, how serious it is, and what to do.

Nothing else in the package writes such words. `what` and `remedy` are templates for the numbers of
a Finding; `means` is for the documentation, which is made from this file.
"""

from typing import NamedTuple

NOTE, CAUTION, PROBLEM = SEVERITIES = "note", "caution", "problem"
"""Worth knowing; averages may be off by more than their errors tell; averages are wrong."""


class Kind(NamedTuple):
    """What a finding of one code has in common with others."""

    severity: str
    what: str
    remedy: str = ""
    means: str = ""


# ---- where a chain began, and how it found the posterior ----------------------------------------

_STARTS = {
    "common_start": Kind(
        CAUTION,
        "The chain started at the model's initial point, and so may all others: R-hat cannot show "
        "what none of them visits.",
        "Pass initvals=pk.initvals(chains).",
        "Only with `tune=0` or `jitter=False`, or if the log-density was finite nowhere around. "
        "One dict of `initvals` for all chains is no better, and is not noticed.",
    ),
    "search_cut_short": Kind(
        NOTE,
        "The search for the posterior used all of its {budget} evaluations, and the log-density "
        "still grew by {gain:.3g} in the last {late} of them.",
        "Start nearer (initvals=...), rescale the parameters so that their scales are about 1, or "
        "tune longer.",
        "The log-density grew by more than 3 d in the last 5 d evaluations, so the chain may have "
        "been tuned before it arrived. R-hat shows if it has not arrived since.",
    ),
    "no_search": Kind(
        CAUTION,
        "R-hat cannot show a mode that no chain has visited, and none was looked for.",
        "If there may be several, raise max_evaluations, or tune longer.",
        "The search for the posterior took what searches from other starts may: a tenth of the "
        "evaluations. Of ten such runs of models that were made to fail, seven had a mean off by "
        "more than .2 sd.",
    ),
    "searches": Kind(
        NOTE,
        "{n} searches for the posterior, from different starts, ended in {places}; {share:.0f} % "
        "of such starts may end elsewhere.",
        "",
        "The share is expected by the rule of Boender & Rinnooy Kan (1987).",
    ),
    "few_searches": Kind(
        NOTE,
        "Only {n} searches looked for other modes, and all ended in one place.",
        "If there may be others, raise max_evaluations, or tune longer.",
        "The expected share of starts that end elsewhere is 1 after two searches, and a third "
        "after three.",
    ),
    "other_ends": Kind(
        CAUTION,
        "There may be another mode, which R-hat does not show: {n} searches for the posterior "
        "ended in {places}, and {share:.0f} % of such starts may end elsewhere.",
        "Raise max_evaluations, or tune longer, for more searches.",
        "Of the starts more than a tenth are expected to lead to places that no search has found.",
    ),
    "blind_search": Kind(
        CAUTION,
        "There may be another mode, which R-hat does not show: far from here the approximation "
        "does not predict, or the best place does not fit the data. {n_best} of {n} searches ended "
        "there.",
        "Compare what the model predicts with the data; raise max_evaluations, or start where the "
        "data point to (initvals).",
        "Searches rely on an approximation. Where it predicts badly, they may miss a mode.",
    ),
    "impossible_prior": Kind(
        NOTE,
        "More than half of the prior may be impossible: {impossible} of {n} draws of it had no "
        "finite log-density.",
        "If the likelihood fails where it should not, mend it; a narrower prior saves evaluations.",
        "Seen at the draws of the prior from which searches start.",
    ),
    "moved_chain": Kind(
        NOTE,
        "The chain's search ended where there is almost no posterior mass, about 1e-{power} of "
        "that where another chain arrived, so it was moved there before tuning.",
        "If there may be several modes, use pk.CyclicalKAM: R-hat cannot show a mode from which "
        "chains are moved.",
        "SurrogateMetropolis compares the log-densities where its chains arrive.",
    ),
    "posterior_not_found": Kind(
        CAUTION,
        "The search did not find the posterior in {n} evaluations, and max_evaluations leaves none "
        "to continue.",
        "Raise max_evaluations, or start nearer (initvals=...).",
        "Averages may be off by far more than their standard errors.",
    ),
}

# ---- the log-density ----------------------------------------------------------------------------

_LOG_DENSITIES = {
    "random_density": Kind(
        PROBLEM,
        "The log-density at {place} was {before:.8g}, and {after} when it was evaluated there "
        "again. The model is random, or remembers earlier calls, and the draws are not those of "
        "the posterior.",
        "Let each call begin afresh, with a seed of its own. If it is the log of an unbiased "
        "estimate, draw from pk.noise_seed(), and pass pseudo_marginal=True.",
        "The current point is evaluated again from time to time if the model calls Python.",
    ),
    "random_nan": Kind(
        CAUTION,
        "The log-density at {place} was NaN, and finite when it was evaluated there again. Such "
        "moves are rejected as if they were impossible.",
        "Look for what the model keeps from one call to the next, or leaves to chance.",
        "NaN that comes at random cuts the posterior at random.",
    ),
    "infinite_density": Kind(
        CAUTION,
        "The log-density was +inf at {n} points. They are rejected, so the posterior is cut there.",
        "Return a finite number, or -inf where parameters are impossible; look for a scale that "
        "goes to 0.",
        "Counted over all transitions, those of tuning too.",
    ),
    "noisy_estimates": Kind(
        CAUTION,
        "The estimates are noisy: where tuning ended, the variance of the log-density is "
        "{variance:.3g}, so few moves are accepted, whatever their length.",
        "Use more particles, or samples, for each estimate: a variance of 1 to 3 is good.",
        "With a variance above 4 the best random walk accepts less than 6 % of its moves.",
    ),
    "rejected_evaluations": Kind(
        NOTE,
        "{counts} counted as impossible points. The first was in chain {chain} at {place}, where "
        "the likelihood {error}.",
        "That is right if the parameters are to blame; otherwise it cuts the posterior.",
        'With `on_error="reject"` or a time limit of a black box.',
    ),
    "changed_data": Kind(
        PROBLEM,
        "The data were changed while the chains ran (pm.set_data?), so draws before and after are "
        "of different posteriors.",
        "Sample again.",
        "The digests of the data at the beginning and at the end differ.",
    ),
    "uncounted_calls": Kind(
        NOTE,
        "What is kept of draws took {calls} that n_logp does not count.",
        "",
        "The values of deterministics that the log-density does not compute.",
    ),
}

# ---- tuning -------------------------------------------------------------------------------------

_TUNING = {
    "short_tuning": Kind(
        CAUTION,
        "Only {n} transitions of tuning; at least {needed} are needed to learn much.",
        "Raise tune or steps_per_draw, or max_evaluations if that has set them.",
        "The least is 20 d (GadMALA 3 d) and at least 100; for MALA and CMH 100; for CMTM twice "
        "`adapt_every`; for CyclicalKAM five searches; for SurrogateMetropolis 5 d and at least "
        "50, or d with few evaluations; for EmulatorMetropolis 1.",
    ),
    "no_move": Kind(
        PROBLEM,
        "No proposal was accepted after tuning, so all draws are equal.",
        "Tune longer, start elsewhere, or rescale.",
        "ArviZ reports equal draws as independent.",
    ),
    "stuck": Kind(
        CAUTION,
        "A chain was stuck for {draws} draws in a row.",
        "Look there for a narrow part of the posterior; tune longer, or reparametrise.",
        "For more than a tenth of the draws.",
    ),
    "stuck_on_estimate": Kind(
        CAUTION,
        "A chain was stuck for {draws} draws in a row. The likelihood may have been overestimated "
        "there.",
        "Use more particles, or samples, for each estimate. If the posterior is narrow there, tune "
        "longer, or reparametrise.",
        "For more than a tenth of the draws, of pseudo-marginal samplers.",
    ),
    "nearly_dependent": Kind(
        CAUTION,
        "{name} is known to {singular:.0e} of its standard deviation, or better, given the other "
        "coordinates. The draws may be too narrow.",
        "Make the combination that is known so well a parameter of its own.",
        "Learned covariances are regularised. If x0 + x1 is known to 1e-6 of the sd of each, draws "
        "are right; at 1e-7 they are too narrow.",
    ),
    "scale_at_bound": Kind(
        CAUTION,
        "{scale} ended at its {side} bound, {value:.3g}.",
        "Start nearer to the posterior, or rescale; widen scaling_bounds if you gave them.",
        "The bound, not the posterior, decided on the scale. If tails are heavy, CMTM needs a "
        "lower alpha.",
    ),
    "few_points": Kind(
        CAUTION,
        "While tuning the chain had fewer than {least} distinct points to learn from, so it is a "
        "plain random walk.",
        "Tune longer, or start nearer to the posterior.",
        "KAM and its relatives need 2 d + 2 distinct points.",
    ),
    "slow_tails": Kind(
        CAUTION,
        "Proposals are small in the tails: from the outermost {share:.0f} % of what was seen while "
        "tuning it takes about {transitions:.0f} transitions to return. A chain may miss the tails "
        "in all of its draws, although R-hat and ESS look good.",
        "Use pk.GAM, or make at least {needed} draws.",
        "KAM: the mean of |u − ū|²/tr R(u) over the outermost past is more than 80, and the chain "
        "has no room for 20 such stays.",
    ),
    "no_modes_learned": Kind(
        CAUTION,
        "No mode could be learned, because there were fewer than {least} distinct points, or "
        "because the posterior has no finite width. The chain is a plain random walk.",
        "Check the priors, tune longer, or start nearer to the posterior.",
        "CyclicalKAM.",
    ),
    "no_jump": Kind(
        CAUTION,
        "Tuning found {modes} modes, and none of {tried} jumps between them was accepted, so their "
        "shares are not known, whatever R-hat says.",
        "Tune longer, or reparametrise; if they are parts of one curved or heavy-tailed mode, use "
        "pk.GAM.",
        "CyclicalKAM: a jump maps one mode to another by means and covariances, which fails where "
        "modes are far from normal, or were learned from too few points.",
    ),
    "nothing_learned": Kind(
        CAUTION,
        "Nothing was learned: hardly any proposal was plausible and had a finite gradient while "
        "tuning.",
        "Start elsewhere, or tune longer.",
        "GadMALA.",
    ),
    "flat_gradient": Kind(
        CAUTION,
        "The gradient says little about {names}: the density may end abruptly there, or have a "
        "constant slope.",
        "Transform the variable, or use pk.GAM.",
        "GadMALA learns scales from gradients.",
    ),
    "idle_coordinates": Kind(
        CAUTION,
        "{names} did not move in the last {n} sweeps.",
        "Look there for a narrow part of the posterior; tune longer, give scaling, or "
        "reparametrise.",
        "CMH and CMTM: other coordinates did move.",
    ),
}

# ---- approximations -----------------------------------------------------------------------------

_APPROXIMATIONS = {
    "poor_surrogate": Kind(
        NOTE,
        "Moves by the surrogate are hardly better than a random walk: their mean squared jump was "
        "{surrogate:.2g}, a walk's {walk:.2g} (2 would be independent draws).",
        "Tune longer, use {others}, or try another parametrisation: write a hierarchy centred, or "
        "non-centred.",
        "SurrogateMetropolis: the draws are right, and cost more evaluations than others might.",
    ),
    "surrogate_too_low": Kind(
        CAUTION,
        "Until the end of tuning the surrogate was too low where about {share:.0f} % of the "
        "posterior is. There may be more where no chain has been, and a chain may be stuck there.",
        "Tune longer, use {others}, or try another parametrisation: write a hierarchy centred, or "
        "non-centred.",
        "SurrogateMetropolis: seen at the last evaluations of tuning.",
    ),
    "several_modes": Kind(
        NOTE,
        "The posterior has {n} modes, or arms of a curved one, with about {shares} of the mass "
        "when they were found. Chains move between them.",
        "",
        "SurrogateMetropolis and EmulatorMetropolis. There may be more.",
    ),
    "poor_emulator": Kind(
        NOTE,
        "The emulator of {boxes} does not predict well: the mean squared jump of its moves was "
        "{efficiency:.2g} at the end of tuning (2 would be independent draws).",
        "If outputs jump, are chaotic, or are NaN in much of the space, return something smoother; "
        "otherwise raise max_evaluations.",
        "EmulatorMetropolis: other moves do most of the work. The draws are right.",
    ),
    "mirrored_modes": Kind(
        NOTE,
        "Modes of the posterior mirror one another: {changes}. Chains may go to all of them.",
        "If one is enough, order the parameters (pm.distributions.transforms.ordered), or give "
        "them a sign.",
        "EmulatorMetropolis.",
    ),
    "mirrors_not_sought": Kind(
        CAUTION,
        "No evaluations were left to see whether modes mirror one another, as if parameters change "
        "places, or a sign. R-hat does not show that.",
        "If they may, raise max_evaluations, or tune longer.",
        "EmulatorMetropolis, where parameters have the same prior, or one that is symmetric.",
    ),
}

# ---- the draws ----------------------------------------------------------------------------------

_DRAWS = {
    "r_hat": Kind(
        CAUTION,
        "R-hat of {name} is {r_hat:.4g}, more than good chains with as many effective draws have.",
        "Draw longer, or raise max_evaluations; if that does not help, reparametrise.",
        "The limit is 1.01, or what chains with so few effective draws reach once in a thousand "
        "runs, at most 1.05.",
    ),
    "chains_disagree": Kind(
        PROBLEM,
        "The chains disagree: R-hat of {name} is {r_hat:.4g}.",
        "pk.diagnose(dt) may name the cause. If not, reparametrise, or tune and draw longer.",
        "R-hat is above 1.1, the bound of Gelman & Rubin (1992).",
    ),
    "slow_chains": Kind(
        CAUTION,
        "Chains move slowly: the {draws} draws of {name} amount to {ess:.0f} independent ones, "
        "fewer than 100 for each chain. R-hat and errors may be too small.",
        "Draw longer, or raise max_evaluations; if that does not help, reparametrise.",
        "Bulk ESS. With fewer than 100 for each chain R-hat and errors are not to be trusted "
        "(Vehtari et al. 2021). It does not count where draws are few, but nearly independent.",
    ),
    "not_judged": Kind(
        CAUTION,
        "The draws were not judged: {why}.",
        "Draw longer, and keep the parameters.",
        "R-hat and errors need four draws of a parameter in each chain.",
    ),
    "one_chain": Kind(
        CAUTION,
        "There is one chain, so R-hat cannot show whether others would agree.",
        "Make four chains.",
        "A chain that is in one of several modes looks as good as any.",
    ),
    "modes_apart": Kind(
        PROBLEM,
        "{verdict} Averages over all chains depend on where these started.",
        "pk.mode_occupancy(dt) shows the modes; pk.CyclicalKAM jumps between modes that it finds.",
        "The chains do not tell the weights of the modes that they visit.",
    ),
    "hierarchy": Kind(
        CAUTION,
        "The model may be a hierarchy, of which chains often disagree.",
        "Write it non-centred, theta = mu + tau * z with z ~ N(0, 1), or centred, "
        "theta ~ N(mu, tau), if the data say much about each theta.",
        "Told where chains disagree.",
    ),
    "has_gradient": Kind(
        NOTE,
        "NUTS may do better: the log-density has a gradient.",
        "Try pm.sample().",
        "Told where chains disagree.",
    ),
    "constant_draws": Kind(
        PROBLEM,
        "All draws of {names} are equal: no proposal was accepted, or it is a constant.",
        "Draw longer, or raise max_evaluations; leave out what is a constant.",
        "Such draws say nothing about the posterior.",
    ),
    "imprecise": Kind(
        CAUTION,
        "Some averages are imprecise: {names}. Their standard errors are up to {error:.2g} "
        "posterior sd; 0.1 is the limit.",
        "Draw {times} times as long, or raise max_evaluations.",
        "A standard error is more than a tenth of the standard deviation, which is that of the "
        "mean of 100 independent draws.",
    ),
    "unknown_errors": Kind(
        CAUTION,
        "The standard error of the {name} cannot be estimated.",
        "Draw longer, or raise max_evaluations.",
        "Effective draws cannot be counted in so few.",
    ),
    "rare_events": Kind(
        CAUTION,
        "The average of {names} rests on few draws: all others are equal, and these amount to "
        "about {events:.0f} independent ones, so its relative error is {error:.0f} % or more.",
        "Draw {times} times as long, or longer.",
        "With fewer than 20 independent events the standard error of their frequency may be far "
        "too small.",
    ),
    "long_tail": Kind(
        NOTE,
        "{name} has a long tail, and maybe no variance (Pareto k {k:.2f}).",
        "Prefer medians and intervals to means.",
        "Pareto k of the draws is above .5.",
    ),
    "not_corrected": Kind(
        NOTE,
        "No correction {by}: {reason}.",
        "",
        "Averages are those of the draws.",
    ),
    "plain_averages": Kind(
        NOTE,
        "Averages of {names} are those of the draws: {reason}.",
        "",
        "Corrections need the variable at other points than the draws.",
    ),
    "changed_variables": Kind(
        CAUTION,
        "Averages of {names} are those of the draws: {reason}.",
        "",
        "The values in the result differ from those that the model computes.",
    ),
    "changed_draws": Kind(
        CAUTION,
        "Averages are those of the draws: {reason}.",
        "",
        "Corrections need the draws as they were sampled.",
    ),
    "failed_correction": Kind(
        CAUTION,
        "Averages are those of the draws: at other points computing them raised {error}.",
        "Let the function return a value there.",
        "Raised by the model, or by the function of pk.expectation.",
    ),
    "changing_function": Kind(
        CAUTION,
        "The average is that of the draws: the function gives other values at the same points.",
        "Let it depend on the draws alone.",
        "Of pk.expectation.",
    ),
    "wider_draws": Kind(
        NOTE,
        "The averages of {names} are not corrected: draws are farther out than what would correct "
        "them knows.",
        "",
        "The standard deviation of the draws is 1.5 times a corrected one, as in a mode that an "
        "approximation does not know.",
    ),
    "mean_outside_interval": Kind(
        NOTE,
        "The mean of {names} lies outside the interval: a few draws far away dominate it.",
        "Prefer medians to means.",
    ),
    "not_finite": Kind(
        CAUTION,
        "{name} is NaN or infinite at {n} of {draws} draws, and so is its average.",
        "Give it a value there, for example by np.where.",
    ),
    "not_felt": Kind(
        CAUTION,
        "The draws of each parameter hardly differ from draws of its prior, so the data say little "
        "about each, or no evaluation came near the posterior.",
        "Compare what the model predicts with the data. If that is far off, start where the data "
        "point to (initvals), or narrow the prior.",
        "No parameter is narrower than .8 of its prior, or has moved by half of its spread, as far "
        "as the effective draws tell; there are at least 30.",
    ),
    "no_bound": Kind(
        PROBLEM,
        "{name} is {value:.3g}, where only rounding is left of the misfit. The density may have no "
        "bound there, so there may be no posterior.",
        "Give the noise a prior that keeps it from 0.",
        "A positive variable is 1e-13 of its prior's median, as if the model fits the data "
        "exactly.",
    ),
    "poor_approximation": Kind(
        CAUTION,
        "The {approximation} does not come near the posterior (effective share of the weights "
        "{share:.2f}), so corrected errors may be too small.",
        "Draw longer, or raise max_evaluations; if that does not help, reparametrise.",
        "The effective share of its weights is below .3, or some weights dominate.",
    ),
    "other_mode": Kind(
        CAUTION,
        "A mode with about {share:.2g} % of the mass was found some {distance:.0f} standard "
        "deviations away, where no draw is. With it standard deviations may be {factor:.2g} times "
        "as large.",
        "If that matters, start a chain there (initvals), of a sampler that moves between modes, "
        "such as pk.CyclicalKAM.",
        "`dt['learned']['other_mode']` is where it is. Its mass is an estimate.",
    ),
    "no_draws": Kind(
        PROBLEM,
        "There are no draws after tuning.",
        "Raise draws, max_time or max_evaluations, or resume the run.",
    ),
    "divergences": Kind(
        CAUTION,
        "There were {n} divergences after tuning.",
        "Raise target_accept, or reparametrise.",
        "A part of the posterior may not have been visited.",
    ),
    "deep_trees": Kind(
        NOTE,
        "{n} transitions reached the maximum tree depth.",
        "Raise max_treedepth, or rescale.",
        "NUTS moves less far than it could.",
    ),
    "low_energy": Kind(
        NOTE,
        "E-BFMI is {bfmi:.2g} in {chains}.",
        "Reparametrise.",
        "Below .3 NUTS may not explore the tails (Betancourt 2016).",
    ),
    "rough_outputs": Kind(
        NOTE,
        "Outputs of {box} scatter by {size:.2g} about a smooth function (in the median), where "
        "they vary by {spread:.2g}.",
        "If that is a tolerance of its solver, a smaller one makes the emulator better. If the "
        "function is random, see docs/noise.md.",
        "EmulatorMetropolis. The size is that of most marginal likelihood, by a Gaussian process. "
        "The emulator does not follow it. Draws follow the function as it is, so roughness of the "
        "size of the data's noise or more stops the chains.",
    ),
}

# ---- how the run ended --------------------------------------------------------------------------

_ENDS = {
    "unchecked": Kind(
        NOTE,
        "Interrupted after sampling: the draws were not checked.",
        "pk.diagnose(dt) checks them.",
    ),
    "ended_early": Kind(
        NOTE,
        "{why}. The result has {draws}.{left}",
        "{call} resumes it.",
        "By Ctrl-C, by `run.stop()` in a callback, or as `max_time` had passed.",
    ),
    "not_enough": Kind(
        CAUTION,
        "{draws} are not enough for target_ess.{left}",
        "{call} resumes it.",
        "The last draw was made before ESS and R-hat were good enough.",
    ),
}

# ---- said at once, while a run is prepared, or goes on -------------------------------------------

_MEANWHILE = {
    "bad_verdict": Kind(
        CAUTION,
        "{verdict}: {worst}",
        "pk.diagnose(dt) has more.",
        "`pk.summary` repeats the verdict on the run if it is not usable.",
    ),
    "rejected_starts": Kind(
        NOTE,
        "While starts were looked for, {points} rejected: the log-density {failure}.",
        "That is right if the parameters are to blame.",
        'With `on_error="reject"` or a time limit of a black box.',
    ),
    "noisy_density": Kind(
        PROBLEM,
        "The model's log-density has noise of its own: at one point it was {before:.8g}, and then "
        "{after:.8g}. {sampler} does not sample the posterior then.",
        "Make it repeatable. If it is the log of an unbiased estimate, draw from pk.noise_seed(), "
        "and pass pseudo_marginal=True.",
        "Seen when a step is made.",
    ),
    "runs_in_python": Kind(
        NOTE,
        "{what} runs through Python, which is slower: {error}",
        "",
        "Numba could not compile it.",
    ),
    "idle_executor": Kind(
        NOTE,
        "The executor is not used, because the model calls no function of pk.black_box.",
        "Make a black box of what is slow, by @pk.black_box. cores= says how many chains advance "
        "at a time.",
    ),
    "executor_in_turn": Kind(
        NOTE,
        "The executor makes one call at a time, because the model runs in Python, where chains "
        "take turns.",
        "Leave it out, and pass cores=, which makes processes.",
    ),
    "one_thread_at_a_time": Kind(
        NOTE,
        "{boxes} is called in this process, by one thread at a time, because Ops may keep things.",
        "Make a black box of its function, by @pk.black_box, which the executor calls.",
    ),
    "jax_in_turn": Kind(
        NOTE,
        "JAX is in use, which may hang in processes that are forked from this one, so chains are "
        "sampled in turn.",
        "Call multiprocessing.set_start_method('forkserver') at the beginning of the program.",
    ),
    "worker_died": Kind(
        NOTE,
        "A worker of chain {chain} died ({error}). Its last draws are made again.",
        "Look for parameter values at which the likelihood takes too much memory, or crashes.",
    ),
    "findings_not_kept": Kind(
        NOTE,
        "What the run has found cannot be kept in {store} ({error}). The result has it.",
        "Free the disk.",
    ),
    "progress_failed": Kind(
        NOTE,
        "The progress bar failed ({error}) and is turned off. Sampling goes on.",
        "",
    ),
    "all_steps_failed": Kind(
        PROBLEM,
        "All of these steps have failed: see the column warnings.",
        "",
        "Of pk.compare_samplers.",
    ),
    "no_step_to_recommend": Kind(
        CAUTION,
        "None of these steps can be recommended: none has converged and agrees with most of those "
        "that have. See the columns r_hat, disagreement and warnings.",
        "Tune and draw longer.",
        "Of pk.compare_samplers.",
    ),
}

# ---- evidence -----------------------------------------------------------------------------------

_EVIDENCE = {
    "evidence_of_region": Kind(
        CAUTION,
        "The evidence counts {names} only in the region that the step was restricted to, and the "
        "prior is not made larger there for it.",
        "Bounds in the prior do that.",
    ),
    "evidence_of_flat_prior": Kind(
        CAUTION,
        "{names} is flat, which is no prior: unless potentials make it one, the evidence has an "
        "arbitrary constant.",
        "Give it a proper prior.",
    ),
    "evidence_of_minibatch": Kind(
        CAUTION,
        "The log-likelihood of {names} is scaled by total_size, so this is not the evidence of "
        "data that were observed.",
        "Use all data.",
    ),
    "evidence_of_potentials": Kind(
        NOTE,
        "The evidence counts {names} as it is, with the constants of a potential.",
        "",
    ),
    "evidence_of_rejections": Kind(
        NOTE,
        "{evaluations} for the evidence failed, or took too long, and counted as impossible "
        "points. The first was at {place}, where the likelihood {error}.",
        "That is right if the parameters are to blame.",
    ),
    "doubtful_evidence": Kind(
        CAUTION,
        "The evidence may be far more wrong than its standard error says: {reasons}.",
        "Draw longer, or raise n_evaluations.",
        "docs/evidence.md lists the reasons.",
    ),
    "unknown_evidence": Kind(
        PROBLEM,
        "The evidence is not known: {reasons}.",
        "Draw longer, or raise n_evaluations.",
        "docs/evidence.md lists the reasons.",
    ),
    "other_data": Kind(
        PROBLEM,
        "The observed data of {first} and {second} differ: evidences of different data cannot be "
        "compared, and their ratio has no meaning.",
        "Compare models of the same data.",
        "Of pk.compare_models.",
    ),
}

# ---- what an emulator, or the draws, tell after a run --------------------------------------------

_AFTERWARDS = {
    "emulator_unsure": Kind(
        CAUTION,
        "In {n} of the outputs more than a tenth of the variance is the emulator's own uncertainty "
        "({share:.0f} % in output {output}). The run has evaluated too little of what inputs vary "
        "over, so indices of all outputs may be off.",
        "With over='prior' let n_evaluations call the simulator; or tune longer.",
        "Of pk.sensitivity: functions drawn from the Gaussian process differ by that much.",
    ),
    "not_a_copula": Kind(
        CAUTION,
        "The variance of output {output} is {ratio:.2g} times that over the draws, if inputs "
        "depend on each other as normal variables do. Indices may be off.",
        "Look at the draws of pairs of inputs; reparametrise.",
        "Of pk.sensitivity: dependent inputs are drawn by a Gaussian copula.",
    ),
    "unidentified_parameter": Kind(
        CAUTION,
        "The data tell next to nothing of {name}: its standard deviation is {ratio:.2f} times that "
        "of its prior.",
        "Fix it, take it from elsewhere, or measure what depends on it (pk.where_next).",
        "Of pk.identifiability.",
    ),
    "unidentified_combination": Kind(
        CAUTION,
        "The data tell next to nothing of the combination {words}: its standard deviation is "
        "{ratio:.2f} times that of the prior. The posterior is a ridge along it.",
        "Reparametrise by it, fix one of these parameters, or measure what tells them apart "
        "(pk.where_next).",
        "Of pk.identifiability, in units of the prior.",
    ),
    "no_maximum_inside": Kind(
        CAUTION,
        "The maximum is on a bound, or there is none: the density rises as {name} goes to "
        "{value:.3g}, where its logarithm is {logp:.6g}.",
        "Report the posterior mean; if that is no bound, give {name} a prior that falls off there.",
        "A climb of pk.find_mode has not settled.",
    ),
    "mode_beyond": Kind(
        CAUTION,
        "The mode is farther out than what the run has evaluated near the posterior, where nothing "
        "is known.",
        "Let n_evaluations check it.",
        "Of pk.find_mode, for an approximation.",
    ),
    "mode_not_evaluated": Kind(
        NOTE,
        "The log-density at the mode is predicted, and was not evaluated.",
        "Pass n_evaluations=20 to check it, and to improve it.",
        "Of pk.find_mode, without calls of black boxes.",
    ),
    "mode_off": Kind(
        CAUTION,
        "After {n} the log-density at the mode that is predicted still differs by {off:.2g} from "
        "the prediction, so the best point that was evaluated is returned.",
        "Give more n_evaluations.",
        "Of pk.find_mode: the approximation is not good there yet.",
    ),
    "other_maxima": Kind(
        NOTE,
        "Climbs have found {others}; the log-density at the next one is {lower:.2g} lower.",
        "Look at pk.mode_occupancy for how much of the posterior each mode has.",
        "Of pk.find_mode: climbs from different draws have ended in different places.",
    ),
    "mode_misses": Kind(
        NOTE,
        "The mode is not typical of the posterior: the mean of {name} is {away:.2g} standard "
        "deviations away, and its standard deviation is {ratio:.2g} times that by the curvature.",
        "Report means and intervals.",
        "Of pk.find_mode.",
    ),
    "no_power_scaling": Kind(
        NOTE,
        "Power-scaling is left out, because the result lacks sample_stats['lp'].",
        "pk.sample keeps it.",
        "Of pk.identifiability.",
    ),
}

SECTIONS = {
    "The start, and the search for the posterior": _STARTS,
    "The log-density": _LOG_DENSITIES,
    "Tuning": _TUNING,
    "Approximations, and modes": _APPROXIMATIONS,
    "The draws": _DRAWS,
    "The end of the run": _ENDS,
    "Said at once": _MEANWHILE,
    "Evidence": _EVIDENCE,
    "After a run": _AFTERWARDS,
}
"""All of them, as the documentation lists them."""

KINDS = {code: kind for kinds in SECTIONS.values() for code, kind in kinds.items()}
"""All of them, by their codes."""

OF_DRAWS = frozenset(_DRAWS)
BY_MODEL = frozenset({"not_felt", "no_bound", "other_mode", "hierarchy", "has_gradient"})
"""Codes of what draws show, whoever has made them; those that only their model tells."""
