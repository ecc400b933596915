from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_cluster import ClusterOptions, LocalClusterError, audited_requests, slots, wait_until, watchdog
from local_cluster.control_plane import audit_policy, is_loopback
from local_cluster.credentials import kubeconfig_text
from local_cluster.kwok import STAGES_FOLDER, cidr_of_generation, lease_seconds
from local_cluster.nodes import cpu_node, gpu_node
from local_cluster.processes import Component
from local_cluster.prometheus import StaticTarget, prometheus_config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "docker"}, "use local, kind or kubeconfig"),
        ({"prometheus_scrape_interval_seconds": 0.01}, r"use 0\.1 or more"),
        ({"audit": True, "target": "kind"}, "the target is kind"),
        ({"kubeconfig": Path("x")}, "use target kubeconfig"),
        ({"pod_cidr": "10.244.0.1/16"}, r"write it like 10\.244\.0\.0/16"),
        ({"pod_cidr": "10.244.0.0/28"}, "/24 or larger"),
        ({"node_grace_seconds": 2}, "use 5 or more"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalClusterError, match=message):
        ClusterOptions(**options)


def test_slots_do_not_overlap() -> None:
    ports = [port for number in range(slots.SLOT_COUNT) for port in slots.ports_of(number)]
    assert len(ports) == len(set(ports))
    assert min(ports) > 1024
    assert max(ports) < 32768
    networks = [ipaddress.ip_network(slots.pod_cidr_of(number)) for number in range(slots.SLOT_COUNT)]
    assert len(set(networks)) == slots.SLOT_COUNT
    assert all(network.is_loopback and network.prefixlen == 16 for network in networks)


def test_a_slot_is_held_until_released_and_all_can_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "SLOT_COUNT", 3)
    monkeypatch.setattr(slots, "_is_free", lambda _port: True)
    taken = [slots.acquire_slot(tmp_path) for _ in range(3)]
    assert {slot.number for slot in taken} == {0, 1, 2}
    with pytest.raises(LocalClusterError, match="All 3 places"):
        slots.acquire_slot(tmp_path)
    taken[1].release()
    assert slots.acquire_slot(tmp_path).number == taken[1].number


def test_lent_ports_come_round_again_and_kept_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    busy: set[int] = set()
    monkeypatch.setattr(slots, "_is_free", lambda port: port not in busy)
    slot = slots.Slot(0, -1, [1, 2, 3, 4], "")
    assert slot.keep_port() == 1
    assert [slot.lend_port() for _ in range(4)] == [2, 3, 4, 2]
    busy.update({3, 4})
    assert slot.lend_port() == 2
    busy.add(2)
    with pytest.raises(LocalClusterError, match="in use"):
        slot.lend_port()


def test_each_start_of_kwok_has_addresses_that_earlier_ones_did_not_give_out() -> None:
    whole = ipaddress.ip_network("127.70.0.0/16")
    parts = [ipaddress.ip_network(cidr_of_generation(str(whole), generation)) for generation in range(9)]
    assert parts[0] == ipaddress.ip_network("127.70.0.0/17")
    assert all(part.subnet_of(whole) for part in parts)  # type: ignore[arg-type]
    for index, part in enumerate(parts):
        assert not any(part.overlaps(other) for other in parts[index + 1 :])
    assert cidr_of_generation(str(whole), 9) == str(parts[1])
    assert (lease_seconds(50), lease_seconds(5)) == (40, 4)


def test_nodes_carry_what_gpu_feature_discovery_writes() -> None:
    node = gpu_node("h100-0", "NVIDIA-H100-80GB-HBM3", 81559, 8, labels={"topology.kubernetes.io/zone": "b", "price": "3"})
    labels = node["metadata"]["labels"]
    assert (labels["nvidia.com/gpu.product"], labels["nvidia.com/gpu.memory"]) == ("NVIDIA-H100-80GB-HBM3", "81559")
    assert (labels["topology.kubernetes.io/zone"], labels["price"]) == ("b", "3")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == node["status"]["capacity"]["nvidia.com/gpu"] == "8"
    assert all(isinstance(value, str) for value in labels.values())
    plain = cpu_node("cpu-0")
    assert "nvidia.com/gpu" not in plain["status"]["capacity"]
    assert "spec" not in plain
    assert plain["metadata"]["labels"]["topology.kubernetes.io/zone"] == "local-a"


def test_prometheus_keeps_fractions_of_a_second_and_maps_labels() -> None:
    targets = [StaticTarget("127.0.0.1:9", {"part": "operator"})]
    config = prometheus_config(Path("/k"), 0.25, targets, [Path("/rules.yaml")])
    assert set(config["global"].values()) == {"250ms"}
    pods, static = config["scrape_configs"]
    assert pods["kubernetes_sd_configs"] == [{"role": "pod", "kubeconfig_file": "/k"}]
    assert {"action": "labelmap", "regex": "__meta_kubernetes_pod_label_(.+)"} in pods["relabel_configs"]
    assert static["static_configs"] == [{"targets": ["127.0.0.1:9"], "labels": {"part": "operator"}}]
    assert config["rule_files"] == ["/rules.yaml"]


