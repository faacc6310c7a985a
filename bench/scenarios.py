"""Speed: how fast jobs go in, how fast they are worked off, how soon one starts. Ours, the peers and plain SQL take
turns; the medians are compared."""

from __future__ import annotations

import statistics

from bench import ours
from bench.harness import Result, Turns, rate, say
from bench.peers import PgQueuer
from bench.stores import SETTLED, Goal, Scale, Store, fresh, one_peer, plain

SAME_FACTS = "plain SQL, same facts"
MINIMAL = "plain SQL, minimal table: keeps no lease"
# What the design asks for beside each peer.
BULK_GOALS = {"graphile-worker": Goal("P2", 2.5), "PGQueuer": Goal("P2", 2.5), "Huey": Goal("P8", 10)}
# What the design says of the peers (graphile-worker: 20,800 jobs a second, 25,700 with two processes) they reach when
# the drain follows the load at once, so its goals are for that. Once its tables have been analyzed graphile-worker is
# two to three times as fast: that is shown, too.
DRAIN_GOALS = {"graphile-worker": Goal("P3", 1.3), "PGQueuer": Goal("P3", 3), "Huey": Goal("P8", 8)}
LATENCY_GOALS = {"graphile-worker": 0.8}


def bulk_and_drain(store: Store, scale: Scale) -> list[Result]:
    """P2, P3, P8 and P9: bulk enqueue, and drain with one process."""
    bulk, drain = Turns(), Turns()
    for turn in range(scale.rounds):
        say(f"{store.name}: bulk enqueue and drain of {scale.drain:,} jobs, round {turn + 1} of {scale.rounds}")
        with fresh(store) as (driver, url):
            ours.fill(driver, 1_000)
            ours.drain(driver, ours.BATCH)
            bulk.add("ours", rate(lambda: ours.fill(driver, scale.drain)))
            store.settle_down(url)
            drain.add("driver", rate(lambda: ours.drain(driver, ours.BATCH)))
        for name, kind in ((SAME_FACTS, store.same_facts), (MINIMAL, store.minimal)):
            with plain(store, kind) as (yardstick, address):
                yardstick.fill(1_000)
                yardstick.drain(ours.BATCH)
                bulk.add(name, rate(lambda: yardstick.fill(scale.drain)))
                store.settle_down(address)
                drain.add(name, rate(lambda: yardstick.drain(ours.BATCH)))
        for state in store.states if store.peers else ():
            with fresh(store) as (driver, url):
                ours.fill(driver, scale.drain)
                store.bring_to(state, url)
                drain.add("work" + state, ours.work(url, 1))
            for peer in store.peers:
                with one_peer(store, peer) as address:
                    peer.prepare(address)
                    bulk.add(peer.name, peer.fill(address, scale.drain))
                    store.bring_to(state, address)
                    drain.add(peer.name + state, peer.drain(address, 1))
    return [*_bulk_results(store, bulk), *_drain_results(store, drain)]


def _bulk_results(store: Store, bulk: Turns) -> list[Result]:
    name, mine = f"bulk enqueue, {store.name}", bulk.median("ours")
    raw, goal = bulk.median(SAME_FACTS), store.bulk_goal
    results = [
        Result(goal.number, name, mine, raw, "jobs/s", SAME_FACTS, goal.ratio),
        Result(goal.number, name, mine, bulk.median(MINIMAL), "jobs/s", MINIMAL),
    ]
    # The design asks for so much more than the best of them; the others are for information.
    best = max((peer.name for peer in store.peers), key=lambda peer: bulk.median(peer) or 0, default=None)
    for peer in (*store.peers, *store.absent):
        asked = BULK_GOALS[peer.name]
        is_best = peer.name == best
        label = f"{peer.name}, the best peer" if is_best and len(store.peers) > 1 else peer.name
        theirs = bulk.median(peer.name)
        ratio = asked.ratio if is_best or peer in store.absent else None
        results.append(Result(asked.number, name, mine, theirs, "jobs/s", label, ratio))
    return results


def _drain_results(store: Store, drain: Turns) -> list[Result]:
    name, goal = f"drain, 1 process, {store.name}", store.drain_goal
    driver = drain.median("driver")
    results = [
        Result(goal.number, name, driver, drain.median(SAME_FACTS), "jobs/s", SAME_FACTS, goal.ratio),
        Result(goal.number, name, driver, drain.median(MINIMAL), "jobs/s", MINIMAL),
    ]
    for state in store.states:
        for peer in (*store.peers, *store.absent):
            asked, mine, theirs = DRAIN_GOALS[peer.name], drain.median("work" + state), drain.median(peer.name + state)
            ratio = asked.ratio if state != SETTLED else None
            results.append(Result(asked.number, name + state, mine, theirs, "jobs/s", peer.name, ratio))
    return results


