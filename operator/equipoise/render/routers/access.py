"""What a router that discovers pods may do: read the pods of its namespace, nothing else."""

from __future__ import annotations

from typing import Any

from equipoise.render.context import Context
from equipoise.render.names import router_name

RBAC = "rbac.authorization.k8s.io"


def access(context: Context, app: str) -> list[dict[str, Any]]:
    """ServiceAccount, Role and RoleBinding. Both routers list and watch all pods of the namespace and filter them themselves."""
    name = router_name(context.key)
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": context.metadata(name, app, "router")},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "Role",
            "metadata": context.metadata(name, app, "router"),
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": context.metadata(name, app, "router"),
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": context.key.namespace}],
        },
    ]
