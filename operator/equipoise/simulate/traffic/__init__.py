"""Offered load: who asks when, how long prompts and answers are. Published statistics, traces, and shapes over time."""
