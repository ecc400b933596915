"""What users write: the types of InferenceService, GPUPool and PhaseScale, their defaults, validation and CRDs."""
