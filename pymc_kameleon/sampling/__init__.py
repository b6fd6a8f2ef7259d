"""``pk.sample`` and ``pk.compare_samplers``: runs, their chains and workers."""
