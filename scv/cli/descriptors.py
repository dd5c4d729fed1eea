"""The standard descriptors, as a command finds them."""

import os


def occupy_standard_descriptors() -> None:
    """Keep files that are opened later from becoming standard output by accident."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
