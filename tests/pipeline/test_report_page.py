"""The page holds everything it needs, and nothing that a job put into it can do anything there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.report_rows import (
    DAY,
    HOUR,
    MONDAY,
    arrived,
    check,
    failure,
    gold_lake,
    latency,
    promise,
    small,
    tenant,
    throughput,
    worker,
)

from taskharbor.cli import main
from taskharbor.core.errors import InvalidInput
from taskharbor.pipeline import report
from taskharbor.pipeline.report_html import page, verdict
from taskharbor.pipeline.reports import write_page

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x=\'',
    "'><svg/onload=alert(1)>",
    "]]><!--",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "\x00\x07\x1b[31mred\x7f\x9b",
    "\u202egnp.exe\u2066\u200b",
    "a" * 500,
    "&lt;b&gt;&#60;",
    "line\nbreak\ttab\r\n",
]


class Seen(HTMLParser):
    """Every element with its attributes, and the text between."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def seen(text: str) -> Seen:
    parser = Seen()
    parser.feed(text)
    parser.close()
    return parser


def _hostile() -> dict[str, list[Any]]:
    """Every name that comes from a job is one of those."""
    rows: dict[str, list[Any]] = {name: [] for name in small()}
    for number, text in enumerate(HOSTILE):
        at = MONDAY + number * HOUR
        rows["throughput"] += throughput(at, queue=text, type=text, tenant=text, enqueued=1, retried=1)
        rows["latency"] += latency(at, [1.0], [1.0], queue=text, type=text)
        rows["failures"].append(
            failure(at, f"{number:016x}", 100 - number, sample=text, error_class=text, queue=text, type=text,
                    tenants=[text])
        )  # fmt: skip
        rows["tenants"].append(tenant(at, text, 1.0))
        rows["workers"].append(worker(at, text, 100.0, 3600.0))
        rows["slo"].append(promise(at, 1, 2, queue=text, type=text))
        rows["arrivals"].append(arrived(at, 1))
        rows["audit"].append(check(at, text) | {"store_id": text, "detail": text})
    rows["failures"].append(failure(MONDAY + DAY, "f" * 16, 1))
    return rows


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = gold_lake(tmp_path_factory.mktemp("hostile") / "<b>'lake\"", _hostile())
    return page(report(lake.root, since=None))


@pytest.fixture(scope="module")
def plain_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = small()
    for name, more in small(MONDAY + 30 * HOUR).items():
        rows[name] = [*rows[name], *more]
    return page(report(gold_lake(tmp_path_factory.mktemp("plain") / "lake", rows).root, since=None))


def test_nothing_that_a_job_named_becomes_markup(hostile_page: str, plain_page: str) -> None:
    found = seen(hostile_page)
    assert {tag for tag, _ in found.elements} <= {tag for tag, _ in seen(plain_page).elements} | {"details", "pre"}
    assert sum(tag == "script" for tag, _ in found.elements) == 1
    assert not [name for _, attributes in found.elements for name in attributes if name.startswith("on")]
    allowed = {"class", "style", "title", "id", "href", "lang", "charset", "name", "content", "http-equiv", "scope",
               "viewbox", "preserveaspectratio", "role", "aria-label", "aria-hidden", "d", "x", "y", "width",
               "height"}  # fmt: skip
    assert {name for _, attributes in found.elements for name in attributes} <= allowed
    assert all(attributes["href"].startswith("#") for _, attributes in found.elements if attributes.get("href"))  # type: ignore[union-attr]
    assert found.open == []
    assert "{{ 7 * 7 }}" in found.text


def test_control_characters_are_spelled_out(hostile_page: str) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b]", hostile_page)
    assert r"\x1b[31mred" in hostile_page
    assert r"\u202egnp.exe" in hostile_page


