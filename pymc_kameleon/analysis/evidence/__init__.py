"""The evidence of a model: log Z of its posterior, by draws and a density that is near it.

``draws``       what that needs of a result; models that have no evidence
``reference``   mixtures of t densities
``warp``        coordinates in which draws are nearly normal
``proposals``   surrogates, normalised
``bridge``      bridge sampling
``estimate``    which proposals are bridged to which draws
``result``      ``Evidence``, and when it is not to be trusted
``comparison``  the table of ``pk.compare_models``
"""
