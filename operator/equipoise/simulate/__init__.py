"""A fleet in virtual time, against the same decide/."""