def test_long_names_are_cut_and_whole_on_hover(hostile_page: str) -> None:
    found = seen(hostile_page)
    assert "a" * 500 in [attributes.get("title") for _, attributes in found.elements]
    # Only the sample of an error is shown at length, and that on demand.
    in_sight = seen(re.sub(r"(?s)<pre>.*?</pre>", "", hostile_page)).text
    assert "a" * 200 not in in_sight
    assert "a" * 20 + "…" + "a" * 12 in in_sight


def test_the_page_asks_nobody_for_anything(plain_page: str) -> None:
    assert not re.search(
        r"(?i)\b(src|srcset|action|poster|background)\s*=|@import|url\(|<link|<iframe|<img", plain_page
    )
    assert "http://" not in plain_page
    assert "https://" not in plain_page
    (policy,) = (
        a["content"] for tag, a in seen(plain_page).elements if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")


def test_the_policy_lets_the_pages_own_script_run(plain_page: str) -> None:
    import base64
    import hashlib

    script = plain_page.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # In an attribute, a plus sign may be written as itself or as a reference.
    assert f"'sha256-{digest}'" in plain_page.replace("&#43;", "+")


def test_the_page_is_small_and_answers_its_questions(plain_page: str) -> None:
    assert len(plain_page) < 120_000
    text = seen(plain_page).text
    for question in (
        "Are we keeping up?",
        "What is slow?",
        "What fails?",
        "Who is noisy?",
        "When do we need more workers?",
        "Are promises kept?",
        "Can these numbers be trusted?",
    ):
        assert question in text
    assert plain_page.count("<svg") >= 4


def test_an_empty_window_says_so_on_the_page(tmp_path: Path) -> None:
    lake = gold_lake(tmp_path / "lake", small()).root
    text = seen(page(report(lake, since=HOUR, now=MONDAY + 9 * DAY))).text
    assert "Nothing to show" in text
    assert "longer --since" in text
    assert "Can these numbers be trusted?" in text


@pytest.mark.parametrize("missing", ["latency", "failures", "tenants", "workers", "slo", "arrivals"])
def test_a_page_can_be_made_whatever_table_is_empty(tmp_path: Path, missing: str) -> None:
    rows = small()
    rows[missing] = []
    assert "</html>" in page(report(gold_lake(tmp_path / "lake", rows).root, since=None))


@pytest.mark.parametrize("theme", [0, 1, 2], ids=["light", "dark", "print"])
def test_text_and_marks_stand_out_from_what_is_behind_them(theme: int) -> None:
    style = files("taskharbor.pipeline").joinpath("templates", "report.css").read_text("utf-8")
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", style.split(":root {")[theme + 1].partition("}")[0]))

    def contrast(first: str, second: str) -> float:
        """As WCAG has it."""

        def light(colour: str) -> float:
            parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
            linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
            return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

        low, high = sorted((light(first), light(second)))
        return (high + 0.05) / (low + 0.05)

    for name in ("ink", "muted", "good", "watch", "bad"):
        assert min(contrast(colours[name], colours[behind]) for behind in ("paper", "card")) >= 4.5, name
    marks = ("succeeded", "retried", "lapsed", "dead", "other", "made", "p50", "p95", "p99", "busy")
    for name in (*marks, *(f"c{number}" for number in range(1, 7))):
        assert contrast(colours[name], colours["card"]) >= 3, name


def test_the_cells_of_a_promise_are_judged_by_attempts_enough() -> None:
    assert [verdict(part, 0.99) for part in (None, 1.0, 0.95, 0.5)] == ["none", "good", "watch", "bad"]
    assert [verdict(part, 0.99, enough=False) for part in (1.0, 0.5)] == ["good", "few"]


# --- The file ------------------------------------------------------------------------------------------------------


def test_a_page_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "deep" / "report.html"
    assert write_page("one", out) == out
    assert out.stat().st_mode & 0o777 == 0o666 & ~_umask()

    def fails(*names: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="No space left"):
        write_page("two", out)
    assert [each.name for each in out.parent.iterdir()] == ["report.html"]
    assert out.read_text() == "one"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_directory_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is a directory: name a file"):
        write_page("x", tmp_path)


# --- The command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return gold_lake(tmp_path / "lake", small()).root


def test_the_command_writes_the_page_and_says_where_and_how_large(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "report", "--lake", str(lake), "--since", "all", "--out", "r.html"]) == 0
    out = Path("r.html").absolute()
    assert re.fullmatch(rf"{re.escape(str(out))} \(\d+\.\d kB\)\n", capsys.readouterr().out)
    assert out.read_text().startswith("<!DOCTYPE html>")


