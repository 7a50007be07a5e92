"""Client of Admit, the front door for events. The specification is clients/SPEC.md in the repository."""

from ._client import Client, Emission, Full
from ._consumer import Claimed, LeaseLost, Refused
from ._outbox import Damaged, Locked
from ._wire import Accepted, Outcome, Pending, Rejected

__version__ = "0.1.0"

__all__ = [
    "Accepted",
    "Claimed",
    "Client",
    "Damaged",
    "Emission",
    "Full",
    "LeaseLost",
    "Locked",
    "Outcome",
    "Pending",
    "Refused",
    "Rejected",
]
