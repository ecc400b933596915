"""The demo from its first line to its summary."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from equipoise.cli.demo.look import Look
from equipoise.cli.demo.picture import draw
from equipoise.cli.demo.samples import Run, Sample, SeenMove
from equipoise.cli.demo.script import (
    INTERVAL_SECONDS,
    NAMESPACE,
    POOLS,
    REAL_AND_EMULATED,
    SCRAPE_SECONDS,
    SERVICE,
    TARGETS,
    TRAFFIC,
    service_manifest,
    trace_traffic,
)
from equipoise.cli.demo.summary import as_text, summarise
from equipoise.cli.demo.view import open_view

if TYPE_CHECKING:
    from equipoise_stage import Stage
    from local_cluster import LocalCluster

_LOOK_SECONDS: Final = 1.0
_LIMIT_SECONDS: Final = 330.0  # of traffic: the demo ends by itself in under six minutes


def run_demo(*, traces: Sequence[Path], target: str, plain: bool, output: Path) -> int:
    """Run the demo; 0 when both targets were met again after every turn and nothing was violated."""
    console = Console()
    missing = [path for path in traces if not path.is_file()]
    if missing:
        console.print(f"trace {missing[0]}: no such file", style="red", markup=False)
        return 2
    if not _find_local():
        console.print(
            "The demo needs the repository: it builds and starts a control plane from deploy/local. Run `make demo` there."
        )
        return 2
    from local_cluster import ClusterOptions, LocalCluster, LocalClusterError

    console.print(
        "Equipoise demo: prefill and decode of one model on three GPU pools, under traffic that turns.",
        style="bold",
        soft_wrap=True,
    )
    for line in REAL_AND_EMULATED:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    options = ClusterOptions(
        name="demo", target=target, prometheus_scrape_interval_seconds=SCRAPE_SECONDS  # type: ignore[arg-type]
    )  # fmt: skip
    try:
        with LocalCluster.start(
            options, report=lambda text: console.print(f"  {text}", markup=False, highlight=False)
        ) as cluster:
            return _play(console, cluster, traces, plain, output)
    except LocalClusterError as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("Stopped; nothing is left running.")
        return 130


def _play(console: Console, cluster: LocalCluster, traces: Sequence[Path], plain: bool, output: Path) -> int:
    from equipoise_stage import Stage

    cluster.add_cpu_nodes(1)
    for pool in POOLS:
        prefix = pool.name.rsplit("-", 1)[0]
        cluster.add_gpu_nodes(pool.product, pool.memory_mib, pool.gpus_per_node, pool.nodes, prefix=prefix)
    stage = Stage(cluster)
    try:
        console.print("  installing the chart with Helm, starting the operator with the chart's rights", highlight=False)
        stage.install_chart()
        stage.start_operator({"capacity": {"intervalSeconds": INTERVAL_SECONDS}})
        traffic = trace_traffic(traces) if traces else TRAFFIC
        stage.start_emulator(["--traffic", f"{NAMESPACE}/{SERVICE}={traffic}"])
        cluster.kubectl("create", "namespace", NAMESPACE)
        cluster.apply([service_manifest()])
        console.print(
            f"  kubectl apply: InferenceService {NAMESPACE}/{SERVICE}; waiting until both phases are ready", highlight=False
        )
        stage.wait_condition(NAMESPACE, SERVICE, "Ready", timeout_seconds=90)
        run = _watch(console, stage, plain)
    finally:
        stage.stop()
        _keep_logs(stage, output)
    summary = summarise(run)
    output.mkdir(parents=True, exist_ok=True)
    (output / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    draw(run, output / "run.png", _title(traces))
    console.print()
    console.print(as_text(summary), markup=False, highlight=False, soft_wrap=True)
    console.print(f"Written: {output / 'summary.json'}, {output / 'run.png'}", markup=False, highlight=False, soft_wrap=True)
    good = bool(summary["shifts"]) and all(shift["restored"] for shift in summary["shifts"]) and not summary["violations"]
    return 0 if good else 1


def _watch(console: Console, stage: Stage, plain: bool) -> Run:
    cluster = stage.cluster
    look = Look(cluster.server_url, cluster.ca_file, cluster.admin_token, stage.emulator_status)
    view = open_view(console, plain=plain)
    samples: list[Sample] = []
    moves: list[SeenMove] = []
    try:
        while look.state != "ended":
            began = time.monotonic()
            sample, new = look.sample()
            if sample is not None and look.state != "ended":
                samples.append(sample)
                moves += new
                view.show(sample, new, look.decision)
                if sample.at_seconds > _LIMIT_SECONDS:
                    break
            time.sleep(max(0.0, _LOOK_SECONDS - (time.monotonic() - began)))
    finally:
        view.close()
    return Run(tuple(samples), tuple(moves), tuple(look.turns), TARGETS, {pool.name: pool.gpus for pool in POOLS})


def _title(traces: Sequence[Path]) -> str:
    what = (
        "recorded traces " + ", ".join(path.stem for path in traces)
        if traces
        else "traffic with the lengths of the Azure traces of 2023"
    )
    return f"Equipoise demo, {what} (engines and GPUs emulated)"


def _keep_logs(stage: Stage, output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for process, name in ((stage.operator, "operator.log"), (stage.emulator, "emulator.log")):
        if process is not None and process.log.exists():
            shutil.copyfile(process.log, output / name)


def _find_local() -> bool:
    """Make deploy/local importable: it is beside the source of an editable installation."""
    folder = Path(__file__).resolve().parents[4] / "deploy" / "local"
    if folder.is_dir() and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found: Any = importlib.import_module("local_cluster")
    except ImportError:
        return False
    return found is not None
