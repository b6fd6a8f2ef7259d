"""One coordinate at a time: ``cmh``, ``cmtm``, and ``sweeps``, which they share."""
