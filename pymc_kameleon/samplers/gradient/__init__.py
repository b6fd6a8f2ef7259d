"""Samplers that use the gradient.

``mala``, ``barker``     MALA, which takes leapfrog steps too; Barker
``gad``                  GadRWM and GadMALA
``fisher_rule``          how GadMALA learns by default
``fisher``               the factor that whitens a target and its gradients
``last_phase``           the end of tuning
``controlled_leapfrog``  GadMALA's transition with control variates
"""
