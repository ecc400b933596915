"""Names: valid, inside the limits, and distinct for distinct things."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.api.identity import Phase, Precision, ServiceKey, Shape, Variant
from equipoise.render.names import (
    MAX_SERVICE_NAME,
    deployment_name,
    engines_name,
    label_value,
    phase_name,
    router_name,
)

DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

# Names close to one another in shape, so that collisions would be found: phases, suffixes and shapes as parts of names.
_words = st.lists(st.sampled_from(["a", "prefill", "decode", "router", "engines", "tp1", "bf16", "x9"]), min_size=1, max_size=6)
_short = _words.map("-".join)
_long = st.from_regex(r"\A[a-z][a-z0-9-]{0,43}[a-z0-9]\Z")
_service = st.one_of(_short, _long).map(lambda text: text[:MAX_SERVICE_NAME].rstrip("-"))
_pool = st.one_of(_short, st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z"))
_shape = st.builds(Shape, st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 16), st.sampled_from(Precision))
_variant = st.builds(Variant, st.builds(ServiceKey, st.just("prod"), _service), st.sampled_from(Phase), _pool, _shape)


@settings(max_examples=150)
@given(_variant)
def test_a_variants_name_is_valid_and_stable(variant: Variant) -> None:
    name = deployment_name(variant)
    assert len(name) <= 63
    assert DNS_LABEL.fullmatch(name)
    assert name == deployment_name(variant)


@settings(max_examples=60)
@given(st.lists(_variant, min_size=2, max_size=15, unique=True))
def test_distinct_variants_have_distinct_names(variants: list[Variant]) -> None:
    assert len({deployment_name(variant) for variant in variants}) == len(variants)


@settings(max_examples=60)
@given(st.lists(_variant, min_size=1, max_size=20))
def test_deployments_of_variants_and_routers_never_meet(variants: list[Variant]) -> None:
    routers = {router_name(variant.service) for variant in variants}
    assert not routers & {deployment_name(variant) for variant in variants}


@given(_service, _service)
def test_derived_names_of_two_services_never_meet(first: str, second: str) -> None:
    def names(service: str) -> list[str]:
        key = ServiceKey("prod", service)
        return [router_name(key), engines_name(key), *(phase_name(key, phase) for phase in Phase)]

    assert all(len(name) <= 63 and DNS_LABEL.fullmatch(name) for name in names(first))
    assert len(set(names(first))) == len(names(first))
    if first != second:
        assert not set(names(first)) & set(names(second))


def test_the_longest_service_name_leaves_room_for_everything() -> None:
    service = ServiceKey("prod", "x" * MAX_SERVICE_NAME)
    pools = [f"pool-{number}-{'y' * 50}" for number in range(20)]
    shapes = [Shape(16, 16, precision) for precision in Precision]
    variants = [Variant(service, phase, pool, shape) for phase in Phase for pool in pools for shape in shapes]
    names = {deployment_name(variant) for variant in variants}
    assert len(names) == len(variants)
    assert max(map(len, names)) == 63
    assert all(f"-{phase.value}" in deployment_name(Variant(service, phase, pools[0], shapes[0])) for phase in Phase)


@settings(max_examples=150)
@given(st.text(max_size=200))
def test_label_values_are_valid(text: str) -> None:
    value = label_value(text)
    assert 0 < len(value) <= 63
    assert LABEL_VALUE.fullmatch(value)


@given(_pool)
def test_valid_label_values_stay_as_they_are(text: str) -> None:
    assert label_value(text) == text
