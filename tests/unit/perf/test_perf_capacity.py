from __future__ import annotations

from dataclasses import replace

import pytest

from equipoise.api.identity import Phase, Precision, Shape
from equipoise.fleet.catalogue import DEVICES, device
from equipoise.perf.capacity import capacity_at_demand, kv_transfer_seconds, replica_capacity
from equipoise.perf.models import model_facts
from equipoise.perf.step_times import step_times
from equipoise.perf.types import ModelFacts, Refusal, ReplicaCapacity, StepTimes, Targets, Workload

CHAT = Workload(1155, 211)
TARGETS = Targets(0.5, 0.05)
NETWORK = 12.5e9
ONE_GPU = Shape()


def known(name: str) -> ModelFacts:
    found = model_facts(f"hf://any/{name}")
    assert isinstance(found, ModelFacts)
    return found


LLAMA_8B = known("Llama-3.1-8B")


def capacity(
    phase: Phase, name: str, *, model: ModelFacts = LLAMA_8B, shape: Shape = ONE_GPU, workload: Workload = CHAT,
    targets: Targets = TARGETS, network: float = NETWORK, kv_hop: bool = True, sharing: int = 1,
) -> ReplicaCapacity:  # fmt: skip
    found = replica_capacity(
        phase, model, device(name), shape, workload, targets,
        network_bytes_per_second=network, kv_hop=kv_hop, replicas_sharing_queue=sharing,
    )  # fmt: skip
    assert isinstance(found, ReplicaCapacity), found
    return found


def refusal(
    phase: Phase, name: str, *, model: ModelFacts = LLAMA_8B, workload: Workload = CHAT, targets: Targets = TARGETS
) -> Refusal:
    found = replica_capacity(phase, model, device(name), Shape(), workload, targets, network_bytes_per_second=NETWORK)
    assert isinstance(found, Refusal), found
    return found


def test_an_l4_reads_8b_weights_too_slowly_for_decode_and_is_offered_for_prefill() -> None:
    assert refusal(Phase.DECODE, "L4").message == "one step reads 16.1 GB of weights: 62 ms on L4, target 50 ms"
    prefill = capacity(Phase.PREFILL, "L4")
    assert prefill.tokens_per_second > 100
    assert prefill.service_seconds < 0.5
    assert prefill.attainable_share < 0.95  # long prompts miss on it whatever the load, and it says so
    eight_bits = capacity(Phase.DECODE, "L4", shape=Shape(precision=Precision.FP8))
    assert eight_bits.tokens_per_second > 100


def test_prefill_refusals_name_the_numbers() -> None:
    slow = refusal(Phase.PREFILL, "L4", targets=Targets(0.3, 0.05))
    assert slow.reason == "MissesTTFT"
    assert slow.message == "prefill of 1,155 tokens takes 0.38 s on L4, target 0.30 s"
    narrow = refusal(Phase.PREFILL, "L4", targets=Targets(0.4, 0.05))
    assert narrow.message == (
        "prefill of 1,155 tokens takes 0.38 s on L4, and KV transfer 0.01 s with a first decode step of up to 0.05 s follow, "
        "target 0.40 s"
    )
    long = refusal(Phase.PREFILL, "L4", workload=Workload(40_000, 100), targets=Targets(60, 0.1))
    assert long.reason == "PromptTooLong"


def test_decode_refusals_name_the_numbers() -> None:
    context = refusal(Phase.DECODE, "RTX-4090", workload=Workload(50_000, 100))
    assert context.reason == "ContextTooLong"
    assert "holds KV of 41," in context.message
    alone = refusal(Phase.DECODE, "H100", workload=Workload(300_000, 100), targets=Targets(60, 0.012))
    assert alone.reason == "MissesTPOT"
    assert "one step of a single sequence with 300,100 tokens of context takes" in alone.message


@pytest.mark.parametrize(
    ("name", "prefill", "decode"),
    [
        ("H200", 47_047, 14_815),
        ("H100", 45_813, 11_554),
        ("A100-80GB", 15_972, 5_314),
        ("L40S", 13_178, 1_867),
        ("RTX-4090", 10_783, 1_271),
    ],
)
def test_peaks_are_those_of_the_plain_arithmetic_less_the_corrections(name: str, prefill: float, decode: float) -> None:
    """An independent calculation from the same fits, without the corrections 1.10 and 1.08 and with answers half written."""
    found = capacity(Phase.PREFILL, name)
    assert found.tokens_per_second / found.utilisation * 1.10 == pytest.approx(prefill, rel=0.05)
    found = capacity(Phase.DECODE, name)
    assert 0.75 <= found.tokens_per_second / found.utilisation / decode <= 0.95


