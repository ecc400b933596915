"""How a new revision replaces an old one over both phases together. Pure policy: `plan` is one step, `state` the whole story."""
