"""`equipoise plan`: what a fleet can serve, where, and at what cost, by the functions that the operator decides with."""
