"""spec.engine and spec.router: what runs in the pods, and what stands before them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from equipoise.api.base import ApiModel, Argument, FreeObject, rule, rules

Arguments = Annotated[tuple[Argument, ...], Field(max_length=128, json_schema_extra={"x-kubernetes-list-type": "atomic"})]
Image = Annotated[str, Field(min_length=1, max_length=512)]


class EngineType(StrEnum):
    """Serving engines."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TRTLLM = "trtllm"
    CUSTOM = "custom"


class RouterType(StrEnum):
    """What sends requests to the two phases."""

    VLLM_ROUTER = "vllm-router"
    SGLANG_ROUTER = "sglang-router"
    INFERENCE_POOL = "inference-pool"
    NONE = "none"


class EnvVar(ApiModel):
    """An environment variable of the engine's container, as in a pod."""

    model_config = rules(
        rule("!(has(self.value) && has(self.valueFrom))", "set value or valueFrom, not both", field_path=".valueFrom"),
    )

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=32768)] | None = None
    """Its value."""
    value_from: FreeObject | None = None
    """Where the value comes from: secretKeyRef, configMapKeyRef or fieldRef, as in a pod."""


class EngineSpec(ApiModel):
    """The serving engine, the same for both phases unless `spec.phases` says more."""

    model_config = rules(
        rule("self.type != 'custom' || has(self.image)", "engine.type custom needs engine.image: name the image to run",
             field_path=".image"),
        rule("self.type == oldSelf.type",
             "engine.type cannot be changed: engines of two types cannot hand KV over to each other; create a second "
             "InferenceService and move the traffic", field_path=".type"),
    )  # fmt: skip

    type: EngineType = EngineType.VLLM
    """Engine: vllm, sglang, trtllm, or custom (speaks the OpenAI API and vLLM's metrics; `image` is then required)."""
    image: Image | None = None
    """Container image. When left out: the engine's official image at `version`."""
    version: Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+){0,2}([.+-][A-Za-z0-9.]+)?$", max_length=32)] | None = None
    """Version of the engine, such as `0.32.0`: the tag of the official image, and what decides which flags and metrics exist and
    whether a replica can change phase. When left out: the version this release of Equipoise was tested with. Say it beside an
    `image` of your own."""
    args: Arguments = ()
    """Further command-line arguments of the engine in both phases, put after Equipoise's own, so that they win."""
    env: Annotated[
        tuple[EnvVar, ...],
        Field(max_length=128, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
    ] = ()
    """Environment variables of the engine's container in both phases."""
    pod_template: FreeObject | None = None
    """A partial PodTemplateSpec that is laid over the rendered one (lists of named things merge by name; the engine's container
    is `engine`). Selector labels and GPU counts stay Equipoise's."""


class EndpointPicker(ApiModel):
    """The Service of an endpoint picker that the InferencePool asks."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the picker's Service, in the same namespace."""
    port: Annotated[int, Field(ge=1, le=65535)] = 9002
    """Its gRPC port (a port number)."""


class RouterSpec(ApiModel):
    """What receives the requests."""

    model_config = rules(
        rule("!has(self.type) || self.type != 'inference-pool' || has(self.endpointPicker)",
             "router.type inference-pool needs router.endpointPicker.name: the Service of the endpoint picker to ask",
             field_path=".endpointPicker"),
        rule("!has(self.endpointPicker) || (has(self.type) && self.type == 'inference-pool')",
             "router.endpointPicker is read only with router.type inference-pool: set that type or take endpointPicker out",
             field_path=".endpointPicker"),
        rule("!has(self.type) || !(self.type in ['inference-pool', 'none']) || "
             "!(has(self.image) || has(self.args) || has(self.podTemplate))",
             "with router.type inference-pool or none Equipoise runs no router: take router.image, args and podTemplate out",
             field_path=".type"),
    )  # fmt: skip

    type: RouterType | None = None
    """vllm-router, sglang-router, inference-pool (Gateway API Inference Extension; you bring the endpoint picker), or none (you
    bring the router). When left out: the router of the engine, for vllm and sglang; else none."""
    replicas: Annotated[int, Field(ge=1, le=100)] = 2
    """Router pods, a count; they hold no GPU."""
    image: Image | None = None
    """Router image. When left out: the one this release of Equipoise was tested with."""
    args: Arguments = ()
    """Further command-line arguments of the router, put after Equipoise's own."""
    pod_template: FreeObject | None = None
    """A partial PodTemplateSpec that is laid over the rendered one; the router's container is `router`."""
    endpoint_picker: EndpointPicker | None = None
    """The endpoint picker, for inference-pool only."""

    def type_for(self, engine: EngineType) -> RouterType:
        """The type as given, or the one that goes with the engine."""
        if self.type is not None:
            return self.type
        return {EngineType.VLLM: RouterType.VLLM_ROUTER, EngineType.SGLANG: RouterType.SGLANG_ROUTER}.get(engine, RouterType.NONE)
