"""Facts of a service that serves well: two replicas of each phase on one pool, both targets met."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.memory import ServiceMemory
from equipoise.decide.types import Decision, Move, MoveKind, PhaseDecision, Reason, VariantStatus, Verdict
from equipoise.observe.types import Known, PhaseObservation, ServiceObservation
from equipoise.reconcile.status.facts import Facts, PhaseFacts

P, D = Phase.PREFILL, Phase.DECODE
KEY = ServiceKey("prod", "chat")
PREFILL = Variant(KEY, P, "h100-80gb", Shape())
DECODE = Variant(KEY, D, "h100-80gb", Shape())
COUNTS = {PREFILL: 2, DECODE: 2}


def figures(phase: Phase, **changes: Any) -> PhaseDecision:
    return replace(PhaseDecision(phase, 900.0, 2000.0, 1000.0, 0.8, 0.45, 1.0, 0.412, 0.97), **changes)


def decision(**changes: Any) -> Decision:
    plain = Decision(
        service=KEY,
        verdict=Verdict.HOLD,
        allocation=COUNTS,
        wanted=COUNTS,
        moves=(),
        phases={P: figures(P), D: figures(D, latency_seconds=0.031)},
        reasons=(Reason("WithinTargets", "capacity covers the need"),),
        memory=ServiceMemory(allocation={"prefill@h100-80gb/tp1-bf16": 2, "decode@h100-80gb/tp1-bf16": 2}),
        cost_usd_per_hour=10.28,
        gpus=4,
        goodput_bounds=(0.94, 0.97),
    )
    return replace(plain, **changes)


def flip(count: int = 1) -> Decision:
    move = Move(MoveKind.FLIP, DECODE, PREFILL, count, count, "utilisation 1.40 of prefill falls to 0.90")
    counts = {PREFILL: 2 + count, DECODE: 2 - count}
    reason = Reason("Flipped", "1 × decode become prefill", P)
    return decision(verdict=Verdict.MOVE, allocation=counts, wanted=counts, moves=(move,), reasons=(reason,))


def observed(ttft: Any = None, tpot: Any = None) -> ServiceObservation:
    """All signals that decisions stand on are known; `ttft` and `tpot` are the shares inside the targets."""
    one = Known(1.0, 100.0)
    phase = PhaseObservation(
        requests_per_second=one,
        tokens_per_second=one,
        mean_tokens=one,
        latency_percentile_seconds=one,
        attainment=one,
        waiting_requests=one,
        kv_usage_share=one,
    )
    second = replace(phase, attainment=Known(0.98, 100.0) if tpot is None else tpot)
    first = Known(0.97, 100.0) if ttft is None else ttft
    return ServiceObservation(KEY, 1000.0, 60.0, phase, second, ttft_attainment=first)


def phase_facts(**changes: Any) -> PhaseFacts:
    return replace(PhaseFacts(minimum=1, desired=2, ready=2), **changes)


def facts(prefill: PhaseFacts | None = None, decode: PhaseFacts | None = None, **changes: Any) -> Facts:
    plain = Facts(
        generation=3,
        percentile=95.0,
        targets_text={P: "500ms", D: "50ms"},
        phases={P: prefill or phase_facts(), D: decode or phase_facts()},
        variants=(VariantStatus(PREFILL, 2, 2, startup_seconds=41.6), VariantStatus(DECODE, 2, 2)),
        names={PREFILL: "chat-prefill-h100-80gb", DECODE: "chat-decode-h100-80gb"},
        decision=decision(),
        observation=observed(),
        revision="r1",
        endpoint="http://chat-router.prod.svc/v1",
    )
    return replace(plain, **changes)
