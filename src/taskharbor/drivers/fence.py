"""The fence of a store that is being moved: seen inside the transaction that would change something.

What a driver knows of the mark is up to half a second old, and any time may pass between its look and the write: a
machine that sleeps, a wait for a lock. So whatever takes jobs in, gives them out or changes something by hand looks at
the mark once more where nobody can come in between. How each store does it is in decision 16.
"""

from __future__ import annotations

from taskharbor.core.errors import StoreMoved


class FenceShut(StoreMoved):
    """What an operation of a store raises when it finds the mark; the driver tells the caller where to go instead."""

    def __init__(self) -> None:
        super().__init__("this store was moved to another one, or is being moved there: use that one")
