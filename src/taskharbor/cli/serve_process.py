"""One of several processes of `taskharbor serve`. Its parent gives it the settings in the environment."""

from __future__ import annotations

import argparse
import os
import sys


def main() -> int:
    from taskharbor.cli.serve_history import history_of
    from taskharbor.core.errors import TaskHarborError
    from taskharbor.web import create_app
    from taskharbor.web.serving import Server, listen, run
    from taskharbor.web.settings import ENVIRONMENT, Settings
    from taskharbor.worker.program_log import ProgramLog
    from taskharbor.worker.supervisor import heed_parent

    parser = argparse.ArgumentParser()
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", default="text")
    arguments = parser.parse_args()
    ProgramLog(arguments.log_level, arguments.log_format).install()
    # Taken out of the environment: nothing that this process starts is to find the secrets there.
    settings = Settings.from_text(os.environ.pop(ENVIRONMENT))
    try:
        server = Server(create_app(settings, history=history_of(settings)))
        server.has_parent = heed_parent(server.stop, server.hurry)
        return run(server, listen(settings, share=True))
    except TaskHarborError as error:
        print(f"taskharbor: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
