"""What an application touches: the harbor, its tasks, and what it can learn of a job."""

from taskharbor.app.batches import Batch, BatchItem
from taskharbor.app.context import Context, Control
from taskharbor.app.errors import InvalidArguments, JobFailed, WaitTimeout
from taskharbor.app.harbor import Harbor
from taskharbor.app.lookup import JobView
from taskharbor.app.many import EnqueuedMany
from taskharbor.app.task import Call, Task

__all__ = [
    "Batch",
    "BatchItem",
    "Call",
    "Context",
    "Control",
    "EnqueuedMany",
    "Harbor",
    "InvalidArguments",
    "JobFailed",
    "JobView",
    "Task",
    "WaitTimeout",
]
