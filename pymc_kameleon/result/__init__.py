"""Draws, statistics and states: as a DataTree, in a Zarr store, and back."""
