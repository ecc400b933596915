"""All children of an InferenceService, from its spec and the allocation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from equipoise.api import labels
from equipoise.api.engine import RouterType
from equipoise.api.identity import Phase, Variant
from equipoise.api.phases import Scaling
from equipoise.api.policy import Switch
from equipoise.api.service import InferenceService
from equipoise.fleet.types import Pool
from equipoise.render.context import Context
from equipoise.render.deployments import deployment
from equipoise.render.freeze import TEMPLATE
from equipoise.render.hashing import digest
from equipoise.render.monitoring import engine_monitor
from equipoise.render.names import revision_deployment_name
from equipoise.render.options import POD_MONITORS, Problem, Refusal, Rendering, RenderOptions
from equipoise.render.revision import revision
from equipoise.render.routers import router_children
from equipoise.render.saved import at_fields
from equipoise.render.services import disruption_budget, headless_service, phase_scale


class RenderRefused(Exception):
    """The spec cannot be rendered; `problems` say which fields, what was found and what to do."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


def render(
    resource: InferenceService,
    uid: str,
    allocation: Mapping[Variant, int | None],
    pools: Mapping[str, Pool],
    options: RenderOptions | None = None,
) -> list[dict[str, Any]]:
    """All children wanted, each the complete intent for server-side apply; `compose` says besides what had to be left out.

    Raises:
        RenderRefused: the spec asks for what cannot be rendered; nothing may be applied or deleted.
    """
    rendering = compose(resource, uid, allocation, pools, options)
    if rendering.refused:
        raise RenderRefused(rendering.problems)
    return list(rendering.children)


def compose(
    resource: InferenceService,
    uid: str,
    allocation: Mapping[Variant, int | None],
    pools: Mapping[str, Pool],
    options: RenderOptions | None = None,
    former: Mapping[str, Mapping[Variant, int]] | None = None,
) -> Rendering:
    """The children with the problems beside them. Deterministic: equal input gives equal output, in a fixed order.

    Args:
        resource: the InferenceService.
        uid: its uid, for the owner references; ValueError when empty: children without an owner would outlive it.
        allocation: replicas per variant. 0 renders a Deployment without pods (what a flip may lead to); None leaves the count to
            whoever set it, which on creation means the API server's default of 1. All of the spec's own revision.
        pools: the fleet's pools by name.
        options: what comes from the cluster and from decisions.
        former: replicas of other revisions, by revision and variant.
    """
    if not uid:
        raise ValueError(f"InferenceService {resource.key}: no metadata.uid; read the object from the API server first")
    context = Context(resource, uid, pools, options or RenderOptions(), revision(resource))
    children: list[dict[str, Any]] = []
    problems: list[Problem] = []
    kept: set[str] = set()
    totals: dict[Variant, int | None] = dict(allocation)
    for variant, count in ((variant, count) for table in (former or {}).values() for variant, count in table.items()):
        totals[variant] = (totals.get(variant) or 0) + count
    for one, table in [(context, allocation), *((_at(context, name), table) for name, table in sorted((former or {}).items()))]:
        for variant in sorted(table):
            if variant.service != resource.key:
                raise ValueError(f"the allocation of {resource.key} holds {variant}, a variant of another service")
            try:
                children.append(deployment(one, variant, table[variant]))
            except Refusal as refusal:
                problems.append(refusal.problem)
                kept.add(revision_deployment_name(variant, one.revision, context.options.live))
    for phase in Phase:
        children += _phase_children(context, phase, totals)
    if POD_MONITORS in context.options.available_kinds and resource.spec.metrics.pod_monitor is Switch.AUTO:
        children.append(engine_monitor(context))
    notes: list[Problem] = []
    try:
        routing, notes = router_children(context)
        children += routing
    except Refusal as refusal:
        problems.append(refusal.problem)
    refused = any(problem.variant is None for problem in problems)
    if refused:
        live = context.options.live
        children, kept = [], {revision_deployment_name(variant, context.revision, live) for variant in allocation} | set(live)
    return Rendering(
        children=tuple(seal(child) for child in children),
        revision=context.revision,
        problems=tuple(dict.fromkeys([*problems, *notes])),
        kept=frozenset(kept),
        refused=refused,
    )


def _at(context: Context, name: str) -> Context:
    """The context of another revision: with the fields that were saved of it, where they still give that revision."""
    saved = context.options.saved.get(name)
    if saved is not None:
        try:
            service = at_fields(context.service, saved)
        except ValueError:
            service = context.service
        if revision(service) == name:
            return replace(context, service=service, revision=name)
    return replace(context, revision=name, known=False)


def _phase_children(context: Context, phase: Phase, allocation: Mapping[Variant, int | None]) -> list[dict[str, Any]]:
    """What a phase has besides its Deployments, only where it does something: every child is a write and an object to keep.

    A budget of one unavailable replica protects nothing where there is one replica; PhaseScale is for counts that others own;
    addresses by DNS are for those who bring their own router.
    """
    children = []
    if sum(count or 0 for variant, count in allocation.items() if variant.phase is phase) > 1:
        children.append(disruption_budget(context, phase))
    if context.spec.phases.of(phase).scaling is Scaling.EXTERNAL:
        children.append(phase_scale(context, phase))
    if context.spec.router_type is RouterType.NONE:
        children.append(headless_service(context, phase))
    return children


def seal(child: Mapping[str, Any]) -> dict[str, Any]:
    """The child with a digest of itself in an annotation, so that a comparison also sees what is not wanted any more.

    The replica count stays out: it changes through `/scale` too, and is compared as a field. So does the packed template: it
    repeats the template beside it, and another zlib may pack it differently.
    """
    metadata = child["metadata"]
    annotations = dict(metadata.get("annotations", {}))
    core = {**child, "metadata": {**metadata, "annotations": {k: v for k, v in annotations.items() if k != TEMPLATE}}}
    if "spec" in child:
        core["spec"] = {key: value for key, value in child["spec"].items() if key != "replicas"}
    return {**child, "metadata": {**metadata, "annotations": {**annotations, labels.SPEC_HASH: digest(core)}}}
