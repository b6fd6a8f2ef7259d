"""Ctrl-C: the first one stops a run after the draws that are being made."""

import os
import signal
import threading
from contextlib import contextmanager


class CtrlC:
    """Calls `stop` on Ctrl-C, where KeyboardInterrupt would come in the midst of anything.

    Attributes
    ----------
    may_raise : bool
        Whether the second one raises KeyboardInterrupt.
    """

    def __init__(self, stop):
        self._stop, self.may_raise = stop, False
        self._pressed, self._leaves = False, False
        self._process = os.getpid()

    def __enter__(self):
        """Take over, in the main thread; elsewhere Ctrl-C does not come."""
        self._usual = signal.getsignal(signal.SIGINT)
        main = threading.current_thread() is threading.main_thread()
        self._active = callable(self._usual) and main
        if self._active:
            signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *error):
        """Give back."""
        if self._active:
            signal.signal(signal.SIGINT, self._usual)

    @contextmanager
    def leaving(self):
        """Let the second one leave what is done here, also if it came a moment before."""
        self.may_raise = True
        try:
            if self._leaves:
                raise KeyboardInterrupt
            yield
        finally:
            self.may_raise = False

    def _press(self, *arguments):
        if os.getpid() != self._process:
            return  # a worker that was forked: its parent decides
        try:
            self._usual(*arguments)
        except KeyboardInterrupt:
            if self._pressed and self.may_raise:
                raise
            self._pressed, self._leaves = True, self._pressed
            self._stop()
