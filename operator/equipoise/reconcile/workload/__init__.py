"""The workload loop: from status.allocation and spec to children."""
