"""What clusters side by side on one machine must not share: ports and pod addresses.

Every cluster takes one of 64 slots, by a lock that the operating system gives back when the process ends, however it ends.
Slot n owns the pod range 127.(64+n).0.0/16 and 128 ports from 20000 + 128n on. These lie below the range that Linux
gives to outgoing connections (32768 upwards), so a component that is stopped finds its port free again.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from local_cluster.errors import LocalClusterError

SLOT_COUNT = 64
PORTS_PER_SLOT = 128
FIRST_PORT = 20000
FIRST_SECOND_OCTET = 64


@dataclass
class Slot:
    """One cluster's share of the machine.

    Attributes:
        number: 0 to 63.
        ports: the slot's ports, in order of use.
        pod_cidr: the loopback range for pod addresses.
    """

    number: int
    lock_file_descriptor: int
    ports: list[int] = field(default_factory=list)
    pod_cidr: str = ""

    def keep_port(self) -> int:
        """Return a port for a component, which has it as long as the cluster is there, stopped or not."""
        return self.ports.pop(0)

    def lend_port(self) -> int:
        """Return a port that nobody listens on, the one that was lent the longest time ago first.

        Raises:
            LocalClusterError: somebody listens on each of them.
        """
        for _ in range(len(self.ports)):
            port = self.ports.pop(0)
            self.ports.append(port)
            if _is_free(port):
                return port
        raise LocalClusterError(f"All {PORTS_PER_SLOT} ports of this cluster are in use; start a second cluster.")

    def release(self) -> None:
        """Give the slot back."""
        if self.lock_file_descriptor >= 0:
            os.close(self.lock_file_descriptor)
            self.lock_file_descriptor = -1


def ports_of(number: int) -> list[int]:
    """Return the ports that belong to a slot."""
    start = FIRST_PORT + number * PORTS_PER_SLOT
    return list(range(start, start + PORTS_PER_SLOT))


def pod_cidr_of(number: int) -> str:
    """Return the loopback range that belongs to a slot."""
    return f"127.{FIRST_SECOND_OCTET + number}.0.0/16"


def acquire_slot(lock_folder: Path | None = None) -> Slot:
    """Take a free slot whose ports nobody listens on.

    Raises:
        LocalClusterError: no slot is free.
    """
    folder = lock_folder or Path(tempfile.gettempdir()) / f"equipoise-local-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    # A random order keeps clusters that start at the same moment from trying the same slots one after the other.
    for number in random.sample(range(SLOT_COUNT), SLOT_COUNT):
        descriptor = os.open(folder / f"slot-{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        if all(_is_free(port) for port in ports_of(number)):
            return Slot(number, descriptor, ports_of(number), pod_cidr_of(number))
        os.close(descriptor)
    raise LocalClusterError(
        f"All {SLOT_COUNT} places for local clusters on this machine are taken; stop one (the lock files are in {folder})."
    )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
