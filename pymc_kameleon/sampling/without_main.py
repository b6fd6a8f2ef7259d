"""Processes that begin afresh, where threads run, and do not import the program again.

Python would import it, to find what is pickled by name. What is sent to these processes travels by
value, and a program that does not ask for its name would begin another run.
"""

import multiprocessing
import sys
import threading

_AFRESH = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
_context = multiprocessing.get_context(_AFRESH)
_hiding = threading.Lock()


class _Process(_context.Process):
    def start(self):
        """Start it, while the program's file is not known."""
        main = sys.modules["__main__"]
        with _hiding:
            hidden = {k: main.__dict__.pop(k) for k in ("__file__", "__spec__") if hasattr(main, k)}
            main.__spec__ = None
            try:
                super().start()
            finally:
                del main.__spec__
                main.__dict__.update(hidden)

    def __reduce__(self):
        """Arrive as one of Python's own, so that nothing of ours is imported there."""
        return object.__new__, (_context.Process,), self.__dict__


class _Context(type(_context)):
    Process = _Process


WITHOUT_MAIN = _Context()
"""A context of multiprocessing."""
