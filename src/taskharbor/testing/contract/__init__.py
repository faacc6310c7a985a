"""The promises of a driver as tests: one mixin, in a module of its own, for each theme of the contract."""

from __future__ import annotations

from taskharbor.testing.contract.access import AccessContract
from taskharbor.testing.contract.attempts import AttemptContract
from taskharbor.testing.contract.batches import BatchContract
from taskharbor.testing.contract.benches import BenchContract
from taskharbor.testing.contract.cancelling import CancelContract
from taskharbor.testing.contract.closing import ClosingContract
from taskharbor.testing.contract.concurrency import ConcurrencyContract
from taskharbor.testing.contract.dlq import DeadLetterContract
from taskharbor.testing.contract.enqueue import EnqueueContract
from taskharbor.testing.contract.expiry import ExpiryContract
from taskharbor.testing.contract.fairness import FairnessContract
from taskharbor.testing.contract.forsaking import ForsakingContract
from taskharbor.testing.contract.fused import FusedContract
from taskharbor.testing.contract.history import HistoryContract
from taskharbor.testing.contract.idempotency import IdempotencyContract
from taskharbor.testing.contract.input import InputContract
from taskharbor.testing.contract.inspection import InspectionContract
from taskharbor.testing.contract.latest import LatestContract
from taskharbor.testing.contract.leadership import LeadershipContract
from taskharbor.testing.contract.leases import LeaseContract
from taskharbor.testing.contract.limits import LimitContract
from taskharbor.testing.contract.listening import ListeningContract
from taskharbor.testing.contract.moving import MovingContract
from taskharbor.testing.contract.ordering import OrderingContract
from taskharbor.testing.contract.queues import QueueContract
from taskharbor.testing.contract.rates import RateContract
from taskharbor.testing.contract.reclaim import ReclaimContract
from taskharbor.testing.contract.recovery import RecoveryContract
from taskharbor.testing.contract.repeats import RepeatContract
from taskharbor.testing.contract.returning import ReturningContract
from taskharbor.testing.contract.schedules import ScheduleContract
from taskharbor.testing.contract.settling import SettlingContract
from taskharbor.testing.contract.surveys import SurveyContract
from taskharbor.testing.contract.tenants import TenantContract
from taskharbor.testing.contract.unique import UniqueContract
from taskharbor.testing.contract.workers import WorkerContract
from taskharbor.testing.contract.workflows import WorkflowContract


class DriverContract(
    # The first promise first: a lease that is lost settles nothing.
    LeaseContract,
    EnqueueContract,
    IdempotencyContract,
    UniqueContract,
    OrderingContract,
    TenantContract,
    SettlingContract,
    RepeatContract,
    BatchContract,
    FusedContract,
    ReclaimContract,
    CancelContract,
    ExpiryContract,
    DeadLetterContract,
    AttemptContract,
    HistoryContract,
    LatestContract,
    InspectionContract,
    SurveyContract,
    QueueContract,
    WorkerContract,
    LeadershipContract,
    RecoveryContract,
    ScheduleContract,
    LimitContract,
    BenchContract,
    RateContract,
    FairnessContract,
    WorkflowContract,
    ReturningContract,
    ForsakingContract,
    AccessContract,
    MovingContract,
    ListeningContract,
    InputContract,
    ClosingContract,
    ConcurrencyContract,
):
    """Every promise of a driver. Subclass it and give it a `driver` fixture:

        class TestMyDriver(DriverContract):
            @pytest.fixture
            def driver(self):
                driver = open_driver("mystore://…")
                driver.migrate()
                yield driver
                driver.close()

    Each test wants a store that is migrated and empty, and limits as they are by default. The suite has no
    markers, so it asks nothing of your pytest configuration.
    """


__all__ = ["DriverContract"]
