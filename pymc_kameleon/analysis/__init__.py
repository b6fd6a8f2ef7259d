"""What is made of a result: averages, tables, corrections, modes.

``summary``               ``pk.summary``
``expectation``           ``pk.expectation``
``mode_occupancy``        ``pk.mode_occupancy``
``evidence``              ``pk.evidence``
``draws_of_result``       what they need of a result, and the list of corrections
``corrections``           what each of them is, and which one is taken for a quantity
``moves``                 moves by an approximation to the posterior, and how close it is
``surrogate_correction``  averages corrected by the moves of a surrogate
``emulator_correction``   averages corrected by the moves of an emulator
``process_correction``    averages by a process of the log-density
``control_correction``    averages corrected by control variates
``zero_variance``         averages corrected by gradients at the draws
``gradients_of_draws``    these gradients, and why there are none
``unconstrained_draws``   draws of any result on the scale of the log-density
``identity``              whether the controls of gradients have the mean 0
``batches``               the weight of a control variate, by means over batches
``trust``                 whether their standard errors are to be trusted
``modes_of_draws``        modes of draws alone, by the gaps between them
"""
