"""One file per family of samplers."""
