"""The answers that people open a report for, each in a figure and a sentence or two, with a verdict where there is one.

What is good or bad comes from the objectives: a report has no opinion of its own about how long is too long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from taskharbor.pipeline.report_numbers import Finding, LatencyBucket, Promise, Report
from taskharbor.pipeline.report_words import (
    NOTHING,
    WEEKDAYS,
    ago,
    brief,
    compact,
    count,
    hour_of,
    many,
    seconds,
    share,
    short,
)
from taskharbor.pipeline.slo import LEAST_ATTEMPTS


def findings(report: Report) -> list[Finding]:
    if report.empty:
        return []
    return [_keeping_up(report), _slow(report), _failing(report), _noisy(report), _capacity(report), _trust(report)]


def _keeping_up(report: Report) -> Finding:
    question = "Are we keeping up?"
    wait = report.totals.wait
    if wait is None:
        return Finding("keeping-up", question, "none", NOTHING, "No attempt has ended.")
    promises = _judged(report, "wait")
    text = f"Half of all attempts started within {seconds(wait.p50_s)} of being due, 95 of 100 within the time above."
    broken = [each for each in promises if not each.kept]
    lately = [each for each in promises if each.burning]
    if broken:
        worst = broken[0]
        text += (
            f" {_at(worst)} should start within {seconds(worst.threshold_s)} in {share(worst.target, near_one=True)}"
            f" of cases, and does in {share(worst.attainment, near_one=True)}."
        )
    elif lately:
        text += f" Over the last day {_at(lately[0])} has started late too often."
    elif promises:
        judged = "" if len(promises) == len(_current(report, "wait")) else " that can be judged"
        text += f" Every promise about waiting{judged} is kept."
    elif _current(report, "wait"):
        text += f" {_TOO_FEW}"
    verdict = "bad" if broken else "watch" if lately else "good" if promises else "none"
    return Finding("keeping-up", question, verdict, f"{seconds(wait.p95_s)} wait", text)


def _slow(report: Report) -> Finding:
    question = "What is slow?"
    run = report.totals.run
    if run is None or not report.types:
        return Finding("slow", question, "none", NOTHING, "No attempt has ended.")
    most = report.types[0]
    text = (
        f"95 of 100 attempts run no longer than that. {short(most.type)} takes {share(most.compute_share)} of all run"
        f" time; one in a hundred of its attempts takes more than {seconds(most.run.p99_s)}."
    )
    slowest = max(report.types, key=lambda each: each.run.p95_s)
    if slowest is not most and slowest.run.p95_s > most.run.p95_s:
        text += f" Slowest by type: {short(slowest.type)}, p95 {seconds(slowest.run.p95_s)}."
    return Finding("slow", question, "none", f"{seconds(run.p95_s)} run", text)


def _failing(report: Report) -> Finding:
    question = "What fails?"
    totals, failures = report.totals, report.failures
    figure = f"{share(totals.burned_share)} burned"
    if not failures.burned:
        return Finding("failing", question, "good", figure, "No attempt failed.")
    promises = _judged(report, "success")
    broken = [each for each in promises if not each.kept]
    fresh = [each for each in failures.fingerprints if each.is_new]
    text = f"{count(totals.burned)} of {many(totals.counts.started, 'attempt')} failed"
    text += f". {_deaths(report)}" if totals.deaths else ", and no job died of it."
    if failures.fingerprints:
        most = failures.fingerprints[0]
        text += f" Most common, with {share(most.share)}: {short(most.error_class)} in {_names(most.types)}."
    if fresh:
        text += f" New since yesterday: {', '.join(sorted({short(each.error_class, 30) for each in fresh})[:3])}."
    if not promises and _current(report, "success"):
        text += f" {_TOO_FEW}"
    verdict = "bad" if broken else "watch" if fresh else "good" if promises else "none"
    return Finding("failing", question, verdict, figure, text)


def _noisy(report: Report) -> Finding:
    question = "Who is noisy?"
    known = report.tenants
    if not known.tenants:
        return Finding("noisy", question, "none", NOTHING, "No tenant is known.")
    first = known.tenants[0]
    if known.tenants_in_all == 1:
        return Finding("noisy", question, "none", "1 tenant", f"All work is of {short(first.tenant_id)}.")
    loud = [each for each in known.tenants if each.noisy]
    if not loud:
        text = (
            f"No tenant of {count(known.tenants_in_all)} stands out: {short(first.tenant_id)} takes most, "
            f"{_times(first.share, known.fair_share)} its fair share of run time."
        )
        return Finding("noisy", question, "good", f"{share(first.share)} at most", text)
    text = (
        f"{short(first.tenant_id)} takes that much of all run time, {_times(first.share, known.fair_share)} its fair "
        f"share among {many(known.tenants_in_all, 'tenant')}."
    )
    if loud[1:]:
        text += f" Noisy too: {_names([each.tenant_id for each in loud[1:]])}."
    return Finding("noisy", question, "watch", share(first.share), text)


def _capacity(report: Report) -> Finding:
    question = "When do we need more workers?"
    capacity, busiest = report.workers.capacity, report.arrivals.busiest
    if not capacity:
        return Finding("capacity", question, "none", NOTHING, "No worker is known.")
    peak = max(capacity, key=lambda each: each.busy_slots)
    text = f"Busy on average at the peak, the hour of {brief(peak.at)}, on {many(peak.workers, 'worker')}."
    if peak.at_most:
        text += " That is the most it can be: many attempts were over sooner than the store was told."
    seen = sum(cell.weeks > 0 for cell in report.arrivals.cells)
    if busiest is not None and seen >= 24:  # less than a day has no busiest hour worth a word
        text += (
            f" Most jobs come {WEEKDAYS[busiest.weekday]} {hour_of(busiest.hour)} UTC,"
            f" {_times(busiest.mean, report.arrivals.mean)} the mean hour."
        )
    limit = usual_wait(_current(report, "wait"))
    looked = [each for each in report.latency if each.attempts >= LEAST_ATTEMPTS]
    late = [each for each in looked if limit is not None and each.wait.p95_s > limit]
    if late and limit is not None:
        # Whether more workers would have helped is for the reader to say: few busy slots then speak against it.
        text += f" In {_late_hours(late, len(report.latency), report.window.grain)}, more than one in twenty waited"
        text += f" longer than {seconds(limit)}{_busy_in(late, report)}."
    busy = compact(peak.busy_slots) if peak.busy_slots >= 0.1 else "< 0.1"
    verdict = "watch" if late else "good" if looked and limit is not None else "none"
    return Finding("capacity", question, verdict, f"{busy} slots", text)


def _trust(report: Report) -> Finding:
    question = "Can these numbers be trusted?"
    audit, lag = report.audit, report.lag
    passed = sum(each.passed for each in audit.checks)
    figure = f"{passed} of {many(len(audit.checks), 'check')}" if audit.checks else NOTHING
    text = f"The newest fact is of {brief(lag.newest_at)} UTC, {ago(lag.newest_age_s)}." if lag.newest_at else ""
    verdict = "none" if audit.passed is None else "good" if audit.passed else "bad"
    if lag.store_rows is not None:
        text += f" Rows of the store that are not here yet: {count(lag.store_rows)}."
    if audit.rejected_facts:
        rejected = many(audit.rejected_facts, "fact")
        text += f" Not usable, kept in silver/rejects, and missing here: {rejected}."
        if verdict == "good":
            verdict, figure = "watch", f"{rejected} rejected"
    if loaded := audit.rejects - audit.rejected_facts:
        text += f" Rows that loads could not use, which change no number here: {count(loaded)}."
    if lag.last_run_problem:
        text += f" The last run failed: {short(lag.last_run_problem, 120)}"
        verdict = "bad"
    if lag.under_way:
        text += " A run was under way: tables may differ by a batch."
    return Finding("trust", question, verdict, figure, text.strip())


# --- Words that several share ------------------------------------------------------------------------------------


_TOO_FEW = "There were too few attempts to tell whether what is promised is kept."


def _current(report: Report, objective: str) -> list[Promise]:
    return [each for each in report.slo.promises if each.objective == objective and each.current]


def _judged(report: Report, objective: str) -> list[Promise]:
    """Those that there were attempts enough to judge by."""
    return [each for each in _current(report, objective) if each.enough]


def _deaths(report: Report) -> str:
    """A job that was sent back and died again is one job and two deaths."""
    deaths, dead = report.totals.deaths, report.totals.still_dead
    if deaths == 1:
        return f"A job died, and {'is dead still' if dead else 'was sent back'}."
    left = "all of them were sent back" if not dead else f"{many(dead, 'job is', 'jobs are')} dead still"
    return f"Jobs died {count(deaths)} times, and {left}."


def usual_wait(promises: Sequence[Promise]) -> float | None:
    """The waiting time that most attempts are judged by."""
    weight: Counter[float] = Counter()
    for each in promises:
        weight[each.threshold_s] += each.total
    return weight.most_common(1)[0][0] if weight else None


def _at(promise: Promise) -> str:
    return f"{short(promise.type, 30)} on {short(promise.queue, 30)}"


def _times(part: float, whole: float) -> str:
    return f"{part / whole:.1f} times" if whole else "many times"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(short(name, 24) for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _busy_in(late: Sequence[LatencyBucket], report: Report) -> str:
    """How busy workers were in those hours."""
    hours = {each.at for each in late}
    busy = [each.busy_slots for each in report.workers.capacity if each.at in hours]
    if report.window.grain == "day" or not busy:
        return ""
    return f", with {compact(sum(busy) / len(hours))} slots busy on average"


def _late_hours(late: Sequence[LatencyBucket], in_all: int, grain: str) -> str:
    if grain == "day":
        return f"{len(late)} of {many(in_all, 'day')}"
    usual = Counter(each.at.hour for each in late).most_common(1)[0]
    often = f", most often {hour_of(usual[0])}" if usual[1] > 1 else ""
    return f"{len(late)} of {many(in_all, 'hour')}{often}"
