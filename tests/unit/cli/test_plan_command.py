"""`equipoise plan` as a user runs it: files in, tables or JSON out, one sentence where it cannot."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from equipoise.cli.main import app

SERVICE = """
apiVersion: equipoise.dev/v1alpha1
kind: InferenceService
metadata: {name: chat, namespace: prod}
spec:
  model: {uri: "hf://meta-llama/Llama-3.1-8B-Instruct"}
  targets: {ttft: 500ms, tpot: 50ms}
"""
FLEET = """
pools:
- {product: H100, nodes: 2, gpusPerNode: 8}
- {product: L40S, nodes: 4, gpusPerNode: 4}
- {product: L4, nodes: 8, gpusPerNode: 4}
"""
DEMAND = "requests=30/s,prompt=1155,output=211,hit=0.2"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "service.yaml").write_text(SERVICE)
    (tmp_path / "fleet.yaml").write_text(FLEET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    return tmp_path


def plan(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments], input=stdin)


def document(*arguments: str) -> dict[str, Any]:
    found = plan("-f", "service.yaml", "--fleet", "fleet.yaml", *arguments, "--output", "json")
    return json.loads(found.stdout)  # type: ignore[no-any-return]


def shape(found: dict[str, Any], pool: str, name: str) -> dict[str, Any]:
    rows = found["services"][0]["shapes"]
    return next(row for row in rows if (row["pool"], row["shape"]) == (pool, name))


def test_tables_say_everything_and_cut_nothing(folder: Path) -> None:
    found = plan("-f", "service.yaml", "--fleet", "fleet.yaml", "--demand", DEMAND)
    assert found.exit_code == 0, found.output
    text = found.stdout
    assert "…" not in text
    for heading in ("Fleet", "prod/chat", "Plan", "Cost of other targets", "Apart or together"):
        assert f"{heading} ─" in text
    assert "27,720 uncached prompt tokens/s and 6,330 output tokens/s" in text
    assert "9.00*" in text
    assert "2 GPUs, 9.00 USD per hour" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100


def test_a_narrow_terminal_gets_whole_figures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = plan("-f", "service.yaml", "--fleet", "fleet.yaml", "--demand", DEMAND).stdout
    assert "…" not in text
    assert "h100-80gb  tp1-bf16  PD" in text


def test_l4_may_prefill_and_not_decode_and_the_reason_is_said(folder: Path) -> None:
    text = plan("-f", "service.yaml", "--fleet", "fleet.yaml", "--demand", DEMAND).stdout
    assert "l4-24gb tp1-bf16 decode: one step reads 16.1 GB of weights: 62 ms on L4, target 50 ms" in " ".join(text.split())
    row = shape(document("--demand", DEMAND), "l4-24gb", "tp1-bf16")
    assert row["decode"]["refused"]["reason"] == "MissesTPOT"
    assert row["prefill"]["tokensPerSecond"] > 100
    assert row["prefill"]["planned"]


def test_a_plan_that_carries_the_tokens_and_misses_the_target_is_told_from_one_that_meets_it(folder: Path) -> None:
    (folder / "fleet.yaml").write_text(
        "pools:\n- {product: L4, nodes: 8, gpusPerNode: 1}\n- {product: A100, memory: 80Gi, nodes: 1, gpusPerNode: 8}\n"
    )
    text = " ".join(
        plan("-f", "service.yaml", "--fleet", "fleet.yaml", "--demand", "requests=2/s,prompt=1155,output=211").stdout.split()
    )
    assert "5.90 USD per hour, proven cheapest for these tokens, but not every service's share" in text
    assert "14.00*" in text
    assert "The plan above costs 5.90: it carries the tokens" in text
    assert "14.00 buys devices on which 95 % of requests can meet both targets" in text


def test_figures_agree_with_each_other(folder: Path) -> None:
    found = document("--demand", DEMAND)
    service = found["services"][0]
    assert found["covered"]
    assert found["usdPerHour"] == pytest.approx(service["plan"]["usdPerHour"])
    for phase, tokens in (("prefill", 30 * 1155 * 0.8), ("decode", 30 * 211)):
        entry = service["plan"]["phases"][phase]
        assert entry["neededTokensPerSecond"] == pytest.approx(tokens)
        assert entry["capacityTokensPerSecond"] >= entry["neededTokensPerSecond"]
        for variant in entry["variants"]:
            row = shape(found, variant["pool"], variant["shape"])
            assert variant["tokensPerSecond"] == pytest.approx(variant["replicas"] * row[phase]["tokensPerSecond"], rel=1e-4)
            assert variant["usdPerHour"] == pytest.approx(variant["replicas"] * row["usdPerHour"])
            per_million = row["usdPerHour"] / row[phase]["tokensPerSecond"] / 3600 * 1e6
            assert row[phase]["usdPerMillionTokens"] == pytest.approx(per_million, rel=1e-4)
    for pool in found["fleet"]["pools"]:
        assert pool["plannedGPUs"] <= pool["usableGPUs"]


def test_the_frontier_never_pays_more_for_less(folder: Path) -> None:
    points = document("--demand", DEMAND)["services"][0]["frontier"]
    assert len(points) == 30
    for one in points:
        for other in points:
            looser = other["ttftSeconds"] >= one["ttftSeconds"] and other["tpotSeconds"] >= one["tpotSeconds"]
            if looser and one["usdPerHour"] is not None:
                assert other["usdPerHour"] is not None
                assert other["usdPerHour"] <= one["usdPerHour"]
    own = next(one for one in points if (one["ttftSeconds"], one["tpotSeconds"]) == (0.5, 0.05))
    assert own["usdPerHour"] == pytest.approx(9.0)


def test_prices_choose_the_pool(folder: Path) -> None:
    def pools(**prices: float) -> set[str]:
        (folder / "prices.yaml").write_text(yaml.safe_dump(prices))
        phases = document("--demand", DEMAND, "--prices", "prices.yaml")["services"][0]["plan"]["phases"]
        return {variant["pool"] for phase in phases.values() for variant in phase["variants"]}

    assert pools(H100=2.0, L40S=2.0) == {"h100-80gb"}
    assert "l40s-48gb" in pools(H100=50.0, L40S=0.5, L4=5.0)


def test_more_traffic_than_the_fleet_carries_is_said_and_exits_with_1(folder: Path) -> None:
    found = plan("-f", "service.yaml", "--fleet", "fleet.yaml", "--demand", "requests=5000/s")
    assert found.exit_code == 1
    assert "the need is not covered" in found.stdout
    assert "no GPU is left" in found.stdout
    assert "Neither way fits" in found.stdout


def test_without_a_demand_the_minimum_is_planned(folder: Path) -> None:
    found = plan("-f", "-", "--fleet", "fleet.yaml", stdin=SERVICE)
    assert found.exit_code == 0
    assert "no demand given (--demand): planned at its minimum" in found.stdout
    assert "Cost of other targets" not in found.stdout


def test_several_services_share_the_fleet(folder: Path) -> None:
    (folder / "service.yaml").write_text(
        f"{SERVICE}---\n{SERVICE.replace('name: chat', 'name: large').replace('8B', '70B').replace('500ms', '2s')}"
    )
    found = document("--demand", "chat:requests=30/s", "--demand", "large:requests=3/s")
    assert [service["name"] for service in found["services"]] == ["prod/chat", "prod/large"]
    assert [service["demand"]["requestsPerSecond"] for service in found["services"]] == [30.0, 3.0]
    assert sum(service["plan"]["usdPerHour"] for service in found["services"]) == pytest.approx(found["usdPerHour"])
    refused = {row["pool"]: row["prefill"].get("refused") for row in found["services"][1]["shapes"]}
    assert "142.4 GB" in refused["l4-24gb"]["message"]


def test_nodes_as_kubectl_gives_them_are_a_fleet_and_strangers_keep_their_gpus(folder: Path) -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.count": "8"}
    node = {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "one", "labels": labels},
        "status": {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "namespace": "x"}, "status": {"phase": "Running"},
        "spec": {"nodeName": "one", "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "3"}}}]},
    }  # fmt: skip
    (folder / "fleet.yaml").write_text(yaml.safe_dump({"kind": "List", "items": [node, pod]}))
    pools = document("--demand", DEMAND)["fleet"]["pools"]
    assert [(pool["device"], pool["gpus"], pool["usableGPUs"]) for pool in pools] == [("H100", 8, 5)]


def test_the_plot_is_written(folder: Path) -> None:
    found = plan("-f", "service.yaml", "--fleet", "fleet.yaml", "--demand", DEMAND, "--plot", "out/plan.png")
    assert found.exit_code == 0
    assert (folder / "out" / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_a_models_config_stands_in_for_the_catalogue(folder: Path) -> None:
    (folder / "service.yaml").write_text(SERVICE.replace("meta-llama/Llama-3.1-8B-Instruct", "nobody/new-model"))
    (folder / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
                "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
                "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            }
        )
    )  # fmt: skip
    model = document("--model-config", "config.json", "--demand", DEMAND)["services"][0]["model"]
    assert model["parameters"] == pytest.approx(8.03e9, rel=0.01)
    assert "config.json" in model["source"]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("service.yaml", None, "service service.yaml: No such file"),
        ("service.yaml", "a: [", "service service.yaml: no YAML"),
        ("service.yaml", "kind: Pod", "no InferenceService"),
        ("service.yaml", "kind: List\nitems: 3", "items of the List: found 3"),
        ("service.yaml", SERVICE.replace("500ms", "fast"), "spec.targets.ttft: 'fast' is no duration"),
        ("service.yaml", f"{SERVICE}---{SERVICE}", "prod/chat stands there twice"),
        ("service.yaml", SERVICE.replace("meta-llama/Llama-3.1-8B-Instruct", "a/b"), "is not in the catalogue of known models"),
        ("fleet.yaml", None, "fleet fleet.yaml: No such file"),
        ("fleet.yaml", "pools: 3", "pools: found 3; write a list"),
        ("fleet.yaml", "pools: [{product: H1OO, nodes: 1, gpusPerNode: 8}]", "near it: H100"),
        ("fleet.yaml", "pools: [{product: H100, nodes: 1, gpus: 8}]", "pools.0.gpusPerNode"),
        ("fleet.yaml", "pools: [{product: H100, nodes: 1, gpusPerNode: 8, takenGPUs: [9]}]", "takenGPUs [9] does not fit"),
        ("fleet.yaml", "'text'", "found a str"),
        ("fleet.yaml", SERVICE, "no GPU pool in 0 nodes"),
    ],
)
def test_bad_files_give_one_sentence_and_exit_with_2(folder: Path, file: str, text: str | None, said: str) -> None:
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    found = plan("-f", "service.yaml", "--fleet", "fleet.yaml")
    assert found.exit_code == 2
    assert said in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1
    assert not found.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--demand", "reqests=3"], "did you mean requests?"),
        (["--demand", "requests=abc"], "no number from 0"),
        (["--demand", "requests=3/fortnight"], "'fortnight' is no unit of time"),
        (["--demand", "hit=2"], "no number from 0 to 0.99"),
        (["--demand", "other:requests=3"], "no service is named 'other'"),
        (["--demand", ","], "empty"),
        (["--prices", "prices.yaml"], "'H1000' is neither a pool of this fleet nor a device"),
        (["--live"], "both were given"),
        (["--mount", "claim"], "write it as CLAIM=FOLDER"),
        (["--model-config", "other=x.json"], "there is no service other"),
        (["--plot", "plan.docx", "--demand", DEMAND], "Format 'docx' is not supported"),
    ],
)
def test_bad_arguments_too(folder: Path, arguments: list[str], said: str) -> None:
    (folder / "prices.yaml").write_text("H1000: 3")
    found = plan("-f", "service.yaml", "--fleet", "fleet.yaml", *arguments)
    assert found.exit_code == 2
    assert said in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


def test_a_cluster_that_does_not_answer_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    kubectl = bin_folder / "kubectl"
    kubectl.write_text(
        "#!/bin/sh\necho 'E1201 02:44:50.550583 1 memcache.go:265] noise' >&2\necho 'connection refused' >&2\nexit 1\n"
    )
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    found = plan("-f", "service.yaml", "--live")
    assert found.exit_code == 2
    assert found.stderr == "--live: kubectl get nodes: connection refused\n"
