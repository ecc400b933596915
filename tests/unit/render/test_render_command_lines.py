"""Flags: parsing, overlay, and what each engine is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from equipoise.perf.types import ModelFacts
from equipoise.render import RenderOptions, RenderRefused, render
from equipoise.render.flags import overlay, parse_flags, tokens


def engine(children: list[dict[str, Any]], name: str) -> dict[str, Any]:
    deployment = next(child for child in children if child["kind"] == "Deployment" and name in child["metadata"]["name"])
    template = deployment["spec"]["template"]
    return {
        **next(item for item in template["spec"]["containers"] if item["name"] == "engine"),
        "grace": template["spec"]["terminationGracePeriodSeconds"],
        "annotations": template["metadata"].get("annotations", {}),
        "volumes": template["spec"]["volumes"],
    }


@pytest.fixture
def rendered(service: Any, pools: Any, variant: Any, uid: str) -> Any:
    """Engine containers of prefill and decode for a spec on some pools."""

    def run(
        spec: str = "", *names: str, shape: str = "tp1-bf16", options: RenderOptions | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        names = names or ("h100-80gb",)
        allocation = {variant(phase, names[0], shape): 1 for phase in ("prefill", "decode")}
        children = render(service(spec), uid, allocation, pools(*names), options)
        return engine(children, "-prefill-"), engine(children, "-decode-")

    return run


def config_of(container: dict[str, Any]) -> dict[str, Any]:
    flag = next(item for item in container["args"] if item.startswith("--kv-transfer-config="))
    return dict(json.loads(flag.partition("=")[2]))


def test_flags_are_the_same_however_they_are_written() -> None:
    aliases = {"tp": "tensor-parallel-size"}
    spellings = ["--tensor-parallel-size=2", "--tensor_parallel_size 2", "-tp 2", "--no-tensor-parallel-size"]
    assert {parse_flags(text.split(), aliases)[0].key for text in spellings} == {"tensor-parallel-size"}
    assert [flag.value for flag in parse_flags(["--a=1", "--b", "2", "--c", "-1", "--d"])] == ["1", "2", "-1", ""]
    assert [flag.key for flag in parse_flags(["serve", "model", "--a"])] == ["", "", "a"]


def test_a_later_layer_replaces_flags_and_keeps_its_own_repeats() -> None:
    base = parse_flags(["serve", "--max-num-seqs=1", "--enable-x"])
    common = parse_flags(["--lora", "a", "--lora", "b", "--max_num_seqs", "2"])
    phase = parse_flags(["--no-enable-x"])
    assert tokens(overlay(base, common, phase)) == ["serve", "--lora", "a", "--lora", "b", "--max_num_seqs", "2", "--no-enable-x"]


def test_vllm_is_told_model_shape_and_role(rendered: Any) -> None:
    prefill, decode = rendered("model: {uri: 'hf://org/model@v2', architecture: {maxContext: 8192}}", shape="tp2-pp2-bf16")
    assert prefill["command"] == ["vllm"]
    assert prefill["args"][:2] == ["serve", "org/model"]
    expected = {"--revision=v2", "--tensor-parallel-size=2", "--pipeline-parallel-size=2", "--max-model-len=8192", "--port=8000"}
    assert expected <= set(prefill["args"])
    assert config_of(prefill) == {"kv_connector": "NixlConnector", "kv_role": "kv_producer", "kv_load_failure_policy": "fail"}
    assert config_of(decode)["kv_role"] == "kv_consumer"
    assert prefill["resources"]["limits"] == {"nvidia.com/gpu": "4"}


def test_the_two_phases_of_a_place_differ_in_labels_and_role_only(service: Any, pools: Any, variant: Any, uid: str) -> None:
    children = render(service(), uid, {variant("prefill"): 1, variant("decode"): 1}, pools("h100-80gb"))
    decode, prefill = (child["spec"]["template"] for child in children if "tp1" in child["metadata"]["name"])
    labels = {key for key, value in prefill["metadata"]["labels"].items() if decode["metadata"]["labels"][key] != value}
    assert labels == {"app.kubernetes.io/component", "llm-d.ai/role", "equipoise.dev/variant"}
    text = json.dumps(prefill["spec"]).replace("kv_producer", "kv_consumer")
    assert text == json.dumps(decode["spec"])


def test_pins_hold_what_devices_would_choose_apart(rendered: Any) -> None:
    pins = {"--kv-cache-dtype=bfloat16", "--attention-backend=FLASH_ATTN"}
    assert not pins & set(rendered("", "h100-80gb")[0]["args"])
    assert pins <= set(rendered("", "h100-80gb", "l4-24gb")[0]["args"])
    named = "phases: {prefill: {pools: [h100-80gb]}, decode: {pools: [h100-80gb]}}"
    assert not pins & set(rendered(named, "h100-80gb", "l4-24gb")[0]["args"]), "only pools that the service may use count"
    chosen = rendered("engine: {args: [--attention-backend, FLASHINFER]}", "h100-80gb", "l4-24gb")[0]["args"]
    assert "FLASHINFER" in chosen
    assert "--attention-backend=FLASH_ATTN" not in chosen


def test_weights_of_their_own_address_turn_the_handshake_check_off(rendered: Any) -> None:
    spec = """
        model:
          uri: hf://org/model
          weights: {precision: bf16, calibrated: [{precision: fp8, uri: "hf://org/model-fp8"}]}
    """
    prefill, decode = rendered(spec, shape="tp1-fp8")
    assert prefill["args"][1] == "org/model-fp8"
    assert "--quantization=fp8" not in prefill["args"]
    assert "--kv-cache-dtype=bfloat16" in decode["args"]
    assert config_of(decode)["kv_connector_extra_config"] == {"enforce_handshake_compat": False}


def test_the_users_kv_configuration_is_laid_over_ours(rendered: Any) -> None:
    spec = """
        engine:
          args: ['--kv-transfer-config', '{"kv_connector_extra_config":{"kv_lease_duration":120},"kv_role":"kv_consumer"}']
        phases: {decode: {engineArgs: ['--kv-transfer-config={"kv_buffer_size": 5}']}}
    """
    prefill, decode = rendered(spec)
    assert config_of(prefill)["kv_role"] == "kv_producer", "the role follows the phase"
    assert config_of(decode)["kv_buffer_size"] == 5
    assert config_of(decode)["kv_connector_extra_config"] == {"kv_lease_duration": 120}
    assert sum("kv-transfer-config" in item for item in decode["args"]) == 1
    assert prefill["lifecycle"]["preStop"]["sleep"]["seconds"] == 120, "KV is held as long as the lease says"
    both, _ = rendered("""engine: {args: ['--kv-transfer-config={"kv_role":"kv_both"}']}""")
    assert config_of(both)["kv_role"] == "kv_both"


def test_mooncake_brings_its_own_port_variable_and_router_flag(service: Any, pools: Any, variant: Any, uid: str) -> None:
    spec = """engine: {args: ['--kv-transfer-config={"kv_connector":"MooncakeConnector"}']}"""
    children = render(service(spec), uid, {variant("prefill"): 1}, pools("h100-80gb"))
    prefill = engine(children, "-prefill-")
    assert prefill["annotations"] == {"vllm.ai/bootstrap-port": "8998"}
    assert "VLLM_NIXL_SIDE_CHANNEL_HOST" not in {item["name"] for item in prefill["env"]}
    router = next(child for child in children if child["metadata"]["name"] == "chat-router" and child["kind"] == "Deployment")
    assert "--kv-connector=mooncake" in router["spec"]["template"]["spec"]["containers"][0]["args"]


def test_grace_holds_hook_and_drain(rendered: Any) -> None:
    prefill, decode = rendered("drain: {grace: 90s}")
    for container in (prefill, decode):
        assert "--shutdown-timeout=90" in container["args"]
        assert container["lifecycle"]["preStop"]["sleep"]["seconds"] == 30
        assert container["grace"] > 30 + 90


@pytest.mark.parametrize(
    ("version", "has_drain", "has_bound"), [("0.17.1", False, False), ("0.18", True, False), ("0.32.0", True, True)]
)
def test_flags_that_a_version_lacks_are_left_out(
    rendered: Any, variant: Any, version: str, has_drain: bool, has_bound: bool
) -> None:
    options = RenderOptions(queue_bounds={variant("prefill"): 9000})
    prefill, decode = rendered(f"engine: {{version: {version!r}}}", options=options)
    assert ("--shutdown-timeout=300" in prefill["args"]) is has_drain
    assert ("--max-num-queued-tokens=9000" in prefill["args"]) is has_bound
    assert "--max-num-queued-tokens=9000" not in decode["args"]
    assert prefill["image"] == f"vllm/vllm-openai:v{version}"


def test_start_up_patience_follows_the_weights_that_are_read(rendered: Any) -> None:
    def budget(container: dict[str, Any]) -> int:
        probe = container["startupProbe"]
        return int(probe["failureThreshold"] * probe["periodSeconds"])

    assert budget(rendered("model: {uri: 'hf://a/b', architecture: {parameters: 8G}}")[0]) == 600 + 160
    quantised = "model: {uri: 'hf://a/b', architecture: {parameters: 8G}, weights: {calibrated: [{precision: fp8}]}}"
    assert budget(rendered(quantised, shape="tp1-fp8")[0]) == 600 + 160, "bf16 is what is downloaded"
    assert budget(rendered("model: {uri: 'hf://a/b'}")[0]) == 1800
    known = ModelFacts("b", 70e9, 70e9, 80, 8192, 64, 8, 128, 131072)
    assert budget(rendered("model: {uri: 'hf://a/b'}", options=RenderOptions(model=known))[0]) == 600 + 1400


def test_model_addresses(rendered: Any) -> None:
    assert rendered("model: {uri: 'file:///opt/m'}")[0]["args"][1] == "/opt/m"
    claim = rendered("model: {uri: 'pvc://weights/llama/8b'}")[0]
    assert claim["args"][1] == "/models/llama/8b"
    assert {"name": "model", "persistentVolumeClaim": {"claimName": "weights", "readOnly": True}} in claim["volumes"]
    streamed = rendered("model: {uri: 's3://bucket/key'}")[0]
    assert streamed["args"][1] == "s3://bucket/key"
    assert "--load-format=runai_streamer" in streamed["args"]


def test_the_users_variables_win(rendered: Any) -> None:
    prefill, _ = rendered("engine: {env: [{name: HF_HOME, value: /weights}, {name: UCX_TLS, value: rc}]}")
    values = [(item["name"], item.get("value")) for item in prefill["env"]]
    assert values.count(("HF_HOME", "/weights")) == 1
    assert ("HF_HOME", "/cache/huggingface") not in values
    assert ("UCX_TLS", "rc") in values


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("", True),
        ("capacity: {flips: Disabled}", False),
        ("engine: {args: [--disaggregation-transfer-backend, nixl]}", False),
        ("engine: {version: 0.5.20}", False),
    ],
)
def test_sglang_switches_roles_where_it_can(rendered: Any, spec: str, expected: bool) -> None:
    text = spec.replace("engine: {", "engine: {type: sglang, ") if "engine" in spec else f"engine: {{type: sglang}}\n{spec}"
    prefill, decode = rendered(text)
    assert ("--enable-pd-role-switch" in prefill["args"]) is expected
    assert "--disaggregation-mode=prefill" in prefill["args"]
    assert "--disaggregation-mode=decode" in decode["args"]
    assert prefill["livenessProbe"]["timeoutSeconds"] == 25


def test_a_custom_engine_gets_its_variant_in_the_environment(rendered: Any) -> None:
    spec = """
        engine: {type: custom, image: "r.example.com/e:1", args: [run, --fast]}
        phases: {decode: {engineArgs: [--no-fast]}}
    """
    prefill, decode = rendered(spec, shape="tp4-bf16")
    values = {item["name"]: item.get("value") for item in decode["env"]}
    assert values["EQUIPOISE_PHASE"] == "decode"
    assert values["EQUIPOISE_TENSOR_PARALLEL"] == "4"
    assert (prefill["args"], decode["args"]) == (["run", "--fast"], ["run", "--no-fast"])


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ("engine: {args: [--port=9000]}", "spec.engine.args", "--port"),
        ("engine: {args: [-tp, '2']}", "spec.engine.args", "shape"),
        ("phases: {decode: {engineArgs: [--served_model_name, x]}}", "spec.phases.decode.engineArgs", "servedName"),
        ("engine: {args: [model-name]}", "spec.engine.args", "flag"),
        ("engine: {args: ['--kv-transfer-config={']}", "spec.engine.args", "JSON"),
        ("""engine: {args: ['--kv-transfer-config={"kv_connector":"Mine"}']}""", "spec.engine.args", "NixlConnector"),
        ("engine: {type: trtllm}", "spec.engine.type", "static list"),
        ("{engine: {type: sglang}, model: {uri: 's3://b/k'}}", "spec.model.uri", "pvc://"),
        ("engine: {type: sglang, args: [--disaggregation-mode=decode]}", "spec.engine.args", "phase"),
        ("router: {type: vllm-router, args: [--port=1]}", "spec.router.args", "--port"),
        ("engine: {podTemplate: {spec: {containers: [{name: engine, args: [x]}]}}}", "podTemplate", "spec.engine.args"),
        ("engine: {podTemplate: {containers: []}}", "spec.engine.podTemplate", "'containers'"),
        ("engine: {podTemplate: {spec: {nodeSelector: {a: 1}}}}", "nodeSelector", "quotes"),
        ("engine: {podTemplate: {spec: {containers: null}}}", "containers", "engine"),
        (
            "router: {podTemplate: {spec: {containers: [{name: router, args: []}]}}}",
            "spec.router.podTemplate",
            "spec.router.args",
        ),
    ],
)
def test_refusals_name_the_field_and_the_way_out(rendered: Any, spec: str, field: str, words: str) -> None:
    with pytest.raises(RenderRefused) as caught:
        rendered(spec)
    problem = caught.value.problems[0]
    assert field in problem.field
    assert words in problem.message
