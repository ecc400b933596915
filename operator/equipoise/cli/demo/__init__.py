"""`equipoise demo`: the whole loop on a real control plane, with emulated GPUs and traffic that turns."""
