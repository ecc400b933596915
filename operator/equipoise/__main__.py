"""`python -m equipoise`: the same as the `equipoise` command."""

from equipoise.cli.main import app

if __name__ == "__main__":
    app()
