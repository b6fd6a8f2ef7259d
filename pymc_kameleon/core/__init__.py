"""Compiled building blocks of the samplers: numpy and numba only, nothing of PyMC.

``chain``, ``target``               draws of a chain; the log-density that it calls
``metropolis``                      the normal step, and the Metropolis rule
``scaling``, ``shape``, ``factor``  what a proposal learns: its scale and its covariance
``moments``, ``history``            means and covariances of the past; a record of it
``schedules``                       rates that decrease
``arrays``, ``rows``                named tuples of arrays; numbers by name in rows of floats
``linalg``, ``quadratic``           linear algebra; quadratics by their coefficients
``jit``, ``errors``                 compilation with numba, and what it says of errors
``compiler``                        how parts are compiled into wholes
``numba_cache``, ``fingerprint``    the cache on disk, and what its keys are
``numba_calls``                     calls by address
"""
