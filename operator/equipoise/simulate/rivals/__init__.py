"""Controllers to compare with: each from its published description, and the operator itself behind the same interface."""
