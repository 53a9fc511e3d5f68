from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def tidy(
    room: str,
    depth: int = 2,
    hard: Annotated[bool, typer.Option("--hard", "-H")] = False,
    log_file: Annotated[str, typer.Option(help="Where to write.")] = "",
):
    typer.echo(room)


@app.command()
def sort(names: Annotated[list[str], typer.Argument()], reverse: bool = typer.Option(False)):
    typer.echo(names)


def helper(not_a_flag: int = 3):
    return not_a_flag


if __name__ == "__main__":
    app()
