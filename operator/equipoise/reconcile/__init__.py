"""Make it so: watching, server-side apply, moves, status, Events. Holds no policy."""
