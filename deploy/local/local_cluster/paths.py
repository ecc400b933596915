"""The files of one cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Paths:
    """Names of what a cluster's folder holds."""

    folder: Path

    @property
    def admin_kubeconfig(self) -> Path:
        """For the person and the tests: may do everything."""
        return self.kubeconfig("admin")

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of one user or component."""
        return self.folder / f"{user}.kubeconfig"

    def log(self, component: str) -> Path:
        """The output of one component."""
        return self.folder / "logs" / f"{component}.log"

    @property
    def certificates(self) -> Path:
        """Where the API server puts the certificate that it makes for itself."""
        return self.folder / "certificates"

    @property
    def ca_file(self) -> Path:
        """What a client trusts."""
        return self.folder / "ca.crt"

    @property
    def serving_certificate(self) -> Path:
        """The API server's own certificate, with the authority that signed it."""
        return self.certificates / "apiserver.crt"

    @property
    def service_account_key(self) -> Path:
        """Signs the tokens of service accounts."""
        return self.certificates / "service-account.key"

    @property
    def tokens(self) -> Path:
        """The API server's static tokens."""
        return self.folder / "tokens.csv"

    @property
    def audit_policy(self) -> Path:
        """What the API server records."""
        return self.folder / "audit-policy.yaml"

    @property
    def audit_log(self) -> Path:
        """One JSON line per request."""
        return self.folder / "audit.jsonl"

    @property
    def prometheus_config(self) -> Path:
        """Prometheus' configuration."""
        return self.folder / "prometheus.json"

    def create_folders(self) -> None:
        """Make the folders; what is in them stays."""
        for folder in (self.folder, self.folder / "logs", self.certificates):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
