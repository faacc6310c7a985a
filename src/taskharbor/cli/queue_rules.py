"""`taskharbor queues limit` and `queues fair`: how much may run and start, and how tenants share a queue."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from taskharbor.cli import known
from taskharbor.cli.options import Verbs, add_verb, typed_only
from taskharbor.cli.values import whole

if TYPE_CHECKING:
    from taskharbor.core.contract import Driver
    from taskharbor.core.limiting import Limit
    from taskharbor.core.model import QueueSettings

_LIMIT: Final = """\
Limit how many jobs of a queue, a type or a tenant run at once and start in a second, on all workers. It holds within a
second. What is running goes on, and counts; what has to wait lets others pass. A rate is a number of jobs a second, or
like 60/m. Without a burst of its own, a rate lets through at once what it allows in a quarter of a second.

examples:
  taskharbor queues limit reports --concurrency 4
  taskharbor queues limit mail --rate 100/s --burst 20
  taskharbor queues limit sync --per key --concurrency 1
  taskharbor queues limit email.send --type --rate 60/m
  taskharbor queues limit acme --tenant --concurrency 10
  taskharbor queues limit reports --lift
"""
_FAIR: Final = """\
Let tenants share a queue, each by its weight; a tenant without one has the weight 1. The weights replace those of
before.

examples:
  taskharbor queues fair mail
  taskharbor queues fair mail --weight acme=3 --weight trial=0.5
  taskharbor queues fair mail --off
