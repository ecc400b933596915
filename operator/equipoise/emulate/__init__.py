"""The engine model in real time behind real sockets: what stands in for GPUs in the demo and in tests."""
