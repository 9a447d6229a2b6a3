"""`python -m structspec` is the `structspec` command."""

import sys

from structspec.cli import main

sys.exit(main())
