"""Ctrl-C and SIGTERM: finish the step, save, then go; a second Ctrl-C goes at once."""

import contextlib
import os
import signal
import sys

GRACE = "finishing the step and saving; Ctrl-C once more ends at once"


class Stopped(Exception):
    """A run that ended before its time, with all it needs to go on; `status` is the exit's."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


class Signals:
    """The signal that asked to stop, None as long as none did."""

    def __init__(self):
        self.received = None

    def receive(self, number, frame):
        if self.received is not None and number == signal.SIGINT:
            os._exit(128 + number)
        self.received = number
        print(f"\nkeras-vit: {signal.Signals(number).name}: {GRACE}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def listening():
    """`Signals` that receive SIGTERM and Ctrl-C inside of the block."""
    signals = Signals()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, signals.receive) for number in numbers]
    try:
        yield signals
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
