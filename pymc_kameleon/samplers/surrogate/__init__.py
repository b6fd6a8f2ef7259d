"""SurrogateMetropolis: moves that a fitted log-density proposes.

``metropolis``, ``proposal`` the sampler, and what it proposes ``density``, ``fit`` the surrogate,
compiled; how it is fitted ``learning``, ``archive`` what is learned while tuning, and from which
points ``active`` the first evaluations, chosen by a Gaussian process ``inner_chain`` settings of
the inner chain ``problems`` what is said of it ``moves``, ``emulator`` from a result: new runs of
its inner chain; the surrogate itself
"""
