"""Draws, statistics and states: as a DataTree, in a Zarr store, and back.

``tree``     the DataTree of a run
``columns``  what is kept of draws
``memory``   draws in memory
``store``    draws in a store
``opening``  results and stores that users name
``state``    chains that can go on
``steps``    how the steps were made
"""
