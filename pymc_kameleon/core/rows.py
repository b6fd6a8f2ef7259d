"""Rows of floats that hold numbers and arrays by name."""

import math

import numpy as np


class Rows:
    """How numbers and arrays lie one after the other in a row of floats, from place `first` on.

    `kinds` has the (shape, dtype) of each name; () is the shape of a number.
    """

    def __init__(self, kinds, first=0):
        self._parts, self.end = [], first  # the place after them
        for name, (shape, dtype) in kinds.items():
            first, self.end = self.end, self.end + math.prod(shape)
            cast = None if dtype == np.float64 else dtype
            self._parts.append((name, slice(first, self.end), shape, cast))

    def named(self, rows):
        """Return what `rows` (n, ...) hold by name, each of shape (n, ...); floats are views."""
        named = {}
        for name, place, shape, cast in self._parts:  # for each draw of pm.sample: fast
            part = rows[:, place].reshape(len(rows), *shape) if shape else rows[:, place.start]
            named[name] = part.astype(cast) if cast else part
        return named

    def views(self, row):
        """Return the parts of a row by name, to be written to as floats; a number is (1,)."""
        return {name: row[place].reshape(shape or 1) for name, place, shape, _ in self._parts}
