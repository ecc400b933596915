"""What a caller may tell the renderer besides the resource, and what it gets back."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from equipoise.api.identity import Variant
from equipoise.perf.types import ModelFacts

POD_MONITORS: Final = "podmonitors.monitoring.coreos.com"
INFERENCE_POOLS: Final = "inferencepools.inference.networking.k8s.io"

REPOSITORIES: Final[Mapping[str, str]] = {
    "vllm": "vllm/vllm-openai",
    "sglang": "lmsysorg/sglang",
    "vllm-router": "vllm/vllm-router",
    "sglang-router": "lmsysorg/sglang-router",
    "routing-sidecar": "ghcr.io/llm-d/llm-d-router-disagg-sidecar",
}
"""Image repositories by part, without tags."""
VERSIONS: Final[Mapping[str, str]] = {
    "vllm": "0.32.0",
    "sglang": "0.5.23",
    "vllm-router": "0.1.17",
    "sglang-router": "0.3.2",
    "routing-sidecar": "0.10.0",
}
"""The versions that flags, metrics and behaviour were verified with."""


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """What comes from the cluster and from decisions, not from the InferenceService.

    `available_kinds` are names of CustomResourceDefinitions, such as `podmonitors.monitoring.coreos.com`: manifests of kinds that
    are absent are left out. `live` are the service's Deployments as they are now, by name: those of the same revision keep their
    pod template (see `freeze`). `queue_bounds` are prompt tokens a replica may hold back. `saved` are the fields of revisions
    other than the spec's, for rendering them (see `saved`). `repositories` replaces image repositories by part.
    """

    available_kinds: AbstractSet[str] = frozenset()
    live: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    model: ModelFacts | None = None
    queue_bounds: Mapping[Variant, int] = field(default_factory=dict)
    saved: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    repositories: Mapping[str, str] = field(default_factory=dict)

    def image(self, part: str, version: str | None = None) -> str:
        """The image of a part: its repository, and `version` or the verified one as the tag."""
        return f"{self.repositories.get(part, REPOSITORIES[part])}:v{version or VERSIONS[part]}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something cannot be rendered: the field, what was found, what to do. `variant` None: the whole service is refused."""

    field: str
    message: str
    variant: Variant | None = None

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class Refusal(Exception):
    """Raised while rendering; carries the problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Rendering:
    """All children wanted, and what could not be rendered.

    Deployments named in `kept` must be left as they are, neither applied nor deleted: they are wanted, but a problem stands in
    the way of rendering them. With `refused` the children are empty and nothing at all may be applied or deleted.
    """

    children: tuple[dict[str, Any], ...]
    revision: str
    problems: tuple[Problem, ...] = ()
    kept: frozenset[str] = frozenset()
    refused: bool = False
