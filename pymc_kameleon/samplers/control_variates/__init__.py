"""The option `control_variates` of GAM and GadMALA: what has mean 0 while a chain moves.

``option``, ``tally``  the option, and the sums that a chain keeps
``table``              what their means would be for a normal posterior
"""
