"""One leader at a time, by a Lease: a pure election, and the thin loop that talks to the API server."""
