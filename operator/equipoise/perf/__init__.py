"""How fast a phase runs on a device: step times, memory fit, capacity inside the targets."""