"""


def add_to(group: Verbs) -> None:
    parser = add_verb(group, "limit", help="limit what runs at once and starts in a second", description=_LIMIT)
    parser.add_argument("name", metavar="NAME", help="a queue, or with --type or --tenant one of those")
    kind = parser.add_mutually_exclusive_group()
    # Elsewhere these name a type or a tenant, and so does what the environment has for them: it is not about this.
    typed_only(kind.add_argument("--type", dest="scope", action="store_const", const="type", help="NAME is a type"))
    typed_only(
        kind.add_argument("--tenant", dest="scope", action="store_const", const="tenant", help="NAME is a tenant")
    )
    parser.add_argument("--concurrency", type=whole, metavar="N", help="how many may run at once")
    parser.add_argument("--rate", metavar="N/s", help="how many may start in a second (/m, /h and /d too)")
    parser.add_argument("--burst", type=whole, metavar="N", help="how many may start at once after a rest")
    parser.add_argument("--per", choices=("key", "tenant"), default="", help="count each key or tenant for itself")
    parser.add_argument("--lift", action="store_true", help="remove the limit")
    parser.set_defaults(run=run_limit)
    parser = add_verb(group, "fair", help="let tenants share a queue", description=_FAIR)
    parser.add_argument("name", metavar="NAME", help="the queue")
    parser.add_argument("--weight", action="append", default=[], metavar="TENANT=W", help="a tenant's weight")
    parser.add_argument("--off", action="store_true", help="first come, first served again")
    parser.set_defaults(run=run_fair)


def run_limit(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import in_one_line, print_json
    from taskharbor.cli.store import opened
    from taskharbor.core.errors import InvalidInput
    from taskharbor.core.forms import limit_data
    from taskharbor.core.limiting import Limit, checked_limit, rate_a_second

    scope = arguments.scope or "queue"
    whose = limit_of(scope, arguments.name, arguments.per)
    sizes = (arguments.concurrency, arguments.rate, arguments.burst)
    if arguments.lift:
        if any(size is not None for size in sizes):
            raise InvalidInput("--lift removes a limit: give no sizes with it")
        return _lift(arguments, scope, whose)
    if all(size is None for size in sizes):
        raise InvalidInput("a limit needs --concurrency, --rate or both; --lift removes one")
    rate = None if arguments.rate is None else rate_a_second(arguments.rate)
    limit = checked_limit(Limit(scope, arguments.name, arguments.per, arguments.concurrency, rate, arguments.burst))
    with opened(arguments, create=True) as driver:
        doubts = known.doubts(driver, scope, [arguments.name])
        driver.set_limit(limit)
    known.say(doubts)
    if arguments.json:
        print_json(limit_data(limit))
    else:
        print(in_one_line(f"{whose}: {limit_text(limit)}"))
    return 0


def _lift(arguments: argparse.Namespace, scope: str, whose: str) -> int:
    from taskharbor.cli.output import in_one_line, print_json
    from taskharbor.cli.store import opened

    with opened(arguments, create=True) as driver:
        lifted = driver.drop_limit(scope, arguments.name, arguments.per)
        doubts = [] if lifted else _others(driver, scope, arguments.name)
    known.say(doubts)
    if arguments.json:
        print_json({"scope": scope, "name": arguments.name, "per": arguments.per, "lifted": lifted})
    else:
        print(in_one_line(f"the limit of {whose} is lifted" if lifted else f"{whose} had no limit"))
    return 0


def _others(driver: Driver, scope: str, name: str) -> list[str]:
    """For whoever lifts a limit that there is not: those by that name that there are, else whether the name is one."""
    limits = [limit for limit in driver.get_limits() if limit.name == name]
    if not limits:
        return known.doubts(driver, scope, [name])
    flags: dict[str, list[str]] = {"queue": [], "type": ["--type"], "tenant": ["--tenant"]}
    return [
        f"there is one for {limit_of(*limit.key)} ({limit_text(limit)}): to lift that, give "
        + " ".join([*flags[limit.scope], *(["--per", limit.per] if limit.per else []), "--lift"])
        for limit in limits
    ]


def limit_of(scope: str, name: str, per: str) -> str:
    return f"{scope} {name}" + (f" per {per}" if per else "")


def run_fair(arguments: argparse.Namespace) -> int:
    from taskharbor.cli.output import in_one_line, print_json
    from taskharbor.cli.store import opened
    from taskharbor.core.errors import InvalidInput
    from taskharbor.core.limits import MAX_NAME, check_name

    check_name(arguments.name, "queue", MAX_NAME)
    if arguments.off and arguments.weight:
        raise InvalidInput("--off goes without weights: a queue that is not fair has none")
    weights: dict[str, float] = {}
    for tenant, weight in map(_weight, arguments.weight):
        if tenant in weights:
            raise InvalidInput(f"--weight is there twice for {tenant!r}: give each tenant one weight")
        weights[tenant] = weight
    with opened(arguments, create=True) as driver:
        doubts = known.doubts(driver, "queue", [arguments.name])
        doubts += known.slips(driver, "tenant", weights)
        # One that is not fair stays as it is: to write it down would make a queue of every slip.
        if not arguments.off or any(queue.fair for queue in driver.queues() if queue.name == arguments.name):
            driver.set_fair(arguments.name, not arguments.off, weights)
    known.say(doubts)
    if arguments.json:
        print_json({"name": arguments.name, "fair": not arguments.off, "weights": weights})
    elif arguments.off:
        print(f"{in_one_line(arguments.name)}: first come, first served")
    else:
        print(f"{in_one_line(arguments.name)}: {in_one_line(_shares(weights))}")
    return 0


def _weight(text: str) -> tuple[str, float]:
    from taskharbor.core.errors import InvalidInput

    tenant, _, number = text.rpartition("=")
    try:
        return tenant, float(number)
    except ValueError:
        raise InvalidInput(f"a weight is given as TENANT=NUMBER, for example acme=2, got {text!r}") from None


def of_queue(limits: Sequence[Limit], name: str) -> list[Limit]:
    return [limit for limit in limits if limit.scope == "queue" and limit.name == name]


def limit_text(limit: Limit) -> str:
    from taskharbor.core.limiting import rate_text

    parts = []
    if limit.concurrency is not None:
        parts.append(f"{limit.concurrency:,} at once")
    if limit.rate is not None:
        parts.append(rate_text(limit.rate) + (f" (burst {limit.burst:,})" if limit.burst is not None else ""))
    return ", ".join(parts) + (f" per {limit.per}" if limit.per else "")


def rules_text(settings: QueueSettings, limits: Sequence[Limit]) -> str:
    """All that governs a queue, in a few words."""
    return "; ".join([*([_shares(settings.weights)] if settings.fair else []), *map(limit_text, limits)])


def _shares(weights: Mapping[str, float]) -> str:
    shown = [f"{tenant}={weight:g}" for tenant, weight in sorted(weights.items())]
    return "fair" + (f" ({', '.join(shown[:3])}{', …' if shown[3:] else ''})" if shown else "")
