"""The lake on the dashboard: the report's plots on a page that allows no inline styles, without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.report_rows import DAY, MONDAY, gold_lake, small
from tests.pipeline.test_report_page import HOSTILE, _hostile
from tests.web.serving import served
from tests.web.test_pages_door import check_is_inert
from tests.web.visiting import Page, Visitor

from taskharbor.drivers import open_driver
from taskharbor.pipeline.web_history import LakeHistory
from taskharbor.web.pages.history import HistoryPages


def visit(lake: Path | str, path: str = "/history?span=all") -> Page:
    with open_driver("memory://") as driver, served(driver) as server:
        server.app.state.history = LakeHistory(str(lake))
        return Visitor(server, server.secret()).get(path)


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    days = [small(MONDAY + number * DAY) for number in range(7)]
    rows = {name: [row for day in days for row in day[name]] for name in days[0]}
    return gold_lake(tmp_path_factory.mktemp("week") / "lake", rows).root


def test_the_page_shows_the_reports_findings_plots_and_tables_under_the_strict_policy(week: Path) -> None:
    page = visit(week)
    assert page.status == 200
    check_is_inert(page)
    policy = page.response.headers["content-security-policy"]
    (style,) = page.all("style")
    assert f"style-src 'self' 'nonce-{style.attributes['nonce']}'" in policy
    assert "unsafe" not in policy
    plots = [each.attributes.get("aria-label") for each in page.all("svg") if each.attributes.get("role") == "img"]
    assert len(plots) >= 4
    for words in ("Are we keeping up?", "What is slow", "Who is noisy", "Promises", "Jobs made by hour of the week"):
        assert words in page.text


def test_every_mark_has_its_place_in_the_rules(week: Path) -> None:
    page = visit(week)
    (style,) = page.all("style")
    used = {each.attributes["data-at"] for each in page.elements if "data-at" in each.attributes}
    assert used
    assert all(f'[data-at="{number}"]{{' in style.text for number in used)


def test_nothing_that_a_job_named_does_anything_here_either(tmp_path: Path) -> None:
    page = visit(gold_lake(tmp_path / "lake", _hostile()).root)
    assert page.status == 200
    check_is_inert(page)
    assert not page.all("img")
    assert not [each for each in page.all("script") if each.text.strip()]
    for text in HOSTILE:
        assert not [each for each in text if each < " " and each not in "\n\t\r" and each in page.response.text]


def test_the_whole_report_can_be_saved_and_is_never_shown_from_here(week: Path) -> None:
    page = visit(week, "/history/report?span=all")
    assert page.response.headers["content-disposition"].startswith("attachment")
    assert "TaskHarbor report" in page.response.text


def test_what_is_no_lake_yet_is_told_with_what_to_do(tmp_path: Path) -> None:
    page = visit(tmp_path / "nothing")
    assert page.status == 200
    assert "taskharbor pipeline run" in page.text
    assert visit(tmp_path / "nothing", "/history/report").status == 404


def test_a_lake_is_read_again_after_half_a_minute_and_not_before(tmp_path: Path) -> None:
    clock = [0.0]
    history = LakeHistory(str(tmp_path / "lake"), monotonic=lambda: clock[0])
    assert isinstance(history, HistoryPages)
    assert history.read("all")["problem"]
    gold_lake(tmp_path / "lake", small())
    first = history.read("all")["report"]
    assert history.read("all")["report"] is first
    clock[0] += 31
    assert history.read("all")["report"] is not first


def test_reading_a_lake_starts_no_spark(week: Path) -> None:
    code = (
        "from taskharbor.pipeline.web_history import LakeHistory; "
        f"assert LakeHistory({str(week)!r}).read('all')['problem'] is None; "
        "from pyspark import SparkContext; assert SparkContext._gateway is None"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
