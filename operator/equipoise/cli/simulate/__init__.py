"""`equipoise simulate`: a world, a controller, and what came of it."""