def test_a_kubeconfig_is_what_clients_expect() -> None:
    config = yaml.safe_load(kubeconfig_text("demo", "https://127.0.0.1:1", b"CERT", "admin", "secret", "prod"))
    assert config["current-context"] == "demo"
    assert config["contexts"][0]["context"] == {"cluster": "demo", "user": "admin", "namespace": "prod"}
    assert config["clusters"][0]["cluster"] == {"server": "https://127.0.0.1:1", "certificate-authority-data": "Q0VSVA=="}
    assert config["users"][0]["user"] == {"token": "secret"}


def test_stages_are_well_formed_and_cover_the_life_of_a_pod() -> None:
    stages = [stage for path in STAGES_FOLDER.glob("*.yaml") for stage in yaml.safe_load_all(path.read_text())]
    names = [stage["metadata"]["name"] for stage in stages]
    assert len(names) == len(set(names))
    assert {"pod-start", "pod-containers-ready", "pod-terminating", "pod-delete", "pod-complete"} <= set(names)
    for stage in stages:
        deleted = [e for e in stage["spec"]["selector"]["matchExpressions"] if e["key"] == ".metadata.deletionTimestamp"]
        assert deleted, f"{stage['metadata']['name']} must say whether it is for pods that are being deleted"


def test_loopback_decides_over_endpoint_controllers() -> None:
    assert is_loopback("127.64.0.0/16")
    assert not is_loopback("10.244.0.0/16")


def test_audit_log_lines(tmp_path: Path) -> None:
    assert json.loads(audit_policy())["rules"][-1] == {"level": "Metadata"}

    def line(verb: str, user: str, **reference: str) -> str:
        event = {"stage": "ResponseComplete", "verb": verb, "user": {"username": user}, "objectRef": reference}
        return json.dumps({**event, "responseStatus": {"code": 200}}) + "\n"

    log = tmp_path / "audit.jsonl"
    log.write_text(
        line("patch", "operator", resource="inferenceservices", subresource="status", namespace="prod", name="chat")
        + line("get", "operator", resource="pods", namespace="prod", name="a")
        + line("create", "admin", resource="pods", namespace="prod", name="a")
        + json.dumps({"stage": "ResponseStarted", "verb": "watch", "user": {"username": "operator"}, "objectRef": {}})
        + "\n"
        + '{"stage": "ResponseComp'
    )
    writes = list(audited_requests(log, user="operator", writes_only=True))
    assert [(request.verb, request.resource, request.name, request.code) for request in writes] == [
        ("patch", "inferenceservices/status", "chat", 200)
    ]
    assert len(list(audited_requests(log))) == 3


def test_waiting_says_what_was_last_seen() -> None:
    with pytest.raises(LocalClusterError, match=r"Waited 0 s for the moon in vain \(last value: 0\)"):
        wait_until(lambda: 0, 0, "the moon")

    def refuses() -> bool:
        raise ConnectionError("nobody there")

    with pytest.raises(LocalClusterError, match=r"last error: nobody there"):
        wait_until(refuses, 0, "an answer")
    assert wait_until(lambda: "yes", 0) == "yes"


def component(tmp_path: Path, script: str, ready: bool = True) -> Component:
    log = tmp_path / "thing.log"
    return Component("thing", lambda: [sys.executable, "-c", script], log, dict(os.environ), lambda: ready)


def test_a_component_that_ends_early_shows_its_last_words(tmp_path: Path) -> None:
    thing = component(tmp_path, "import sys; sys.exit('port taken')", ready=False)
    thing.start()
    with pytest.raises(LocalClusterError, match=r"(?s)thing ended with exit code 1 while starting.*port taken"):
        thing.wait_until_ready(10)
    with pytest.raises(LocalClusterError, match="thing is not running"):
        _ = thing.pid


def test_a_component_is_stopped_with_its_children(tmp_path: Path) -> None:
    children = tmp_path / "child"
    script = (
        "import pathlib, subprocess, sys, time; "
        "child = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], stdin=subprocess.PIPE); "
        f"pathlib.Path({str(children)!r}).write_text(str(child.pid)); child.wait()"
    )
    thing = component(tmp_path, script)
    thing.start()
    child = int(wait_until(lambda: children.exists() and children.read_text(), 10, "the child"))
    with pytest.raises(LocalClusterError, match="running already"):
        thing.start()
    thing.stop()
    wait_until(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text(), 10, "its end")
    assert not thing.is_running


def test_the_watchdog_kills_what_carries_its_tag_and_nothing_else(tmp_path: Path) -> None:
    sleeper = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    folder = tmp_path / "throw-away"
    folder.mkdir()
    with (
        subprocess.Popen(sleeper, stdin=subprocess.PIPE, env={**os.environ, watchdog.TAG_VARIABLE: "mine"}) as mine,
        subprocess.Popen(sleeper, stdin=subprocess.PIPE, env={**os.environ, watchdog.TAG_VARIABLE: "mine-too"}) as other,
    ):
        command = [sys.executable, "-I", "-S", watchdog.__file__, "mine", str(os.getpid()), str(folder)]
        wait_until(lambda: mine.pid in watchdog.tagged_processes("mine"), 10, "the process to carry its tag")
        with subprocess.Popen(command, stdin=subprocess.PIPE) as dog:
            assert dog.stdin is not None
            dog.stdin.close()
            assert dog.wait(20) == 0
        assert mine.wait(5) == -9
        assert other.poll() is None
        assert not folder.exists()
        other.kill()
