"""The command `equipoise`, also as `kubectl equipoise`. Each command imports what it needs when it runs: help is quick."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Equipoise keeps prefill and decode of LLM serving in balance on mixed GPU pools.",
)

Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace; by default that of the current context.")]
ServiceName = Annotated[str, typer.Argument(help="Name of the InferenceService.")]


@app.command()
def operator(
    config: Annotated[Path | None, typer.Option(help="Settings as a YAML file; see docs/reference/settings.md.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--set", help="One setting as key=value, such as http.port=9090; may be repeated.")
    ] = None,
) -> None:
    """Run the operator until SIGTERM."""
    from equipoise.reconcile.app import EquipoiseApp
    from equipoise.reconcile.main import main
    from equipoise.reconcile.settings import SettingsError, load_settings

    overrides = {}
    for item in option or ():
        key, separator, value = item.partition("=")
        if not separator:
            raise typer.BadParameter(f"{item!r} is no key=value", param_hint="--set")
        overrides[key] = value
    try:
        settings = load_settings(config, os.environ, overrides)
    except SettingsError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(main(settings, EquipoiseApp))


@app.command()
def status(name: ServiceName, namespace: Namespace = None) -> None:
    """Show one InferenceService: conditions, phases against their targets, variants, cost."""
    from equipoise.cli.show import show_status

    raise typer.Exit(show_status(name, namespace))


@app.command()
def explain(name: ServiceName, namespace: Namespace = None) -> None:
    """Say why one InferenceService has the replicas it has: the last decision, its rules and its numbers."""
    from equipoise.cli.show import show_explanation

    raise typer.Exit(show_explanation(name, namespace))


rollout = typer.Typer(no_args_is_help=True, help="See how far a new revision has come over both phases, and go back.")
app.add_typer(rollout, name="rollout")


@rollout.command("status")
def rollout_status(name: ServiceName, namespace: Namespace = None) -> None:
    """Show the rollout in progress. Exit code 0: done; 3: not yet; 4: rolled back."""
    from equipoise.cli.rollout import show_rollout

    raise typer.Exit(show_rollout(name, namespace))


@rollout.command("undo")
def rollout_undo(
    name: ServiceName,
    namespace: Namespace = None,
    to: Annotated[
        str | None, typer.Option(help="Revision to return to; by default the last good one that is not the spec's.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the patch.")] = False,
) -> None:
    """Put the spec's image, flags and model back to an earlier revision's; both phases then roll to it."""
    from equipoise.cli.rollout import undo_rollout

    raise typer.Exit(undo_rollout(name, namespace, to, dry_run=dry_run))


@app.command()
def plan(
    file: Annotated[
        list[Path], typer.Option("--file", "-f", help="File with InferenceServices, - for standard input; may be repeated.")
    ],
    fleet: Annotated[
        Path | None,
        typer.Option(help="The hardware: pools in a few lines, what `kubectl get nodes -o yaml` gives, or `live` (as --live)."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="The hardware of the cluster that kubectl's current context leads to.")
    ] = False,
    demand: Annotated[
        list[str] | None,
        typer.Option(help="Traffic, as requests=30/s,prompt=1155,output=211,hit=0.2; NAME: before it is for one service."),
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="Your prices: USD per GPU and hour by device or pool, as YAML.")] = None,
    model_config: Annotated[
        list[str] | None,
        typer.Option(
            help="config.json of a model that the catalogue lacks: a file, folder or address; NAME= before it is for one service."
        ),
    ] = None,
    mount: Annotated[
        list[str] | None, typer.Option(help="Where a PersistentVolumeClaim of a pvc:// model is mounted here, as CLAIM=FOLDER.")
    ] = None,
    output: Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="table or json.")] = "table",
    plot: Annotated[Path | None, typer.Option(help="Draw cost over targets into this file, such as plan.png.")] = None,
) -> None:
    """Say what a fleet can serve: shapes and prices per phase, the cheapest plan, what other targets cost, apart or together."""
    from equipoise.cli.plan.command import run_plan

    raise typer.Exit(
        run_plan(
            file,
            fleet=fleet,
            live=live,
            demand=demand or (),
            prices=prices,
            model_config=model_config or (),
            mounts=mount or (),
            output=output,
            plot=plot,
        )
    )


@app.command()
def simulate(
    name: Annotated[
        str | None, typer.Argument(help="Name of a scenario; without one, and without traffic, they are listed.")
    ] = None,
    trace: Annotated[
        list[Path] | None, typer.Option(help="Replay recorded traces (Azure, Mooncake, BurstGPT), one after another.")
    ] = None,
    traffic: Annotated[str | None, typer.Option(help="Traffic in words, such as 6000+40:5m@40,500+1200:5m@40;repeat=2.")] = None,
    pool: Annotated[
        list[str] | None, typer.Option(help="GPUs for --trace and --traffic: DEVICE:GPUS[@PRICE], such as H100:8.")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="Controllers to run: equipoise, best-static, oracle, hpa-latency, dynamo-sla, …")
    ] = None,
    ttft: Annotated[str, typer.Option(help="TTFT target for --trace and --traffic.")] = "1s",
    tpot: Annotated[str, typer.Option(help="TPOT target for --trace and --traffic.")] = "50ms",
    model: Annotated[str, typer.Option(help="Model for --trace and --traffic.")] = "hf://meta-llama/Llama-3.1-8B-Instruct",
    seed: Annotated[int, typer.Option(help="Everything that is drawn by lot comes from it.")] = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds to run from --seed on: means with 95 % intervals.")] = 1,
    startup: Annotated[float | None, typer.Option(help="Seconds that a replica takes to start.")] = None,
    flips: Annotated[bool, typer.Option(help="Whether the engines can change phase while they run.")] = True,
    bounded: Annotated[bool, typer.Option(help="Whether the operator's queue limits are set on the engines.")] = True,
    interval: Annotated[float | None, typer.Option(help="Seconds between two decisions.")] = None,
    source: Annotated[str | None, typer.Option(help="Where signals come from: pods or prometheus.")] = None,
    from_prometheus: Annotated[
        str | None, typer.Option(help="Replay what this Prometheus recorded of --service, such as http://prometheus:9090.")
    ] = None,
    service: Annotated[str, typer.Option(help="NAMESPACE/NAME of the service, for --from-prometheus.")] = "",
    since: Annotated[str, typer.Option(help="How far back the recording begins, for --from-prometheus.")] = "1h",
    step: Annotated[str, typer.Option(help="Length of a recorded window, four scrapes or more, for --from-prometheus.")] = "1m",
    engine: Annotated[str, typer.Option(help="Engine whose metrics were recorded: vllm or sglang.")] = "vllm",
    data: Annotated[
        Path | None, typer.Option(help="Folder with the published traces that scenarios replay where they find them.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Folder for summary, rows and pictures.")] = None,
) -> None:
    """Try decisions on modelled engines in virtual time: the operator's own, and those of other controllers beside them."""
    from equipoise.cli.simulate.command import run_simulate
    from equipoise.cli.simulate.world import RecordingOptions

    recording = None if from_prometheus is None else RecordingOptions(from_prometheus, service, since, step, engine)
    raise typer.Exit(
        run_simulate(
            name,
            traces=trace or (),
            traffic=traffic,
            pools=pool or (),
            policies=policy or (),
            ttft=ttft,
            tpot=tpot,
            model=model,
            seed=seed,
            startup=startup,
            flips=flips,
            bounded=bounded,
            interval=interval,
            source=source,
            data=data,
            report=report,
            recording=recording,
            seeds=seeds,
        )
    )


@app.command()
def demo(
    trace: Annotated[
        list[Path] | None,
        typer.Option(help="Replay a recorded trace (Azure, Mooncake, BurstGPT) instead; repeat it to play one after the other."),
    ] = None,
    target: Annotated[str, typer.Option(help="Where: local (a control plane of its own), kind, or kubeconfig.")] = "local",
    plain: Annotated[bool, typer.Option(help="Plain lines also on a terminal.")] = False,
    output: Annotated[Path, typer.Option(help="Folder for summary.json, the picture and the logs.")] = Path("build/demo"),
) -> None:
    """Show the whole loop on a real control plane with emulated GPUs, in under six minutes."""
    from equipoise.cli.demo.run import run_demo

    raise typer.Exit(run_demo(traces=tuple(trace or ()), target=target, plain=plain, output=output))