def test_devices_differ_by_phase_as_the_fits_say() -> None:
    """Decode over prefill per device: high for HBM, low for GDDR. Nothing else may decide which device does what."""
    ratio = {
        name: _peak(Phase.DECODE, name) / _peak(Phase.PREFILL, name) for name in ("A100-80GB", "H200", "H100", "L40S", "RTX-4090")
    }
    assert sorted(ratio, key=ratio.__getitem__, reverse=True) == ["A100-80GB", "H200", "H100", "L40S", "RTX-4090"]
    assert min(ratio["A100-80GB"], ratio["H200"], ratio["H100"]) > 1.5 * max(ratio["L40S"], ratio["RTX-4090"])


@pytest.mark.parametrize(
    ("prices", "ttft", "prefill", "decode"),
    [
        ({"H100": 4.50, "A100-80GB": 3.50, "L40S": 1.80}, 1.0, "H100", "H100"),
        ({"H100": 2.57, "A100-80GB": 1.04, "L40S": 0.72}, 1.0, "L40S", "A100-80GB"),
        ({"H100": 2.57, "A100-80GB": 1.04, "L40S": 0.72}, 0.5, "H100", "A100-80GB"),
    ],
)
def test_prices_and_targets_decide_which_device_does_which_phase(
    prices: dict[str, float], ttft: float, prefill: str, decode: str
) -> None:
    """The table in docs/concepts/devices.md."""

    def cheapest(phase: Phase) -> str:
        def price(name: str) -> float:
            return prices[name] / capacity(phase, name, targets=Targets(ttft, 0.05), sharing=4).tokens_per_second

        return min(prices, key=price)

    assert (cheapest(Phase.PREFILL), cheapest(Phase.DECODE)) == (prefill, decode)


def _peak(phase: Phase, name: str) -> float:
    found = capacity(phase, name)
    return found.tokens_per_second / found.utilisation


def test_what_binds_is_named() -> None:
    assert capacity(Phase.DECODE, "RTX-4090").binds == "kv memory"
    assert capacity(Phase.DECODE, "L40S").binds == "target"
    assert capacity(Phase.DECODE, "H100").binds == "batch limit"
    assert capacity(Phase.PREFILL, "A100-80GB").binds == "target"
    assert capacity(Phase.PREFILL, "H100", targets=Targets(5, 0.05)).binds == "compute"
    assert capacity(Phase.PREFILL, "H100", network=1.25e9).binds == "network"
    assert capacity(Phase.DECODE, "H100", workload=Workload(2048, 28)).binds == "network"  # code: long prompts, short answers


def test_the_link_bounds_both_phases() -> None:
    """10 Gbit/s carry 0.9 x 1.25e9 / 131,072 = 8,583 prompt tokens/s."""
    assert capacity(Phase.PREFILL, "H100", network=1.25e9).tokens_per_second == pytest.approx(8583, rel=0.001)
    decode = capacity(Phase.DECODE, "H100", network=1.25e9)
    assert decode.tokens_per_second == pytest.approx(8583 * 211 / 1155, rel=0.001)
    assert capacity(Phase.PREFILL, "H100", network=1.25e9, kv_hop=False).tokens_per_second > 30_000


def test_cached_tokens_travel_but_are_not_computed() -> None:
    half = Workload(1155, 211, prefix_hit_share=0.5)
    found = capacity(Phase.PREFILL, "H100", network=1.25e9, workload=half)
    assert found.tokens_per_second == pytest.approx(8583 / 2, rel=0.001)
    assert capacity(Phase.PREFILL, "L4", workload=half).service_seconds < capacity(Phase.PREFILL, "L4").service_seconds
    everything = capacity(Phase.PREFILL, "H100", workload=Workload(1155, 211, prefix_hit_share=1.0))
    assert 0 < everything.tokens_per_second < 1_000_000


def test_no_network_is_a_refusal() -> None:
    found = replica_capacity(Phase.PREFILL, LLAMA_8B, device("H100"), Shape(), CHAT, TARGETS, network_bytes_per_second=0)
    assert isinstance(found, Refusal)
    assert found.reason == "NoNetwork"


