"""The command line: equipoise plan, simulate, explain, status, demo."""
