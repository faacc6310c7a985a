"""How much a claim brings back from the benches of many buckets when it may bring back only so much."""

from __future__ import annotations

from collections.abc import Callable, Mapping


def by_parts(
    bring: Callable[[Mapping[str, int]], Mapping[str, int]], wanted: Mapping[str, int], most: int
) -> list[str]:
    """Have as many brought as each bucket wants, but at most `most` of all together. `bring` takes how many of each
    bucket and tells how many came. Returns the buckets of which all came that were asked for: more may wait there.

    How many there are shows only when they come. So every bucket has its part of what may still come, and what one
    does not use is for those that have more: neither one long bench nor many short ones keep the others waiting.
    """
    deep = [bucket for bucket, count in wanted.items() if count]
    came = dict.fromkeys(deep, 0)
    asking, left = deep, most
    while asking and left:
        part = max(1, left // len(asking))
        asked = {bucket: min(part, wanted[bucket] - came[bucket]) for bucket in asking[:left]}
        back = bring(asked)
        for bucket in asked:
            came[bucket] += back.get(bucket, 0)
        left -= sum(back.values())
        deep = [bucket for bucket in deep if back.get(bucket, 0) == asked.get(bucket, 0)]
        asking = [bucket for bucket in deep if came[bucket] < wanted[bucket]]
    return deep
