"""Replicas per variant for every service at once: one problem, one answer, several solvers behind it."""
