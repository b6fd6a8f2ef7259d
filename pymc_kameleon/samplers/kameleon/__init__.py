"""KAM and its relatives: proposals by a kernel on the chain's past.

``kam``, ``pca_kam``                          KAM, PCAKAM
``cyclical_kam``, ``published_cyclical_kam``  CyclicalKAM, as it is here and as published
``subsample``                                 points of the past, which they share
``kernels``, ``rkhs``                         ``pk.samplers.kernels``; proposals in a kernel's space
``mode_moves``, ``mode_search``               moves between modes; the search for modes
``learn_modes``                               modes of the past, as mixtures of normals
``way_back``                                  what KAM warns of in tails
"""
