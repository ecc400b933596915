"""Reading raw objects into what the reconciler thinks in: engine pods and variants."""
