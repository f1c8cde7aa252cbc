"""Runs the command as ``python -m safeproducer``."""

import sys

from safeproducer.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
