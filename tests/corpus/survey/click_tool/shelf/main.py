import click


@click.group()
@click.option("--verbose/--quiet", default=False)
def cli(verbose):
    """A shelf of books."""


@cli.command()
@click.argument("title")
@click.option("-y", "--year", type=int, envvar="SHELF_YEAR")
def add(title, year):
    click.echo(f"{title} {year}")


if __name__ == "__main__":
    cli()
