"""What it looks like: InferenceService and allocation to manifests. Pure."""