def single_enqueue(store: Store, scale: Scale) -> list[Result]:
    """P1: jobs enqueued one by one, each committed before the next."""
    say(f"{store.name}: {scale.single:,} single enqueues")
    turns = Turns()
    peer = next((peer for peer in store.peers if isinstance(peer, PgQueuer)), None)
    # Which core the server's process gets decides as much as anything else: many short turns, each connected anew.
    count = scale.single // 3
    for _turn in range(3 * scale.rounds):
        with fresh(store) as (driver, _), plain(store, store.same_facts) as (yardstick, _):
            ours.enqueue_one_by_one(driver, 100)
            yardstick.insert_one_by_one(100)
            turns.add("ours", rate(lambda: ours.enqueue_one_by_one(driver, count)))
            turns.add("raw", rate(lambda: yardstick.insert_one_by_one(count)))
        if peer is not None:
            with one_peer(store, peer) as address:
                peer.prepare(address)
                turns.add("peer", peer.enqueue_one_by_one(address, count))
    name, mine = f"one-by-one enqueue, {store.name}", turns.median("ours")
    return [
        Result("P1", name, mine, turns.median("raw"), "jobs/s", "plain SQL insert, same library", 0.85),
        Result("P1", name, mine, turns.median("peer"), "jobs/s", PgQueuer.name, 1.2),
    ]


def two_processes(store: Store, scale: Scale) -> list[Result]:
    """P4: drain with two processes; and what the second one adds."""
    turns = Turns()
    peer = next((peer for peer in store.peers if peer.name == "graphile-worker"), None)
    for turn in range(scale.rounds):
        say(f"{store.name}: drain of {scale.drain:,} jobs by two processes, round {turn + 1} of {scale.rounds}")
        for state in store.states:
            for processes in (2, 1):
                with fresh(store) as (driver, url):
                    ours.fill(driver, scale.drain)
                    store.bring_to(state, url)
                    turns.add(f"ours {processes}{state}", ours.work(url, processes))
            if peer is not None:
                with one_peer(store, peer) as address:
                    peer.prepare(address)
                    peer.fill(address, scale.drain)
                    store.bring_to(state, address)
                    turns.add("peer" + state, peer.drain(address, 2))
    results = []
    for state in store.states:
        name, mine = f"drain, 2 processes, {store.name}{state}", turns.median("ours 2" + state)
        alone, theirs = turns.median("ours 1" + state), turns.median("peer" + state)
        results += [
            Result(
                "P4",
                name,
                mine,
                theirs,
                "jobs/s",
                "graphile-worker with 2 processes",
                None if state == SETTLED else 1.3,
            ),
            Result("P4", name, mine, alone, "jobs/s", "ours with 1 process"),
        ]
    return results


def latency(store: Store, scale: Scale) -> list[Result]:
    """P5 and P8: from commit to handler start on an idle queue, between two processes."""
    say(f"{store.name}: latency of {scale.latency:,} single jobs")
    with fresh(store) as (_, url):
        mine = _middle_and_worst(ours.latency(url, scale.latency))
    theirs: dict[str, tuple[float | None, float | None]] = {}
    for peer in store.peers:
        with one_peer(store, peer) as address:
            peer.prepare(address)
            theirs[peer.name] = _middle_and_worst(peer.latency(address, scale.latency))
    number = "P8" if store.name == "SQLite" else "P5"
    half, worst = f"latency p50, {store.name}", f"latency p99, {store.name}"
    results = []
    for peer in (*store.peers, *store.absent):
        beside = theirs.get(peer.name, (None, None))
        goal = LATENCY_GOALS.get(peer.name)
        results.append(Result(number, half, mine[0], beside[0], "ms", peer.name, goal, at_most=True))
        results.append(Result(number, worst, mine[1], beside[1], "ms", peer.name, at_most=True))
    if number == "P8":
        results.append(Result(number, half, mine[0], 5.0, "ms", "budget", 1, at_most=True))
    else:
        results.append(Result(number, worst, mine[1], 10.0, "ms", "budget", 1, at_most=True))
    return results


def _middle_and_worst(taken: list[float] | None) -> tuple[float | None, float | None]:
    """The median and the 99th percentile."""
    return (statistics.median(taken), statistics.quantiles(taken, n=100)[98]) if taken else (None, None)
