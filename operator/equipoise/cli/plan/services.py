"""The InferenceServices to plan for, from files, and the sizes of their models."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import ValidationError

from equipoise.api.base import problems
from equipoise.api.identity import GROUP, Phase, ServiceKey
from equipoise.api.model_source import Architecture
from equipoise.api.service import InferenceService
from equipoise.api.values import format_quantity
from equipoise.checkpoint.facts import CURE, checkpoint_facts
from equipoise.checkpoint.places import Sources
from equipoise.cli.plan.files import PlanError, read_documents
from equipoise.decide.policy import ServicePolicy, service_policy
from equipoise.perf.models import model_facts
from equipoise.perf.types import ModelFacts, Refusal


@dataclass(frozen=True, slots=True)
class Service:
    """One service to plan for. `notes` are things to know before reading its figures."""

    resource: InferenceService
    policy: ServicePolicy
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> ServiceKey:
        """Namespace and name."""
        return self.resource.key


def read_services(paths: Sequence[Path]) -> list[InferenceService]:
    """All InferenceServices of the files, in the order of their keys; other objects in them are left out.

    PlanError for what cannot be read, a service that stands twice, or no service at all.
    """
    found: dict[ServiceKey, InferenceService] = {}
    for path in paths:
        for document in read_documents(path, "service"):
            for item in _items(document, path):
                if _kind(item) != "InferenceService":
                    continue
                service = _parse(item, path)
                if service.key in found:
                    raise PlanError(f"service {path}: InferenceService {service.key} stands there twice; take one out")
                found[service.key] = service
    if not found:
        names = ", ".join(str(path) for path in paths)
        raise PlanError(f"service {names}: no InferenceService (apiVersion {GROUP}/v1alpha1) in it; deploy/samples shows some")
    return [found[key] for key in sorted(found)]


def sized_services(
    resources: Sequence[InferenceService], configs: Mapping[str, str], mounts: Mapping[str, Path]
) -> list[Service]:
    """The services with the facts of their models: from the catalogue, else from the model's config.json.

    `configs` names a config.json by service (`NAME` or `NAMESPACE/NAME`; `*` stands for all); `mounts` where claims are mounted
    here. PlanError when a model's size cannot be found out.
    """
    return asyncio.run(_sized(resources, configs, mounts))


async def _sized(resources: Sequence[InferenceService], configs: Mapping[str, str], mounts: Mapping[str, Path]) -> list[Service]:
    names = {name for resource in resources for name in (resource.metadata.name, str(resource.key))} | {"*"}
    for name in configs:
        if name not in names:
            known = ", ".join(str(resource.key) for resource in resources)
            raise PlanError(f"--model-config {name}=…: there is no service {name} among {known}")
    sources = Sources.from_environment(os.environ, local_paths=True, mounts=mounts)
    async with aiohttp.ClientSession(trust_env=True) as session:
        return list(await asyncio.gather(*(_one(resource, configs, sources, session) for resource in resources)))


async def _one(
    resource: InferenceService, configs: Mapping[str, str], sources: Sources, session: aiohttp.ClientSession
) -> Service:
    model = resource.spec.model
    where = next((configs[name] for name in (str(resource.key), resource.metadata.name, "*") if name in configs), None)
    if where is not None:
        facts = await checkpoint_facts(where, model.architecture, sources, session)
        if isinstance(facts, Refusal):
            raise PlanError(f"service {resource.key}: --model-config: {facts.message}")
    else:
        known = model_facts(model.uri, model.architecture)
        if not isinstance(known, Refusal):
            return with_facts(resource, None)
        facts = await checkpoint_facts(model.uri, model.architecture, sources, session)
        if isinstance(facts, Refusal):
            why = facts.message.removesuffix(f"; {CURE}")
            raise PlanError(
                f"service {resource.key}: {known.message}. Its config.json would do, but {why}. "
                "A copy of the file can be given with --model-config"
            )
    return with_facts(resource, facts)


def with_facts(resource: InferenceService, facts: ModelFacts | None) -> Service:
    """The service with these facts (None: those of the catalogue). PlanError when its spec cannot be sized."""
    policy = service_policy(resource if facts is None else _stating(resource, facts))
    if not isinstance(policy, ServicePolicy):
        raise PlanError(f"service {resource.key}: {'; '.join(reason.message for reason in policy)}")
    if facts is not None:
        policy = replace(policy, model=replace(facts, precisions=policy.model.precisions))
    notes = [reason.message for reason in policy.notes]
    if facts is not None:
        notes.append(f"figures of {facts.name} are from its {facts.source}: {facts.parameters / 1e9:.2f} billion parameters")
    for phase in Phase:
        scaling = policy.phases[phase].scaling.value
        if scaling != "Auto":
            notes.append(f"{phase.value} is planned with the {policy.phases[phase].minimum} replicas of scaling {scaling}")
    return Service(resource, policy, tuple(notes))


def _stating(resource: InferenceService, facts: ModelFacts) -> InferenceService:
    """The resource with the facts written where a user would state them."""
    stated = Architecture(
        parameters=format_quantity(facts.parameters, 0),
        active_parameters=format_quantity(facts.active_parameters, 0),
        layers=facts.layers,
        hidden_size=facts.hidden_size,
        attention_heads=facts.attention_heads,
        kv_heads=facts.kv_heads,
        head_dim=facts.head_dim,
        max_context=facts.max_context_tokens,
    )
    model = resource.spec.model.model_copy(update={"architecture": stated})
    return resource.model_copy(update={"spec": resource.spec.model_copy(update={"model": model})})


def _parse(item: Mapping[str, Any], path: Path) -> InferenceService:
    metadata = item.get("metadata")
    name = metadata.get("name", "?") if isinstance(metadata, Mapping) else "?"
    where = f"service {path}: InferenceService {name}"
    try:
        service = InferenceService.parse_strict(item)
    except ValidationError as error:
        raise PlanError(f"{where}: {problems(error)}") from None
    except (AttributeError, TypeError):
        raise PlanError(f"{where}: metadata is no mapping; write metadata: {{name: …, namespace: …}}") from None
    if not service.metadata.name:
        raise PlanError(f"{where}: metadata.name is missing; give the service a name")
    if service.metadata.namespace:
        return service
    return service.model_copy(update={"metadata": service.metadata.model_copy(update={"namespace": "default"})})


def _items(document: Any, path: Path) -> list[Any]:
    if not _kind(document).endswith("List"):
        return [document]
    items = document.get("items")
    if items is not None and not isinstance(items, list):
        raise PlanError(f"service {path}: items of the {_kind(document)}: found {items!r}; write a list of objects")
    return items or []


def _kind(document: Any) -> str:
    return str(document.get("kind", "")) if isinstance(document, Mapping) else ""
