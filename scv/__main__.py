"""`python -m scv` is the same as `scv`."""

import sys

from scv.cli import main

sys.exit(main())
