"""Ctrl-C: the first one stops a run after the draws that are being made."""

import signal
import threading
from contextlib import contextmanager


class CtrlC:
    """Calls `stop` on Ctrl-C, where KeyboardInterrupt could come at any point."""

    def __init__(self, stop):
        self._stop, self.may_raise = stop, False
        self._pressed, self._pressed_again = False, False

    def __enter__(self):
        """Take over, in the main thread; elsewhere Ctrl-C does not come."""
        self._previous = signal.getsignal(signal.SIGINT)
        main = threading.current_thread() is threading.main_thread()
        self._active = callable(self._previous) and main
        if self._active:
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *error):
        """Restore the previous handler."""
        if self._active:
            signal.signal(signal.SIGINT, self._previous)

    @contextmanager
    def interruptible(self):
        """Let a second Ctrl-C interrupt what is done here, even if it came a moment before."""
        self.may_raise = True
        try:
            if self._pressed_again:
                raise KeyboardInterrupt
            yield
        finally:
            self.may_raise = False

    def _handle(self, *arguments):
        try:
            self._previous(*arguments)
        except KeyboardInterrupt:
            if self._pressed and self.may_raise:
                raise
            self._pressed, self._pressed_again = True, self._pressed
            self._stop()
