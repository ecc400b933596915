"""Carrying a rollout out: from the world to `decide.rollout` and back, with its memory in status."""
