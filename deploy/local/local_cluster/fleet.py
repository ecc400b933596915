"""Adding, removing and losing emulated nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from local_cluster.access import Tools
from local_cluster.nodes import LOST_ANNOTATION, NODE_ANNOTATION
from local_cluster.waiting import wait_until

NAMES_PER_COMMAND = 200


def create_nodes(tools: Tools, manifests: Sequence[dict[str, Any]], timeout_seconds: float) -> list[str]:
    """Create nodes, wait until each is Ready, and return their names."""
    names = [manifest["metadata"]["name"] for manifest in manifests]
    tools.kubectl("create", "-f", "-", text_input=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)}))
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
        tools.kubectl("delete", "node", "--ignore-not-found", "--wait=false", *part)
    for namespace, pods in pods_on(tools, gone).items():
        for part in _parts(pods):
            tools.kubectl("delete", "pod", "-n", namespace, "--ignore-not-found", "--force", "--grace-period=0", *part)


def lose_node(tools: Tools, name: str, timeout_seconds: float) -> None:
    """Let a node and its pods fall silent, and wait until the node is not Ready."""
    _mark_lost(tools, name, pods_on(tools, {name}), f"{LOST_ANNOTATION}=true")
    wait_for_nodes(tools, [name], ready=False, timeout_seconds=timeout_seconds)


def recover_node(tools: Tools, name: str, timeout_seconds: float) -> None:
    """Let a lost node report again, and wait until it is Ready; its kubelet then says once more which pods are ready."""
    pods = pods_on(tools, {name})
    _mark_lost(tools, name, pods, f"{LOST_ANNOTATION}-")
    wait_for_nodes(tools, [name], ready=True, timeout_seconds=timeout_seconds)
    # The control plane marked the pods not Ready. This reason is the one that our gates' stage answers to.
    patch = json.dumps({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}]}})
    for namespace, names in pods.items():
        for pod in names:
            condition = '{.status.conditions[?(@.type=="Ready")].status}'
            state = tools.kubectl("get", "pod", "-n", namespace, pod, "--ignore-not-found", "-o", f"jsonpath={condition}")
            if state == "False":
                tools.kubectl("patch", "pod", "-n", namespace, pod, "--subresource=status", "--type=strategic", "-p", patch)


def emulated_nodes(tools: Tools) -> list[str]:
    """Return the names of the nodes that KWOK keeps."""
    items = tools.get_json("nodes")["items"]
    return [item["metadata"]["name"] for item in items if item["metadata"].get("annotations", {}).get(NODE_ANNOTATION) == "fake"]


def release_leases(tools: Tools, names: Sequence[str]) -> None:
    """Delete the nodes' heartbeat leases: a KWOK that ended still holds them, and the next one would wait for their end."""
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


def _mark_lost(tools: Tools, node: str, pods: dict[str, list[str]], annotation: str) -> None:
    # Pods first: their kubelet must not report anything once the node is gone.
    for namespace, names in pods.items():
        for part in _parts(names):
            tools.kubectl("annotate", "pod", "-n", namespace, "--overwrite", *part, annotation)
    tools.kubectl("annotate", "node", node, "--overwrite", annotation)


def _parts(names: Sequence[str]) -> list[Sequence[str]]:
    """Return the names in groups that fit on a command line."""
    return [names[start : start + NAMES_PER_COMMAND] for start in range(0, len(names), NAMES_PER_COMMAND)]
