"""The evidence of a model: log Z of its posterior, by draws and a density that is near it."""
