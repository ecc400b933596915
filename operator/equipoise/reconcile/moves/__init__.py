"""Carrying out moves: which counts to set, which pods to relabel, in which order. Mechanics, no policy."""
