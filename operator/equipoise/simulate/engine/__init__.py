"""The engine model: prefill and decode replicas, KV hand-over, routing and vLLM's metrics, without a clock of its own.

Whoever drives it says what time it is: `Cluster.advance_to(now)` and `Cluster.next_event_time()`. The simulator does so in
virtual time, the emulator in real time.
"""
