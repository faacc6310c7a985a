"""`python -m taskharbor` is the `taskharbor` command."""

import sys

from taskharbor.cli import main

sys.exit(main())
