"""The emulator of a simulator inside a model.

``gaussian_process``   the emulator, compiled: outputs, and their reverse derivative
``fit``                how it is fitted to evaluations, and what is chosen for that
``outputs_fit``        the fit, for the sampler and its search
``mirrors``            modes that follow from one as parameters change places
"""
