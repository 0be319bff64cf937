"""A deterministic simulation of processes that share object storage, to test what is built on arraystore.

See `arraystore.simulation.world` for examples.
"""

from arraystore.simulation.bucket import Bucket
from arraystore.simulation.faults import Faults
from arraystore.simulation.latency import Delay, Latencies
from arraystore.simulation.loop import DeadlockError, HorizonError, SimulatedLoop, SimulationError
from arraystore.simulation.storage import SimulatedStorage
from arraystore.simulation.trace import Event, Trace
from arraystore.simulation.world import Process, World

__all__ = [
    "Bucket",
    "DeadlockError",
    "Delay",
    "Event",
    "Faults",
    "HorizonError",
    "Latencies",
    "Process",
    "SimulatedLoop",
    "SimulatedStorage",
    "SimulationError",
    "Trace",
    "World",
]


def __dir__() -> list[str]:
    return sorted(__all__)
