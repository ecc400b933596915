"""What to do: demand, lag, sizing, allocation, moves, explanation. Pure: no clock, no I/O, no Kubernetes.

The entrance is `equipoise.decide.decide.decide`.
"""
