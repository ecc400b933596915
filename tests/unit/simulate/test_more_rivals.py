"""Kthena, WVA, TokenScale, Arrow and Narwhal do what their descriptions say, on observations made by hand."""

from __future__ import annotations

from tests.unit.simulate.test_loop_rivals import decided, view

from equipoise.api.identity import Phase
from equipoise.simulate.loop.policy import PhaseGauges
from equipoise.simulate.rivals.arrow import Arrow, Narwhal
from equipoise.simulate.rivals.ratios import KthenaRatio
from equipoise.simulate.rivals.registry import POLICIES
from equipoise.simulate.rivals.tokenscale import TokenScale
from equipoise.simulate.rivals.wva import PairedWva

P, D = Phase.PREFILL, Phase.DECODE


def gauges(prefill: PhaseGauges | None = None, decode: PhaseGauges | None = None) -> dict[Phase, PhaseGauges]:
    return {P: prefill or PhaseGauges(), D: decode or PhaseGauges()}


def test_kthena_repairs_the_ratio_by_adding_only() -> None:
    policy = KthenaRatio(least=0.5, most=2.0)
    assert policy.repaired(1, 4) == (2, 4)
    assert policy.repaired(5, 1) == (5, 3)
    assert policy.repaired(2, 3) == (2, 3)
    busy = gauges(PhaseGauges(running_requests=8, waiting_requests=12), PhaseGauges(running_requests=128))
    assert decided(KthenaRatio(), view(gauges=busy)) == (5, 3)  # 20 / 4 = 5 replicas; decode is added to, for the ratio


def test_wva_adds_one_where_too_little_is_spare_and_nothing_while_one_starts() -> None:
    queueing = gauges(PhaseGauges(waiting_requests=5), PhaseGauges(kv_usage_sum=1.0))
    assert decided(PairedWva(), view(gauges=queueing)) == (3, 2)  # 2.5 wait per replica: 2.5 places of 5 left, less than 3
    full = gauges(None, PhaseGauges(kv_usage_sum=1.5))
    assert decided(PairedWva(), view(counts=(1, 2), gauges=full)) == (1, 3)  # 0.75 used, 0.05 of 0.8 left
    idle = gauges(None, PhaseGauges(kv_usage_sum=0.6))
    assert decided(PairedWva(), view(gauges=idle)) == (1, 1)  # 0.6 on one replica leaves 0.2


def test_wva_grants_the_pair_or_nothing() -> None:
    full = gauges(PhaseGauges(waiting_requests=40), PhaseGauges(kv_usage_sum=0.5 * 4))
    assert decided(PairedWva(), view(counts=(4, 4), gauges=full)) == (5, 3)  # decode makes the room
    both = gauges(PhaseGauges(waiting_requests=40), PhaseGauges(kv_usage_sum=0.79 * 4))
    assert decided(PairedWva(), view(counts=(4, 4), gauges=both)) == (4, 4)


def test_tokenscale_follows_arriving_tokens_at_once() -> None:
    quiet = decided(TokenScale(), view())
    assert quiet == (1, 1)
    busy = decided(TokenScale(), view(prefill={"requests_per_second": 30.0}))
    assert busy is not None
    assert busy[0] == 3  # 34,650 prompt tokens/s over 15,700
    assert busy[1] >= 1


def test_arrow_turns_a_prefill_replica_after_three_looks_and_not_the_last_one() -> None:
    crowded = gauges(None, PhaseGauges(kv_tokens_used=2_000_000))
    policy = Arrow()
    assert decided(policy, view(now=300.0, counts=(3, 2), gauges=crowded)) is None
    assert decided(policy, view(now=305.0, counts=(3, 2), gauges=crowded)) is None
    assert decided(policy, view(now=310.0, counts=(3, 2), gauges=crowded)) == (2, 3)
    last = Arrow()
    assert [decided(last, view(now=300.0 + 5 * i, counts=(1, 2), gauges=crowded)) for i in range(4)] == [None] * 4


def test_arrow_turns_a_decode_replica_only_where_decode_is_light() -> None:
    queue = PhaseGauges(queued_prompt_tokens=100_000)
    assert decided(Arrow(), view(gauges=gauges(queue))) == (3, 1)
    assert decided(Arrow(), view(gauges=gauges(queue, PhaseGauges(kv_tokens_used=2_000_000)))) is None


def test_narwhal_shares_by_offered_work_and_waits_with_what_is_not_urgent() -> None:
    policy = Narwhal()
    rate = {"requests_per_second": 40.0}  # 2.9 prefill replicas are busy, 3.7 with room: short by more than half a replica
    assert decided(policy, view(counts=(2, 4), prefill=rate)) == (4, 2)
    calm = Narwhal()
    looks = [decided(calm, view(now=300.0 + 15 * i, counts=(3, 1))) for i in range(3)]
    assert looks == [None, None, (2, 2)]


def test_each_has_a_tuned_variant() -> None:
    for name in ("kthena-ratio", "wva", "tokenscale", "keda-slo"):
        assert {name, f"{name}-tuned"} <= set(POLICIES)
    assert {"arrow-flips", "arrow-tuned-flips", "narwhal", "narwhal-flips", "narwhal-tuned-flips"} <= set(POLICIES)