def test_json_has_the_same_numbers_and_writes_no_page(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "report", "--lake", str(lake), "--since", "all", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(found) == [
        "arrivals", "audit", "empty", "failures", "findings", "format", "generated_at", "lag", "lake", "lake_version",
        "latency", "queues", "rows", "slo", "stores", "tenants", "throughput", "totals", "types", "types_in_all",
        "window", "workers",
    ]  # fmt: skip
    assert found["format"] == 1
    assert found["totals"]["counts"]["started"] == 12
    assert found["throughput"][0]["at"] == "2031-05-05T00:00:00+00:00"
    assert sorted(found["types"][0]["run"]) == ["max_s", "mean_s", "p50_s", "p90_s", "p95_s", "p99_s"]
    assert sorted(found["failures"]["fingerprints"][0]) == [
        "burned_s", "by_day", "dead", "error_class", "failures", "fingerprint", "first_seen", "is_new", "last_seen",
        "queues", "sample", "share", "tenants", "types",
    ]  # fmt: skip
    assert sorted(each.name for each in Path.cwd().iterdir()) == ["lake"]


def test_json_of_two_reports_at_one_time_is_the_same(lake: Path) -> None:
    now = MONDAY + DAY
    assert report(lake, since=None, now=now).data() == report(lake, since=None, now=now).data()


def test_open_shows_the_page_in_the_browser(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import webbrowser

    shown: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: shown.append(url) or True)
    assert main(["pipeline", "report", "--lake", str(lake), "--since", "all", "--open"]) == 0
    assert shown == [Path("taskharbor-report.html").absolute().as_uri()]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--lake", "none"], 1, "there is no lake at .*: taskharbor pipeline run makes one"),
        (["--lake", "other"], 1, "is not a lake"),
        (["--lake", "lake", "--out", "other"], 2, "is a directory: name a file"),
        (["--lake", "lake", "--out", ""], 2, "--out is empty"),
        (["--lake", "lake", "--since", "soon"], 2, "says no time"),
        (["--lake", "lake", "--since", "2031-05-01"], 2, "has no offset"),
        (["--lake", "lake", "--since", "0"], 2, "above zero"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    lake: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    Path("other").mkdir()
    Path("other/notes.txt").write_text("x")
    assert main(["pipeline", "report", *words]) == code
    error = capsys.readouterr().err
    assert re.search(said, error)
    assert error.splitlines()[-1].startswith("taskharbor: ") or code == 2
    assert not Path("taskharbor-report.html").exists()


def test_a_window_that_cuts_everything_is_said_and_its_page_written(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pipeline", "report", "--lake", str(lake), "--since", "2040-01-01T00:00:00Z"]
    assert main(words) == 0
    assert "it is empty: Nothing in this lake is from Sun 1 Jan 2040, 00:00" in capsys.readouterr().out
    assert "Nothing to show" in Path("taskharbor-report.html").read_text()


def test_a_report_starts_no_spark(lake: Path) -> None:
    code = (
        "import sys; from taskharbor.cli import main; "
        f"assert main(['pipeline', 'report', '--lake', {str(lake)!r}, '--since', 'all']) == 0; "
        "import pyspark; assert pyspark.SparkContext._gateway is None"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