def test_kv_transfer_time() -> None:
    assert kv_transfer_seconds(LLAMA_8B, 1155, NETWORK) == pytest.approx(0.0121, rel=0.01)


def test_equal_prompts_leave_more_than_spread_ones() -> None:
    equal = replace(CHAT, prompt_tokens_second_moment=1155.0**2)
    wild = replace(CHAT, prompt_tokens_second_moment=5 * 1155.0**2)
    rates = [capacity(Phase.PREFILL, "A100-80GB", workload=one).tokens_per_second for one in (wild, CHAT, equal)]
    assert rates == sorted(rates)
    assert rates[2] > 1.3 * rates[1] > 1.3 * rates[0]


def test_replicas_that_share_arrivals_sustain_more_each() -> None:
    for phase in Phase:
        rates = [capacity(phase, "L40S", sharing=group).tokens_per_second for group in (1, 2, 4, 8)]
        assert rates == sorted(rates)
    assert capacity(Phase.PREFILL, "L40S", sharing=4).tokens_per_second > 2 * capacity(Phase.PREFILL, "L40S").tokens_per_second


def test_at_a_demand_a_replica_counts_as_one_of_the_fewest_that_carry_it() -> None:
    def at(demand: float) -> float:
        found = capacity_at_demand(
            Phase.PREFILL, LLAMA_8B, device("L40S"), Shape(), CHAT, TARGETS, demand, network_bytes_per_second=NETWORK
        )
        assert isinstance(found, ReplicaCapacity)
        return found.tokens_per_second

    groups = [capacity(Phase.PREFILL, "L40S", sharing=count).tokens_per_second for count in (1, 2, 3, 4)]
    assert at(0) == at(groups[0]) == groups[0]
    assert at(2 * groups[1]) == pytest.approx(groups[1])
    assert at(3 * groups[2]) == pytest.approx(groups[2])
    assert at(4 * groups[3]) == at(1e9) == groups[3]
    # Two carry it, and neither could alone: half of what two sustain must not look like enough.
    between = 1.5 * groups[0]
    assert groups[1] > between
    assert at(between) == groups[0]
    assert at(1.9 * groups[1]) == pytest.approx(0.95 * groups[1])
    nothing = capacity_at_demand(
        Phase.DECODE, LLAMA_8B, device("L4"), Shape(), CHAT, TARGETS, 1e3, network_bytes_per_second=NETWORK
    )
    assert isinstance(nothing, Refusal)


def test_pipeline_stages_add_throughput_not_speed() -> None:
    whole, staged = known("Llama-3.1-70B"), Shape(2, 2)
    times = [step_times(whole, device("H100"), shape) for shape in (Shape(2), staged)]
    assert all(isinstance(one, StepTimes) for one in times)
    slow = Targets(5, 0.1)
    plain = capacity(Phase.PREFILL, "H100", model=whole, shape=Shape(2), targets=slow)
    both = capacity(Phase.PREFILL, "H100", model=whole, shape=staged, targets=slow)
    assert both.service_seconds == pytest.approx(plain.service_seconds, rel=0.02)
    assert both.tokens_per_second > 1.5 * plain.tokens_per_second
    assert capacity(Phase.DECODE, "H100", model=whole, shape=staged, targets=slow).max_batch > 64


def test_eight_bits_halve_the_step() -> None:
    full, half = (
        capacity(Phase.DECODE, "L40S", shape=Shape(precision=precision)) for precision in (Precision.BF16, Precision.FP8)
    )
    assert half.tokens_per_second > 1.5 * full.tokens_per_second
    assert half.kv_tokens > full.kv_tokens


def test_every_device_says_where_its_figures_come_from() -> None:
    for one in DEVICES.values():
        assert one.source
        times = step_times(LLAMA_8B, one, Shape())
        assert isinstance(times, StepTimes)
        assert times.source.startswith("fitted table: " if one.fitted_name else "roofline: ")


def test_the_same_family_uses_the_table_and_others_do_not() -> None:
    fitted = step_times(known("DeepSeek-R1-Distill-Llama-8B"), device("H100"), Shape())
    other = step_times(known("Qwen3-8B"), device("H100"), Shape())
    assert isinstance(fitted, StepTimes)
    assert isinstance(other, StepTimes)
    assert fitted.source.startswith("fitted table: Llama-3.1-8B on h100_sxm")
    assert other.source.startswith("roofline: ")
    assert other.decode_constant == pytest.approx(fitted.decode_constant, rel=0.1)
