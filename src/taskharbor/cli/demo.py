"""`taskharbor demo`: the life of a few jobs, shown as it happens."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, TYPE_CHECKING, Final
from urllib.parse import quote

from taskharbor.cli.options import Verbs, add_verb, given_url
from taskharbor.core.errors import InvalidInput

if TYPE_CHECKING:
    from taskharbor.cli.demo_lake import Harvest
    from taskharbor.cli.story import Story

_URL_HELP: Final = "the store (default: a throw-away SQLite file)"
_DESCRIPTION: Final = """\
Run a small application with real workers, and tell what happens as it happens: priorities, a key used twice, a retry,
the dead-letter queue, a cancel, a schedule, a worker that is killed and another that takes its job over. It takes some
seconds. Everything told was checked; the exit code is 1 if something did not come true.

With --keep, the SQLite file stays in DIR for you to look around in, and there is a second half, which needs the extra
spark and about a minute: a data file becomes jobs, a fleet runs them, some fail and some bring their process down, and
their history becomes a lake and a report, all in DIR. Without --keep the file is thrown away; with --url the jobs
stay in that store, in queues of their own. The environment's TASKHARBOR_URL does not count here.

examples:
  taskharbor demo
  taskharbor demo --keep /tmp/harbor
  taskharbor demo --url memory:// --json
"""


def add_to(verbs: Verbs) -> None:
    parser = add_verb(verbs, "demo", help="see the life of a few jobs", description=_DESCRIPTION, url_help=_URL_HELP)
    parser.add_argument("--keep", metavar="DIR", help="keep everything in this directory, and tell the second half")
    parser.add_argument("--without-spark", action="store_true", help="leave the second half out")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from taskharbor.cli import demo_report
    from taskharbor.drivers.opening import redacted

    asked = given_url(arguments)
    if asked is not None and arguments.keep is not None:
        raise InvalidInput("--keep is for the file of the demo, and --url for a store of yours: give one of them")
    with ExitStack() as cleanup:
        url = asked or _own_store(arguments.keep, cleanup)
        if not arguments.json:
            where = "a throw-away SQLite file" if asked is None and arguments.keep is None else redacted(url)
            print(f"A small application and its workers on {where}.\n", flush=True)
        story = _tell(url, cleanup, quiet=arguments.json, with_burst=asked is None)
        harvest = None
        if arguments.keep is not None and not arguments.without_spark and story.failed is None:
            harvest = _second_half(story, Path(arguments.keep).absolute())
        stays = asked is not None or arguments.keep is not None
        if arguments.json:
            demo_report.print_data(story, url, harvest)
        else:
            demo_report.print_text(story, url if stays else None, harvest)
    if story.failed is None:
        if harvest is not None and sys.stdout.isatty():
            _open(harvest.page)
        return 0
    print(f"taskharbor: the demo did not come true: {story.failed}", file=sys.stderr)
    return 1


def _own_store(keep: str | None, cleanup: ExitStack) -> str:
    # Not TASKHARBOR_URL: whoever tries the demo does not expect it to write to the store in use.
    if keep is None:
        directory = Path(cleanup.enter_context(TemporaryDirectory(prefix="taskharbor-demo-")))
    else:
        directory = Path(keep).absolute()
        directory.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{quote(str(directory / 'demo.db'))}"


def _second_half(story: Story, place: Path) -> Harvest | None:
    from importlib.util import find_spec

    from taskharbor.cli import demo_lake
    from taskharbor.cli.story import Untrue

    if find_spec("pyspark") is None:
        story.tell("the second half, data through Spark, needs an extra: pip install 'taskharbor[spark]'")
        return None
    try:
        return demo_lake.tell(story, place)
    except Untrue as untrue:
        story.failed = str(untrue)
        return None


def _open(page: Path) -> None:
    """In a browser, where there is somebody to look at it."""
    import os
    import webbrowser

    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(page.as_uri())


def _tell(url: str, cleanup: ExitStack, *, quiet: bool, with_burst: bool) -> Story:
    """The whole story. Its workers have stopped when it is told, however it ends; the store stays open for a look."""
    import logging

    from taskharbor.cli import demo_app
    from taskharbor.cli.demo_chapters import at_rest
    from taskharbor.cli.story import Story, Untrue, new_queue

    # The workers' own log would be in between the lines; without any handler, Python prints its warnings.
    silent = logging.NullHandler()
    logging.getLogger("taskharbor").addHandler(silent)
    cleanup.callback(logging.getLogger("taskharbor").removeHandler, silent)
    demo_app.gateway_works.clear()
    queue = new_queue()
    harbor = cleanup.enter_context(demo_app.application(url, queue, migrate=True))
    with TemporaryFile() as words:
        with ExitStack() as crew:
            crew.callback(harbor.driver.remove_schedule, demo_app.pulse(queue))
            story = Story(harbor, queue, _hush if quiet else _say, crew)
            try:
                _chapters(story, words, with_burst=with_burst)
            except Untrue as untrue:
                story.failed = f"{untrue}{_last_words(words)}"
        if story.failed is None:
            try:
                at_rest(story)
            except Untrue as untrue:
                story.failed = str(untrue)
    return story


def _chapters(story: Story, words: IO[bytes], *, with_burst: bool) -> None:
    from taskharbor.cli import demo_app
    from taskharbor.cli import demo_chapters as chapter

    chapter.enqueue_jobs(story)
    chapter.first_worker(story)
    chapter.quick_jobs(story)
    story.enqueue("video.encode", {"title": "harbor"}, tenant="initech", queue=demo_app.slow(story.queue))
    if story.harbor.url.startswith("memory:"):
        lost = chapter.fall_silent(story)
    else:
        with chapter.worker_process(story, words) as ada:
            lost = chapter.kill_a_worker(story, ada)
    chapter.second_worker(story)
    chapter.redrive(story)
    chapter.kinds_of_handlers(story)
    chapter.cancel(story)
    chapter.take_over(story, lost)
    chapter.right_on_time(story)
    if with_burst:
        chapter.burst(story)


def _say(at_s: float, what: str) -> None:
    print(f"  {at_s:5.2f} s  {what}", flush=True)


def _hush(at_s: float, what: str) -> None:
    """With --json, the steps are in the document."""


def _last_words(words: IO[bytes]) -> str:
    """What the worker process had to say, if it had."""
    words.seek(0)
    said = words.read().decode(errors="replace").strip()
    return f" (the worker process said: {said.splitlines()[-1]})" if said else ""
