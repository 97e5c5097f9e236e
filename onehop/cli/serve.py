"""The command that serves translations over HTTP."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from onehop.cli.app import NAME_OR_FILE, USE, Device, WorkerThreads, app, machine_option


@app.command(rich_help_panel=USE)
def serve(
    models: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", **NAME_OR_FILE, help="Default: every installed model; repeatable."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: a free one.")] = 5000,
    workers: Annotated[int, typer.Option(min=1, help="Processes, each with its own copy of the models.")] = 1,
    keys: Annotated[Path | None, typer.Option(help="File of hashed API keys, beside those in ONEHOP_API_KEYS.")] = None,
    make_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Print a new key and its line for the file, and exit.")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Origin that may call, or *; repeatable.")
    ] = None,
    proxy: Annotated[
        str | None, typer.Option(metavar="ADDRESSES", help="Proxies whose X-Forwarded-For is trusted.")
    ] = None,
    explore: Annotated[
        bool | None,
        typer.Option("--explore/--no-explore", help="Allow the explorer and traces. Default: only on localhost."),
    ] = None,
    limits: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a limit (docs/reference/http.md); repeatable."),
    ] = None,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Write texts to the access log.")] = False,
    compute: Annotated[
        Literal["int8", "float32"] | None,
        machine_option(help="Default: int8 for CTranslate2, float32 for torch."),
    ] = None,
    engine: Annotated[
        Literal["auto", "ctranslate2", "torch"],
        machine_option(metavar="ENGINE", help="Engine, as for translate."),
    ] = "auto",
    device: Device = None,
    threads: WorkerThreads = None,
) -> None:
    """Serve translations over HTTP, with a page at / and LibreTranslate's API."""
    from onehop.server import auth, start

    if make_key is not None:
        key, line = auth.make(make_key)
        typer.echo(f"key, for the client (it is not stored): {key}\nline, for the file of --keys: {line}")
        return
    access = {"keys_file": str(keys) if keys else None, "origins": tuple(cors or ()), "log_texts": log_texts}
    start.serve(
        start.models_of(models),
        start.limits_of(limits or [], **access),
        start.ServeOptions(host=host, port=port, workers=workers, proxies=proxy, explore=explore),
        compute=compute,
        engine=engine,
        device=device,
        threads=threads,
    )
