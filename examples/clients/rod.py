"""Simulate a rod that is heated at one end: a stand-in for a program that is not Python.

It reads the parameters from `parameters.json` in the folder where it is started, and writes the
temperatures to `temperatures.csv` there, a line per time. `subprocess_simulator.py` starts it.
"""

import json
import sys

UNSTABLE = 3
"""Exit status if the time steps are too long for the diffusivity."""
CELLS, SENSORS = 20, range(2, 20, 4)
STEPS, STEP, EVERY = 400, 0.01, 100


def simulate(diffusivity, loss, hot):
    """Return the temperatures above the air's at the sensors, a list for each time."""
    mixing = diffusivity * STEP
    if mixing > 0.5:
        sys.exit(UNSTABLE)
    rod, seen = [0.0] * CELLS, []
    for step in range(1, STEPS + 1):
        left, right = [hot, *rod[:-1]], [*rod[1:], rod[-1]]
        rod = [
            (1 - loss * STEP) * own + mixing * (before - 2 * own + after)
            for before, own, after in zip(left, rod, right, strict=True)
        ]
        if step % EVERY == 0:
            seen.append([rod[cell] for cell in SENSORS])
    return seen


if __name__ == "__main__":
    with open("parameters.json") as file:
        temperatures = simulate(**json.load(file))
    with open("temperatures.csv", "w") as file:
        file.writelines(",".join(map(str, row)) + "\n" for row in temperatures)
