"""What the status of an InferenceService says, and when it is worth a write."""
