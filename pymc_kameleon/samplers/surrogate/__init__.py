"""SurrogateMetropolis: moves that a fitted log-density proposes.

``metropolis``      the sampler; ``initial_search`` is what precedes its first draw
``inner_chain``     what it proposes: the chain on the surrogate
``density``, ``fit``  the surrogate, compiled; how it is fitted
``learning``, ``modes``  what is learned while tuning
``active``          the first evaluations, chosen by a Gaussian process
``moves``           what a result keeps, and what is made of that
``findings``        what is said of it
"""
