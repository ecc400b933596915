"""The one door to the Kubernetes API: plain dicts in and out, typed errors, every write counted and fenced."""
