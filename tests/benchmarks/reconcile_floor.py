"""The two floors of the reconcile benchmark: what Kubernetes alone takes for the same pods, and for small ones."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from tests.benchmarks.control_plane import SETTLE_SECONDS, Client, Ready, paced, percentiles, settled

SERVICES = 100
NAMESPACE = "bench"
ARGUMENT = "--a=0"
LABEL = "app.kubernetes.io/managed-by"
API = "/apis/equipoise.dev/v1alpha1/namespaces/" + NAMESPACE + "/inferenceservices"
DEPLOYMENTS = "/apis/apps/v1/namespaces/" + NAMESPACE + "/deployments"


def service(number: int, argument: str) -> dict[str, Any]:
    return {
        "apiVersion": "equipoise.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": f"service-{number:03d}", "namespace": NAMESPACE},
        "spec": {
            "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"},
            "targets": {"ttft": "1s", "tpot": "50ms"},
            "engine": {"args": [argument]},
            "router": {"type": "none"},
            "phases": {"prefill": {"min": 1}, "decode": {"min": 2}},
        },
    }


Pair = Callable[[int, str], list[dict[str, Any]]]
"""The two Deployments of one floor number, with one engine argument."""


def small_pair(number: int, argument: str) -> list[dict[str, Any]]:
    """The smallest floor: two Deployments with as many pods and next to nothing in their templates."""
    result = []
    for phase, replicas in (("prefill", 1), ("decode", 2)):
        name = f"bare-{number:03d}-{phase}"
        container = {
            "name": "engine", "image": "vllm/vllm-openai", "args": [argument],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }  # fmt: skip
        result.append({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [container], "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
                },
            },
        })  # fmt: skip
    return result


async def rendered_pair(client: Client) -> Pair:
    """The floor: the Deployments that the operator makes of one service, copied under names of their own, owned by nobody."""
    await client.send("POST", API, service(0, ARGUMENT))
    made: list[dict[str, Any]] = []
    deadline = time.monotonic() + SETTLE_SECONDS
    while len(made) < 2 and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        made = (await client.send("GET", DEPLOYMENTS))["items"]
    await client.send("DELETE", f"{API}/service-000")

    def pair(number: int, argument: str) -> list[dict[str, Any]]:
        result = []
        for source in made:
            text = json.dumps({"spec": source["spec"]}).replace(ARGUMENT, argument).replace('"equipoise"', '"floor"')
            copied = json.loads(text)
            name = f"bare-{number:03d}-{source['metadata']['labels']['app.kubernetes.io/component']}"
            copied["spec"]["selector"] = {"matchLabels": {"app": name}}
            copied["spec"]["template"]["metadata"]["labels"]["app"] = name
            metadata = {"name": name, "namespace": NAMESPACE, "labels": {**source["metadata"]["labels"], LABEL: "floor"}}
            metadata["annotations"] = {
                k: v for k, v in source["metadata"]["annotations"].items() if k.startswith("equipoise.dev/")
            }
            result.append({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, **copied})
        return result

    return pair


async def run_floor(client: Client, pair_of: Pair) -> dict[str, Any]:
    ready = Ready()
    watch = asyncio.create_task(client.watch(DEPLOYMENTS, ready.deployment))
    await asyncio.sleep(0.5)
    result = {}
    for step, generation, argument in (("create", 1, "--a=1"), ("update", 2, "--b=1")):

        async def submit(number: int, generation: int = generation, argument: str = argument) -> None:
            for obj in pair_of(number, argument):
                if generation == 1:
                    await client.send("POST", DEPLOYMENTS, obj)
                else:
                    path = f"{DEPLOYMENTS}/{obj['metadata']['name']}"
                    patch = {"spec": {"template": obj["spec"]["template"]}}
                    await client.send("PATCH", path, patch, "application/merge-patch+json")

        begun = await paced(SERVICES, submit)
        names = [[obj["metadata"]["name"] for obj in pair_of(number, argument)] for number in range(SERVICES)]

        def done(generation: int = generation, names: list[list[str]] = names) -> list[int]:
            return [i for i, pair in enumerate(names) if all((name, generation) in ready.at for name in pair)]

        await settled(SERVICES, lambda: len(done()))
        result[step] = percentiles([max(ready.at[name, generation] for name in names[i]) - begun[i] for i in done()])
    await client.send("DELETE", DEPLOYMENTS, {"propagationPolicy": "Background"})
    watch.cancel()
    return result
