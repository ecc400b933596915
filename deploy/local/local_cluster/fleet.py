"""Adding, removing and losing emulated nodes."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable, Sequence
from typing import Any

from local_cluster.access import Tools
from local_cluster.nodes import EMULATED, KUBELET_LABEL, SILENT
from local_cluster.waiting import wait_until

HOSTNAME_LABEL = "kubernetes.io/hostname"
NAMES_PER_COMMAND = 200


def create_nodes(tools: Tools, manifests: Sequence[dict[str, Any]], timeout_seconds: float) -> list[str]:
    """Create nodes, wait until each is Ready, and return their names."""
    names = [manifest["metadata"]["name"] for manifest in manifests]
    tools.feed(manifests, "create")
    wait_for_nodes(tools, names, ready=True, timeout_seconds=timeout_seconds)
    return names


def wait_for_nodes(tools: Tools, names: Iterable[str], *, ready: bool, timeout_seconds: float) -> None:
    """Wait until the nodes are Ready, or until they are not."""
    wanted = set(names)

    def settled() -> bool:
        missing = (wanted - ready_nodes(tools)) if ready else (wanted & ready_nodes(tools))
        if missing:
            raise LookupError(f"{len(missing)} of {len(wanted)} nodes, such as {min(missing)}")
        return True

    state = "Ready" if ready else "not Ready"
    wait_until(settled, timeout_seconds, f"{len(wanted)} nodes to be {state}", poll_seconds=0.2)


def ready_nodes(tools: Tools) -> set[str]:
    """Return the names of the nodes that are Ready and that the scheduler may use."""
    condition = '{.status.conditions[?(@.type=="Ready")].status}'
    taints = "{.spec.taints[*].key}"
    template = '{range .items[*]}{.metadata.name}{"|"}' + condition + '{"|"}' + taints + '{"\\n"}{end}'
    rows = (line.split("|") for line in tools.kubectl("get", "nodes", "-o", f"jsonpath={template}").splitlines())
    # A node is registered with a taint that the control plane takes away a moment after the node is Ready.
    return {name for name, status, keys in rows if status == "True" and "node.kubernetes.io/" not in keys}


def remove_nodes(tools: Tools, names: Sequence[str]) -> None:
    """Delete nodes and then, by force, the pods that were on them, as the control plane does about a minute later."""
    gone = set(names)
    for part in _parts(names):
        # One request for all: kubectl on its own deletes five a second.
        selector = urllib.parse.quote(f"{HOSTNAME_LABEL} in ({','.join(part)})")
        tools.kubectl("delete", "--raw", f"/api/v1/nodes?labelSelector={selector}")
    for namespace, pods in pods_on(tools, gone).items():
        for part in _parts(pods):
            tools.kubectl("delete", "pod", "-n", namespace, "--ignore-not-found", "--force", "--grace-period=0", *part)


def lose_node(tools: Tools, name: str, timeout_seconds: float) -> None:
    """Let a node and its pods fall silent, and wait until the control plane has noticed.

    KWOK no longer sees the node, so it neither renews the node's lease nor touches its pods. All the rest is the control
    plane's own doing: the node turns Unknown, is tainted, and its pods are marked not Ready.
    """
    tools.kubectl("label", "node", name, "--overwrite", f"{KUBELET_LABEL}={SILENT}")
    wait_for_nodes(tools, [name], ready=False, timeout_seconds=timeout_seconds)


def recover_node(tools: Tools, name: str, timeout_seconds: float) -> None:
    """Let a lost node report again, and wait until it is Ready; its kubelet then says once more which pods are ready."""
    tools.kubectl("label", "node", name, "--overwrite", f"{KUBELET_LABEL}={EMULATED}")
    wait_for_nodes(tools, [name], ready=True, timeout_seconds=timeout_seconds)
    # The control plane marked the pods not Ready. This reason is the one that the stage for readiness gates answers to.
    patch = json.dumps({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}]}})
    condition = '{.status.conditions[?(@.type=="Ready")].status}'
    for namespace, pods in pods_on(tools, {name}).items():
        for pod in pods:
            state = tools.kubectl("get", "pod", "-n", namespace, pod, "--ignore-not-found", "-o", f"jsonpath={condition}")
            if state == "False":
                tools.kubectl("patch", "pod", "-n", namespace, pod, "--subresource=status", "--type=strategic", "-p", patch)


def release_leases(tools: Tools, *, all_nodes_are_ours: bool) -> None:
    """Delete the nodes' heartbeat leases: a KWOK that ended still holds them, and the next one would wait for their end."""
    if all_nodes_are_ours:
        tools.kubectl("delete", "--raw", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
        return
    template = '{range .items[*]}{.metadata.name}{"\\n"}{end}'
    names = tools.kubectl("get", "nodes", "-l", f"{KUBELET_LABEL}={EMULATED}", "-o", f"jsonpath={template}").split()
    for part in _parts(names):
        tools.kubectl("delete", "lease", "-n", "kube-node-lease", "--ignore-not-found", *part)


def pods_on(tools: Tools, nodes: set[str]) -> dict[str, list[str]]:
    """Return the names of the pods on some nodes, by namespace."""
    template = '{range .items[*]}{.spec.nodeName}{"|"}{.metadata.namespace}{"|"}{.metadata.name}{"\\n"}{end}'
    found: dict[str, list[str]] = {}
    for line in tools.kubectl("get", "pods", "--all-namespaces", "-o", f"jsonpath={template}").splitlines():
        node, namespace, name = line.split("|")
        if node in nodes:
            found.setdefault(namespace, []).append(name)
    return found


def _parts(names: Sequence[str]) -> list[Sequence[str]]:
    """Return the names in groups that fit on a command line."""
    return [names[start : start + NAMES_PER_COMMAND] for start in range(0, len(names), NAMES_PER_COMMAND)]
