"""`python -m equipoise`: the same as the command `equipoise`."""

from equipoise.cli.main import app

if __name__ == "__main__":
    app(prog_name="equipoise")
