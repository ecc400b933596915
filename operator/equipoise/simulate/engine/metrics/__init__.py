"""The metrics of a vLLM engine, kept and written the way vLLM 0.32 does."""
