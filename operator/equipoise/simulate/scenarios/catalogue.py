"""The named worlds. Each is a function of nothing but the folder of recorded traces, if there is one.

Traffic that is not alternating by construction follows published statistics (`traffic.lengths`, sources there) or, where the
recorded traces are at hand, the traces themselves: Azure 2023 and 2024 (CC-BY 4.0; Patel et al., Splitwise, ISCA 2024;
Stojkovic et al., DynamoLLM, HPCA 2025), Mooncake (Apache-2.0; Qin et al., FAST 2025), ServeGen (Apache-2.0; Xiang et al.,
2025). Files keep the names that docs/concepts/simulator.md lists.

Every GPU is a node of its own with its own link, so that what moves between two replicas always crosses both links: then the
operator's figure of one link per replica is the world's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from equipoise.api.identity import Phase
from equipoise.simulate.loop.setup import PoolSetup, World
from equipoise.simulate.scenarios.basics import a100, alternation, beside, h100, mix_or, resource, service, split, trace_or
from equipoise.simulate.traffic.curves import flash_crowd, sinusoid
from equipoise.simulate.traffic.lengths import lengths_named, lognormal
from equipoise.simulate.traffic.parse import plan_traffic
from equipoise.simulate.traffic.plan import Part, Plan


@dataclass(frozen=True)
class Scenario:
    """A named world. `heavy` ones take minutes per run and belong to full runs."""

    name: str
    title: str
    build: Callable[[Path | None], World]
    heavy: bool = False


def _alternating(seconds: float, repeats: int, first: tuple[int, int, float], second: tuple[int, int, float]) -> World:
    traffic = alternation(seconds, repeats, first, second)
    return World((h100(),), (service(traffic, split(4, 4)),), 2.0 * seconds * repeats)


def _azure_conversations(data: Path | None) -> World:
    traffic = trace_or(data, ("AzureLLMInferenceTrace_conv_2023.csv",), ";rate=6", "azure-conv:30m@33")
    return World((a100(),), (service(traffic, split(4, 4, "a100")),), traffic.seconds or 1800.0)


def _azure_code(data: Path | None) -> World:
    # The recording's bursts are of one client each: gaps with a coefficient of variation of 13, here on a thirtieth of the load.
    traffic = trace_or(data, ("AzureLLMInferenceTrace_code_2023.csv",), ";rate=4", "azure-code:30m@10!6")
    return World((a100(),), (service(traffic, split(5, 3, "a100")),), traffic.seconds or 1800.0)


def _switch(data: Path | None) -> World:
    return World((a100(),), (service("azure-conv:15m@34,azure-code:15m@33,azure-conv:15m@34", split(4, 4, "a100")),), 2700.0)


def _day(data: Path | None) -> World:
    """Conversations and code of one service, out of phase: two hours that stand for a day."""
    seconds = 7200.0
    conversations = Part("conv", lengths_named("azure-conv"), sinusoid(13.0, 8.0, seconds, seconds))
    code = Part("code", lengths_named("azure-code"), sinusoid(8.0, 7.0, seconds, seconds, phase_seconds=seconds / 3))
    fallback = plan_traffic(Plan((conversations,))), plan_traffic(Plan((code,)))
    conv_traffic = mix_or(data, "azure2024_week_conv_rate_digitised.csv", 86_400.0, 12.0, 0.28, fallback[0])
    code_traffic = mix_or(data, "azure2024_week_code_rate_digitised.csv", 86_400.0, 12.0, 0.25, fallback[1])
    both = beside(conv_traffic, code_traffic)
    return World((a100(),), (service(both, split(4, 4, "a100")),), seconds, interval_seconds=15.0)


def _drift(data: Path | None) -> World:
    """Two services on one pool: a chat whose lengths drift over the day, a reasoning model that is busy at night."""
    seconds = 7200.0
    period = seconds
    parts = []
    for index in range(12):  # the mix of prompts to answers walks from 17 to 2 and back
        share = abs(index - 5.5) / 5.5
        prompt, answer = 500.0 + 1700.0 * share, 300.0 - 180.0 * share
        curve = sinusoid(12.0, 5.0, period, seconds / 12, phase_seconds=index * seconds / 12)
        parts.append(Part("m-large", lognormal(prompt, answer), curve))
    chat = plan_traffic(Plan(tuple(parts)))
    night = sinusoid(3.0, 2.4, period, seconds, phase_seconds=period / 2)
    think = plan_traffic(Plan((Part("reasoning", lengths_named("reasoning"), night),)))
    chat = mix_or(data, "servegen_m-large_10min.csv", 86_400.0, 12.0, 0.06, chat)
    think = mix_or(data, "servegen_deepseek-r1_10min.csv", 86_400.0, 12.0, 0.2, think)
    return World(
        (a100(10),),
        (
            service(chat, split(3, 3, "a100"), resource("chat")),
            service(think, split(1, 3, "a100"), resource("think")),
        ),
        seconds,
        interval_seconds=15.0,
    )


def _mooncake(data: Path | None) -> World:
    traffic = trace_or(data, ("mooncake_conversation_trace.jsonl",), ";rate=1.5", "mooncake-conversation:30m@5")
    given = resource("chat", ttft="8s", tpot="60ms")
    return World((h100(),), (service(traffic, split(5, 3), given),), min(traffic.seconds or 1800.0, 1800.0))


def _flash(data: Path | None) -> World:
    """Ten times the load for a minute."""
    crowd = Part("azure-conv", lengths_named("azure-conv"), flash_crowd(6.0, 60.0, 600.0, 60.0, 1500.0))
    return World((a100(),), (service(plan_traffic(Plan((crowd,))), split(2, 1, "a100")),), 1500.0)


def _mixed(data: Path | None) -> World:
    """Prefill suits L40S, decode A100, at spot-like prices (USD 0.72 and 1.04): which does what follows from the figures."""
    pools = (PoolSetup("a100", "A100-80GB", 6, 1, 1.04, 25e9), PoolSetup("l40s", "L40S", 6, 1, 0.72, 12.5e9))
    initial = {(Phase.PREFILL, "l40s"): 5, (Phase.DECODE, "a100"): 3, (Phase.PREFILL, "a100"): 1}
    return World(pools, (service("azure-conv:15m@30,6000+60:15m@7,azure-conv:15m@30", initial),), 2700.0)


def _constant(data: Path | None) -> World:
    return World((a100(),), (service("azure-conv:30m@34", split(4, 4, "a100")),), 1800.0)


_LONG, _SHORT = (6000, 40, 40.0), (500, 1200, 40.0)
_CHAT, _CODE = (1155, 211, 130.0), (4096, 28, 70.0)

SCENARIOS: Final[Mapping[str, Scenario]] = {
    item.name: item
    for item in (
        Scenario(
            "alt300", "300 s of long prompts, 300 s of long answers, twice", lambda _: _alternating(300.0, 2, _LONG, _SHORT)
        ),
        Scenario("alt900", "900 s of long prompts, 900 s of long answers", lambda _: _alternating(900.0, 1, _LONG, _SHORT)),
        Scenario("chatcode300", "300 s of chat, 300 s of code, twice", lambda _: _alternating(300.0, 2, _CHAT, _CODE)),
        Scenario("S1", "Azure conversations: steady chat", _azure_conversations),
        Scenario("S2", "Azure code: prompts in bursts", _azure_code),
        Scenario("S3", "conversations, code, conversations", _switch),
        Scenario("S4", "a day of conversations and code, out of phase", _day, heavy=True),
        Scenario("S5", "two services: drifting lengths by day, reasoning by night", _drift, heavy=True),
        Scenario("S6", "Mooncake: long contexts", _mooncake),
        Scenario("S7", "flash crowd: ten times the load for a minute", _flash),
        Scenario("mixed", "two kinds of GPUs at spot prices, a change of mix", _mixed),
        Scenario("constant", "constant load: nothing to do", _constant),
    )
}


def scenario(name: str) -> Scenario:
    """The scenario of that name; ValueError lists the names there are."""
    try:
        return SCENARIOS[name]
    except KeyError:
        raise ValueError(f"scenario {name!r} is none of {', '.join(SCENARIOS)}") from None
