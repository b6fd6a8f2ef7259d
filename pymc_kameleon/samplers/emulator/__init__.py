"""The emulator of a simulator inside a model.

``gaussian_process``   the emulator, compiled: outputs, and their reverse derivative
``fit``                how it is fitted to evaluations, and what is chosen for that
``moves``              what a result has kept of moves, by which averages are corrected
"""
