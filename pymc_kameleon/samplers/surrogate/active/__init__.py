"""The first evaluations of an expensive log-density, chosen for what they teach.

``way``                        how points are chosen, batch by batch
``star``                       the first points, and what is exactly quadratic
``process``, ``draws``         a Gaussian process of the log-density; draws of what it knows
``averages``                   what it tells of the posterior in the end
"""
