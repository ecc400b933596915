"""A decision as text, for the command line, an Event and a status message."""

from __future__ import annotations

from collections.abc import Mapping

from equipoise.api.identity import Phase, Variant
from equipoise.decide.types import Decision, Move, MoveKind, PhaseDecision, Verdict

_EVENT_LIMIT = 1000  # an Event's message may have 1,024 characters


def explain(decision: Decision) -> str:
    """Everything that decided, in full sentences: what was done, the figures of each phase, and every rule that spoke."""
    lines = [headline(decision), ""]
    for phase, figures in ((phase, decision.phases[phase]) for phase in Phase if phase in decision.phases):
        lines += [f"{phase.value}: {_figures(figures)}"]
        for variant, count in sorted(decision.allocation.items()):
            if variant.phase is phase:
                wanted = decision.wanted.get(variant, 0)
                lines.append(f"  {count} × {_place(variant)}" + (f", on the way to {wanted}" if wanted != count else ""))
        for variant, count in sorted(decision.wanted.items()):
            if variant.phase is phase and variant not in decision.allocation:
                lines.append(f"  0 × {_place(variant)}, on the way to {count}")
    if decision.moves:
        lines += ["", "moves:", *(f"  {describe_move(move)}" for move in decision.moves)]
    if decision.reasons:
        lines += ["", "why:", *(f"  {reason.name}: {reason.message}" for reason in decision.reasons)]
    lines += ["", f"{decision.gpus} GPUs, {decision.cost_usd_per_hour:.2f} USD per hour"]
    if decision.goodput_bounds is not None:
        least, most = decision.goodput_bounds
        lines.append(f"goodput between {least:.1%} and {most:.1%} of requests")
    return "\n".join(lines)


def headline(decision: Decision) -> str:
    """One line: the verdict and what stands behind it."""
    if decision.verdict is Verdict.MOVE:
        moves = "; ".join(describe_move(move) for move in decision.moves) or "counts follow the plan"
        return f"{decision.service}: {moves}"
    return f"{decision.service}: hold, {decision.reasons[-1].message if decision.reasons else 'nothing to say'}"


def event_message(decision: Decision) -> str:
    """What an Event about this decision says, inside an Event's limit."""
    text = headline(decision)
    if decision.verdict is Verdict.MOVE:
        text += ". " + " ".join(dict.fromkeys(move.reason for move in decision.moves if move.reason))
    return text if len(text) <= _EVENT_LIMIT else text[: _EVENT_LIMIT - 1] + "…"


def describe_move(move: Move) -> str:
    """One move in a few words."""
    match move.kind:
        case MoveKind.FLIP if move.donor is not None and move.receiver is not None:
            return f"flip {move.replicas} from {move.donor.phase.value} to {move.receiver.phase.value} on {_place(move.donor)}"
        case MoveKind.HANDOVER if move.donor is not None and move.receiver is not None:
            kin = move.donor.service == move.receiver.service
            giver = f"{move.donor.phase.value} on {_place(move.donor)}" if kin else str(move.donor)
            return f"hand over {move.donor_replicas} from {giver} for {move.replicas} of {_named(move.receiver)}"
        case MoveKind.GROW if move.receiver is not None:
            return f"grow {_named(move.receiver)} by {move.replicas}"
        case _ if move.donor is not None:
            return f"shrink {_named(move.donor)} by {move.replicas}"
    return move.kind.value


def allocation_text(allocation: Mapping[Variant, int]) -> str:
    """Counts per phase and place, such as `prefill 3 × h100-80gb/tp1-bf16, decode 1 × …`."""
    parts = []
    for phase in Phase:
        places = [f"{count} × {_place(variant)}" for variant, count in sorted(allocation.items()) if variant.phase is phase]
        parts.append(f"{phase.value} {' + '.join(places) if places else 'none'}")
    return ", ".join(parts)


def _figures(figures: PhaseDecision) -> str:
    parts = [
        f"demand {_tokens(figures.demand_tokens_per_second)}",
        f"needs {_tokens(figures.needed_tokens_per_second)}",
        f"has {_tokens(figures.capacity_tokens_per_second)}",
        f"utilisation {'unknown' if figures.utilisation is None else format(figures.utilisation, '.2f')}",
        f"lag {'unknown' if figures.lag is None else format(figures.lag, '.2f')}",
    ]
    if figures.latency_seconds is not None:
        parts.append(f"latency {figures.latency_seconds * 1000:,.0f} ms")
    if figures.attainment is not None:
        parts.append(f"attainment {figures.attainment:.1%}")
    if figures.trim > 1.0:
        parts.append(f"floor {figures.trim:.2f} × demand")
    return ", ".join(parts)


def _tokens(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f} tokens/s"


def _place(variant: Variant) -> str:
    return f"{variant.pool}/{variant.shape}"


def _named(variant: Variant) -> str:
    return f"{variant.phase.value} on {_place(variant)}"
