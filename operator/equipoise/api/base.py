"""What all API types share: camelCase on the wire, lenient reading, rules for the API server, object metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from equipoise.api.identity import GROUP, VERSION

ShortText = Annotated[str, Field(max_length=253)]
LabelValue = Annotated[str, Field(max_length=63)]
Argument = Annotated[str, Field(max_length=4096)]
FreeObject = dict[str, Any]  # kept as the user wrote it, checked by whoever reads it


class ApiModel(BaseModel):
    """Base of all API types. Attribute docstrings become the CRD's descriptions, so they carry the units.

    Reading ignores fields it does not know, so that an older operator can read what a newer one stored; `parse_strict`
    refuses them. Instances never change.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Self:
        """Read what the API server stored; pydantic's ValidationError (a ValueError) names field and value."""
        return cls.model_validate(data)

    @classmethod
    def parse_strict(cls, data: Mapping[str, Any]) -> Self:
        """The same, but a field that no type knows is an error."""
        return cls.model_validate(data, extra="forbid")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON in the API's own spelling, without fields that are absent (None)."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def problems(error: ValidationError) -> str:
    """What could not be read, as one line for people: `spec.targets.ttft: '5 s' is no duration; …`."""
    lines = []
    for found in error.errors(include_url=False):
        where = ".".join(str(part) for part in found["loc"]) or "the object"
        lines.append(f"{where}: {found['msg'].removeprefix('Value error, ')}")
    return "; ".join(lines)


def shortened(length: int) -> Callable[[Any], Any]:
    """Cuts texts and lists of a status to what the CRD admits: too long a message must never stop a status write."""

    def cut(value: Any) -> Any:
        if isinstance(value, str) and len(value) > length:
            return value[: length - 1] + "…"
        return value[:length] if isinstance(value, list | tuple) else value

    return cut


def rules(*validations: Mapping[str, str]) -> ConfigDict:
    """Model configuration that carries CEL rules to the CRD; they run in the API server, not here."""
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": [dict(rule) for rule in validations]})


def rule(expression: str, message: str, *, field_path: str = "", reason: str = "") -> dict[str, str]:
    """One CEL rule. `message` says what is wrong and how to mend it; `field_path` (such as `.max`) is shown with it."""
    extra = {"fieldPath": field_path, "reason": reason}
    return {"rule": expression, "message": message} | {key: value for key, value in extra.items() if value}


class OwnerReference(ApiModel):
    """A metav1.OwnerReference, as far as ownership needs it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(ApiModel):
    """The part of metav1.ObjectMeta that Equipoise reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class ApiObject(ApiModel):
    """An object with metadata."""

    api_version: str = f"{GROUP}/{VERSION}"
    kind: str
    metadata: ObjectMeta = ObjectMeta()

    @classmethod
    def parse_strict(cls, data: Mapping[str, Any]) -> Self:
        """Refuse fields that no type knows, except under metadata, which belongs to Kubernetes."""
        known = {field.alias for field in ObjectMeta.model_fields.values()}
        metadata = {key: value for key, value in data.get("metadata", {}).items() if key in known and key != "ownerReferences"}
        return super().parse_strict({**data, "metadata": metadata})
