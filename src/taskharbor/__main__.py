"""`python -m taskharbor` is the `taskharbor` command."""

import sys

try:
    from taskharbor.cli import main

    code = main()
except KeyboardInterrupt:
    # Between two lines of the command itself, where nothing else would catch it.
    code = 130
sys.exit(code)
