"""KV transfers over the nodes' links. Every link carries its transfers in the order they start, each at the full rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from equipoise.simulate.engine.types import NetworkSettings

if TYPE_CHECKING:
    from equipoise.simulate.engine.replica import Replica


class Network:
    """Links by node name. Several clusters may share one network, as several services share a node.

    A transfer occupies the sender's and the receiver's link for bytes / rate each; each link serves first come, first served, so
    neither idles while it has work, and the transfer ends when the later of the two has carried it.
    """

    def __init__(self, settings: NetworkSettings | None = None) -> None:
        self.settings = settings or NetworkSettings()
        self._free_at: dict[str, float] = {}
        self._met: set[tuple[str, str]] = set()

    def transfer_end(self, now: float, transfer_bytes: float, source: Replica, target: Replica) -> float:
        """When a transfer that starts now ends."""
        settings = self.settings
        start = now + settings.post_seconds
        if settings.handshake_seconds > 0.0:
            pair = (source.name, target.name)
            if pair not in self._met:
                self._met.add(pair)
                start += settings.handshake_seconds
        sender, receiver = source.spec, target.spec
        if transfer_bytes <= 0.0:
            return start
        if sender.node == receiver.node:
            return start + transfer_bytes / settings.same_node_bytes_per_second
        free_at = self._free_at
        sender_start = max(start, free_at.get(sender.node, 0.0))
        sender_end = sender_start + transfer_bytes / sender.link_bytes_per_second
        receiver_end = max(sender_start, free_at.get(receiver.node, 0.0)) + transfer_bytes / receiver.link_bytes_per_second
        free_at[sender.node] = sender_end
        free_at[receiver.node] = receiver_end
        return max(sender_end, receiver_end)
