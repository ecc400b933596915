"""The capacity loop: fleet, observations and memory in, decisions out, for all services together."""
