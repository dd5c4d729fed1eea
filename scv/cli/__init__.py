"""The command `scv`. Importing this costs next to nothing; so does `scv --version`."""

import os
import sys


def main() -> int:
    """Run the command line of this process and return its exit status."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        from scv import __version__

        sys.stdout.write(f"scv {__version__}\n")
        return 0
    try:
        if arguments == ["attach", "--stdio"]:  # every editor window waits for this one
            from scv.cli.attach import attach

            return attach(os.environ)
        from scv.cli.dispatch import run

        return run(arguments)
    except KeyboardInterrupt:
        return 130  # as a shell reports a program that Ctrl+C ended
