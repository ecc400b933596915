"""The real vllm-router's own parser reads the command line that is rendered for it."""

from __future__ import annotations

from typing import Any

from vllm_router.launch_router import parse_router_args  # type: ignore[import-untyped]

from equipoise.render import render


def test_vllm_router_understands_its_arguments(service: Any, pools: Any, variant: Any, uid: str) -> None:
    children = render(service("router: {args: [--request-timeout-secs=60, --decode-policy, random]}"), uid, {}, pools())
    router = next(child for child in children if child["kind"] == "Deployment")
    (container,) = router["spec"]["template"]["spec"]["containers"]
    parsed = parse_router_args(container["args"])
    assert parsed.vllm_pd_disaggregation
    assert parsed.service_discovery
    assert parsed.service_discovery_namespace == "prod"
    assert parsed.service_discovery_port == 8000
    assert parsed.prefill_selector == {"equipoise.dev/service": "chat", "llm-d.ai/role": "prefill"}
    assert parsed.decode_selector == {"equipoise.dev/service": "chat", "llm-d.ai/role": "decode"}
    assert (parsed.host, parsed.port) == ("0.0.0.0", 8000)
    assert (parsed.prometheus_host, parsed.prometheus_port) == ("0.0.0.0", 29000)
    assert parsed.health_check_interval_secs == 5
    assert parsed.kv_connector == "nixl"
    assert (parsed.prefill_policy, parsed.decode_policy, parsed.balance_abs_threshold) == ("cache_aware", "random", 4)
    assert parsed.request_timeout_secs == 60
