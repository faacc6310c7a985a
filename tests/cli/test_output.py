"""Tables, bars, completion, the document: what people see of the command."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskharbor.cli import main
from taskharbor.cli.command import build_parser
from taskharbor.cli.completion import SHELLS, script
from taskharbor.cli.form import ago, span
from taskharbor.cli.options import every_parser, flag_of, is_typed_only, options_of
from taskharbor.cli.output import ProgressBar, shortened
from taskharbor.cli.reference import MARK, reference
from taskharbor.cli.stats_screen import fitted
from taskharbor.core.model import NewJob
from taskharbor.drivers import open_driver

ROOT = Path(__file__).parent.parent.parent
NOON = datetime(2031, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.012, "12ms"), (3.4, "3.4s"), (42, "42s"), (200, "3m"), (7800, "2h10m"), (36_000, "10h"), (300_000, "3d")],
)
def test_spans_are_short(seconds: float, text: str) -> None:
    assert span(seconds) == text
    assert span(-seconds) == f"-{text}"


def test_ages_look_both_ways() -> None:
    assert ago(NOON - timedelta(minutes=3), NOON) == "3m ago"
    assert ago(NOON + timedelta(hours=2), NOON) == "in 2h"
    assert ago(NOON, NOON) == "now"
    assert ago(None, NOON) == ""


def test_a_traceback_is_shortened_to_what_it_ends_with() -> None:
    assert shortened("Traceback (most recent call last):\n  File x\nValueError: no") == "ValueError: no"
    assert shortened("first\nsecond") == "first"
    assert len(shortened("x" * 500)) == 60


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_on_terminals_only() -> None:
    for stream, drawn in ((Terminal(), True), (io.StringIO(), False)):
        with ProgressBar("redriven", 10, stream) as bar:
            bar.advance(5)
        assert ("5 of 10" in stream.getvalue()) is drawn


# --- on a real terminal ------------------------------------------------------------------------------------


def on_terminal(
    *words: str, columns: int = 200, lines: int = 40, interrupt_after: str | None = None, **environment: str
) -> tuple[int, str]:
    """Run the command on a terminal of its own, and return its exit code and everything it showed."""
    import fcntl
    import struct
    import termios

    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "taskharbor", *words],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**inherited, "TERM": "xterm", "PYTHONWARNINGS": "error", **environment},
        start_new_session=True,
    )
    os.close(child)
    shown = b""
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        try:
            shown += os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not shown:
            break
        if interrupt_after is not None and interrupt_after.encode() in shown:
            process.send_signal(signal.SIGINT)
            interrupt_after = None
    os.close(parent)
    return process.wait(timeout=30), shown.decode()


def without_codes(shown: str) -> str:
    """What is left to read when the terminal has obeyed."""
    return re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", shown)


@pytest.fixture
def filled() -> str:
    store = open_driver("sqlite:///taskharbor.db")
    store.migrate()
    id = store.enqueue([NewJob("email.send", queue="mail")])[0].id
    store.close()
    return id


@pytest.mark.process
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_an_id_stays_whole_however_narrow_the_terminal(columns: int, filled: str) -> None:
    code, shown = on_terminal("jobs", "list", columns=columns)
    assert code == 0
    assert filled in shown


@pytest.mark.process
def test_colours_are_for_terminals_that_want_them(filled: str) -> None:
    red = "\x1b[32m"
    store = open_driver("sqlite:///taskharbor.db")
    (leased,) = store.reserve("mail")
    store.ack(leased.job.id, leased.lease.token)
    store.close()
    assert red in on_terminal("jobs", "list")[1]
    assert red not in on_terminal("jobs", "list", NO_COLOR="1")[1]


@pytest.mark.process
def test_watching_ends_with_ctrl_c_and_exit_code_0(filled: str) -> None:
    code, shown = on_terminal("stats", "--watch", "--interval", "50ms", interrupt_after="workers:")
    assert code == 0
    assert "mail" in shown
    assert "Traceback" not in shown


@pytest.mark.process
def test_watching_in_a_narrow_terminal_cuts_no_heading(filled: str) -> None:
    _, shown = on_terminal("stats", "--watch", "--interval", "50ms", columns=80, interrupt_after="workers:")
    for heading in ("queue", "tap", "ready", "inflight", "done", "dlq", "expired", "cancelled", "oldest ready"):
        assert re.search(rf"\b{heading}\b", without_codes(shown))


def last_screen(shown: str) -> list[str]:
    """The lines that were drawn last before watching ended."""
    drawn = shown.partition("\x1b[?1049l")[0].rpartition("\x1b[H")[2]
    return without_codes(drawn).replace("\r", "").split("\n")


@pytest.mark.process
def test_watching_ends_with_its_terminal(filled: str) -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "taskharbor", "stats", "--watch", "--interval", "50ms"],
        stdin=child, stdout=child, stderr=child, env={**os.environ, "TERM": "xterm"}, start_new_session=True,
    )  # fmt: skip
    os.close(child)
    shown = b""
    while b"workers:" not in shown:
        shown += os.read(parent, 65536)
    os.close(parent)
    try:
        process.wait(timeout=20)
    finally:
        process.kill()


@pytest.mark.process
@pytest.mark.parametrize(("columns", "lines"), [(60, 12), (40, 9), (24, 20), (80, 8)])
def test_watching_in_a_small_terminal_folds_no_row_and_keeps_what_is_below_the_queues(
    columns: int, lines: int, filled: str
) -> None:
    with open_driver("sqlite:///taskharbor.db") as store:
        names = [f"queue-{letter}" for letter in "abcdefghijkl"]
        store.enqueue([NewJob("x", queue=name) for name in [*names, "of-somebody-with-a-long-name"]])
    code, shown = on_terminal(
        "stats", "--watch", "--interval", "50ms", columns=columns, lines=lines, interrupt_after="none"
    )
    assert code == 0
    seen = [line.rstrip() for line in last_screen(shown)]
    assert len(seen) <= lines
    assert max(map(len, seen)) <= columns
    said = " ".join(seen)
    for word in ("scheduled for later: 0", "last 5m: 0 attempts", "leader: none"):
        assert word in " ".join(said.split())
    table = seen[: seen.index("")]
    assert {"queue", "tap", "ready"} <= set(table[0].split()) or columns < 30
    assert all(re.match(r"(queue-|mail|of-|\d+ more|all)", line) for line in table[2:]), "a row to a line"
    assert table[-1].split()[:1] == ["all"]


def test_a_small_screen_has_as_many_queues_as_there_is_room_for() -> None:
    counts = {"ready": 3, "inflight": 0, "done": 0, "dlq": 0, "expired": 0, "cancelled": 1}
    one = {"paused": False, "counts": counts, "oldest_ready_s": 3.0}
    stats = {
        "counts": {**{state: 10 * count for state, count in counts.items()}, "scheduled": 0},
        "queues": [{"name": f"q{number}", **one} for number in range(10)],
        "recent": {"window_s": 300, "attempts": 0, "per_second": 0.0, "failure_rate": 0.0},
        "workers": {"alive": 0, "silent": 0, "slots": 0},
        "leaders": [],
        "moved": None,
    }
    for height in range(30):
        shown = fitted(stats, 60, height).plain().splitlines()
        assert len(shown) <= max(height, 3)
        assert shown[-1] == "workers: 0 alive with 0 slots; leader: none"
    seven = fitted(stats, 60, 12).plain()
    assert [line.split()[0] for line in seven.splitlines()[2:8]] == ["q0", "q1", "q2", "q3", "6", "all"]
    assert "6 more           18          6" in seven, "what is not shown is summed up"
    assert "inflight" not in seven, "no job is in it, and there is no room"
    assert "inflight" in fitted(stats, 100, 12).plain()


@pytest.mark.process
def test_no_line_break_is_put_into_a_cursor(filled: str) -> None:
    with open_driver("sqlite:///taskharbor.db") as store:
        store.enqueue([NewJob("x"), NewJob("x")])
    _, shown = on_terminal("jobs", "list", "--limit", "1", columns=40)
    assert re.search(r"there are more: --cursor 'after:[0-9a-f-]{36}'", shown)


@pytest.mark.process
def test_a_long_error_is_cut_to_one_line_of_the_list(filled: str) -> None:
    store = open_driver("sqlite:///taskharbor.db")
    (leased,) = store.reserve("mail")
    store.fail(filled, leased.lease.token, reason="the mail server at 10.0.0.7 did not answer in time, again")
    store.close()
    _, shown = on_terminal("jobs", "list", columns=110)
    (line,) = (line for line in without_codes(shown).splitlines() if filled in line)
    assert "the mail" in line
    assert line.rstrip().endswith("…")
    assert "did not answer" not in shown
    assert len(line) <= 110


@pytest.mark.process
def test_without_rich_everything_is_there_in_plain(filled: str) -> None:
    hidden = "import sys; sys.modules['rich'] = None; import importlib.util as u; f = u.find_spec"
    hidden += "; u.find_spec = lambda n, *a: None if n == 'rich' else f(n, *a)"
    command = (
        f"{hidden}; sys.stdout.isatty = lambda: True; from taskharbor.cli import main; sys.exit(main(['jobs', 'list']))"
    )
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert filled in done.stdout


# --- completion and document -------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_every_verb_and_flag(shell: str) -> None:
    text = script(build_parser(), shell)
    for path, parser in every_parser(build_parser()):
        for word in path:
            assert word in text
        for action in options_of(parser):
            assert action.option_strings[-1].lstrip("-") in text


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["jo"], "jobs"),
        (["--url", "worker", "dl"], "dlq"),
        (["jobs", ""], "list show retry cancel wait"),
        (["jobs", "list", "--sta"], "--status"),
        (["jobs", "list", "--status", "d"], "done dlq"),
        (["completion", "z"], "zsh"),
    ],
)
def test_bash_completes_what_was_begun(words: list[str], wanted: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script(build_parser(), "bash"))
    quoted = " ".join(f"'{word}'" for word in words)
    command = (
        f". ./script; COMP_WORDS=(taskharbor {quoted}); COMP_CWORD={len(words)}; _taskharbor; echo ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == wanted


def test_completion_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    assert "complete -c taskharbor" in capsys.readouterr().out


def test_the_document_has_every_verb_and_every_flag() -> None:
    written = (ROOT / "docs" / "cli.md").read_text("utf-8").partition(MARK)[2]
    assert written.strip() == reference(build_parser()).strip(), (
        "renew it: python -m taskharbor.cli.reference docs/cli.md"
    )
    for path, parser in every_parser(build_parser()):
        if path:
            assert f"# taskharbor {' '.join(path)}\n" in written
        for action in options_of(parser):
            assert action.option_strings[-1] in written


def test_help_and_document_name_every_flag_that_must_be_typed() -> None:
    help = build_parser().format_help()
    words = (ROOT / "docs" / "cli.md").read_text("utf-8").partition(MARK)[0]
    typed = {flag_of(action) for _, parser in every_parser(build_parser()) for action in options_of(parser)
             if is_typed_only(action)}  # fmt: skip
    assert typed
    for flag in typed:
        assert flag in help.partition("looked for here")[2]
        assert f"`{flag}`" in words.partition("must be typed:")[2]
