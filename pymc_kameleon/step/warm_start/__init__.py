"""The way from a chain's start to where the posterior is: ``approach`` has the whole of it."""
