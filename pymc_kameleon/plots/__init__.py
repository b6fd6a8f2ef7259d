"""Plots of what a run did and learned, by ArviZ's conventions."""
