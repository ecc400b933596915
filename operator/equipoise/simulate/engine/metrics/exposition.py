"""A `/metrics` page in Prometheus' text format, written by hand: some five hundred lines, many pods, every few seconds.

All text that does not change is made once; a histogram whose count has not changed is not written again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client.utils import floatToGoString

from equipoise.simulate.engine.metrics.families import Family, Generation, HistogramFamily, families
from equipoise.simulate.engine.metrics.replica import ReplicaMetrics
from equipoise.simulate.engine.replica import Replica

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_Writer = Callable[[], str]


def label_text(labels: Mapping[str, str]) -> str:
    """`{a="1",b="2"}`, names in order, values escaped."""
    escaped = {name: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, value in labels.items()}
    return "{" + ",".join(f'{name}="{escaped[name]}"' for name in sorted(escaped)) + "}"


class Exposition:
    """The page of one replica. `created_seconds` is what the `_created` series say (seconds since the epoch).

    The families are those of the engine itself; the process, Python and HTTP families of a real server are left out.
    """

    def __init__(
        self,
        replica: Replica,
        metrics: ReplicaMetrics,
        model_name: str,
        created_seconds: float = 0.0,
        fetches_kv: bool = True,
        generation: Generation = Generation.CURRENT,
    ) -> None:
        self._replica = replica
        self._metrics = metrics
        self._labels = {"engine": "0", "model_name": model_name}
        self._created = repr(float(created_seconds))
        self._writers = [self._writer(family) for family in families(generation, fetches_kv)]
        self._cache_config = self._cache_config_text()

    def page(self, now: float) -> str:
        """The page as of now; brings the replica's counters up to date first."""
        self._replica.sync(now)
        self._metrics.collect(now)
        return "".join(writer() for writer in self._writers) + self._cache_config

    def _writer(self, family: Family) -> _Writer:
        if isinstance(family, HistogramFamily):
            return self._histogram(family)
        replica, metrics, read, label = self._replica, self._metrics, family.read, family.label
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        head = f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"
        base = self._labels if family.engine_label else {"model_name": self._labels["model_name"]}
        first = read(replica, metrics)
        values = list(first) if isinstance(first, Mapping) else [""]
        texts = [label_text({**base, label: value} if label else base) for value in values]
        tail = ""
        if family.kind == "counter":
            created = f"{family.name}_created"
            tail = f"# HELP {created} {family.help}\n# TYPE {created} gauge\n"
            tail += "".join(f"{created}{text} {self._created}\n" for text in texts)
        starts = [f"{name}{text} " for text in texts]

        def write() -> str:
            found = read(replica, metrics)
            if isinstance(found, Mapping):
                lines = "".join(f"{start}{float(found[value])!r}\n" for start, value in zip(starts, values, strict=True))
            else:
                lines = f"{starts[0]}{float(found)!r}\n"
            return f"{head}{lines}{tail}"

        return write

    def _histogram(self, family: HistogramFamily) -> _Writer:
        histogram, name = family.read(self._metrics), family.name
        edges = [*map(floatToGoString, histogram.edges), "+Inf"]
        starts = [f"{name}_bucket{label_text({**self._labels, 'le': edge})} " for edge in edges]
        text = label_text(self._labels)
        head = f"# HELP {name} {family.help}\n# TYPE {name} histogram\n"
        count, total = f"{name}_count{text} ", f"{name}_sum{text} "
        created = f"# HELP {name}_created {family.help}\n# TYPE {name}_created gauge\n{name}_created{text} {self._created}\n"
        written = -1
        page = ""

        def write() -> str:
            nonlocal written, page
            if written != histogram.count:
                written = histogram.count
                parts = [head]
                below = 0
                for start, number in zip(starts, histogram.counts, strict=True):
                    below += number
                    parts.append(f"{start}{below}.0\n")
                parts.append(f"{count}{below}.0\n{total}{histogram.total!r}\n{created}")
                page = "".join(parts)
            return page

        return write

    def _cache_config_text(self) -> str:
        spec = self._replica.spec
        blocks = spec.kv_tokens // spec.limits.block_size
        labels = {
            **self._labels,
            "block_size": str(spec.limits.block_size),
            "cache_dtype": "auto",
            "enable_prefix_caching": str(spec.prefix_caching),
            "kv_cache_max_concurrency": f"{spec.kv_tokens / spec.limits.max_model_len:.2f}",
            "kv_cache_size_tokens": str(blocks * spec.limits.block_size),
            "num_gpu_blocks": str(blocks),
            "num_gpu_blocks_override": "None",
        }
        name = "vllm:cache_config_info"
        return f"# HELP {name} The KV cache's settings.\n# TYPE {name} gauge\n{name}{label_text(labels)} 1.0\n"
