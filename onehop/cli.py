"""The command line: `onehop VERB …`. Each verb imports what it needs when it runs, so that help comes at once."""

import json
import os
import sys
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from onehop import __version__
from onehop.config import Settings, load_settings, preset_names, settings_to_toml, with_changes
from onehop.errors import OnehopError, SettingsError, TextError


class OneLineErrors(TyperGroup):
    """The verbs; an error that the user can put right is one line and exit status 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except OnehopError as e:
            if ctx.params["debug"]:
                traceback.print_exc()
            else:
                typer.echo(f"onehop: {' '.join(str(e).split())}", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    name="onehop",
    cls=OneLineErrors,
    help="The Transformer of “Attention Is All You Need”: train it, translate with it, look inside it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # rich leaves out colours alone: bold and dim would still be there.
    rich_markup_mode=None if os.environ.get("NO_COLOR") else "rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

models_app = typer.Typer(no_args_is_help=True, help="The models that are installed.")
cache_app = typer.Typer(help="Models as converted for the fast engine.")
app.add_typer(models_app, name="models")
app.add_typer(cache_app, name="cache")
paper_app = typer.Typer(no_args_is_help=True, help="The paper's tables, measured here.")
app.add_typer(paper_app, name="paper")

SettingsArgument = Annotated[
    str, typer.Argument(metavar="SETTINGS", help=f"A preset ({', '.join(preset_names())}) or a TOML file.")
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a setting; may be repeated.")
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N; otherwise what is there.")]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="NAME_OR_FILE", help="A model file or an installed model; otherwise the only one."
    ),
]
Edits = Annotated[
    list[str] | None,
    typer.Option("--edit", metavar="NAME=VALUE", help="Switch a part off for this run, as scale=off; may be repeated."),
]
Sentences = Annotated[
    Path | None, typer.Option(help="Sentences to compare on, one a line; otherwise some that are built in.")
]


def print_version(wanted: bool) -> None:
    """`--version`."""
    if wanted:
        typer.echo(f"onehop {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options before the verb."""


def settings_of(name: str, changes: list[str] | None) -> Settings:
    """A preset or file, with the changes of `--set`."""
    return with_changes(load_settings(name), changes or [])


@app.command()
def config(settings: SettingsArgument, changes: Changes = None) -> None:
    """Print settings as TOML, each with a line of explanation."""
    typer.echo(settings_to_toml(settings_of(settings, changes)), nl=False)


@app.command()
def demo(
    folder: Annotated[Path | None, typer.Option("-o", help="Keep data, run and model here.")] = None,
) -> None:
    """Train a small Transformer in under a minute and translate with it."""
    from onehop import demo as demonstration

    demonstration.show(demonstration.demo(folder))


@app.command()
def digits(
    folder: Annotated[Path | None, typer.Option("-o", help="Keep data, run, model and picture here.")] = None,
    changes: Changes = None,
    device: Device = None,
) -> None:
    """Train a Transformer to read handwritten digits, and let it read some that it has never seen."""
    from onehop.digits import run

    outcome = run(folder, changes, device=device)
    if outcome is not None:
        typer.echo(f"{outcome.right} of {outcome.of} held-out digits read right: {outcome.share:.1%}")
        if folder is not None:
            typer.echo(f"{outcome.model}\n{outcome.picture}")


@app.command()
def prepare(
    out: Annotated[Path, typer.Option("-o", "--out", help="The store to make.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="TSV files, aligned files such as train.en train.de or train.{lang}, or - for a TSV on standard input;"
            " for settings with data.plain, text files."
        ),
    ] = None,
    settings: Annotated[str, typer.Option("-s", "--settings", help="A preset or a TOML file.")] = "base",
    languages: Annotated[str | None, typer.Option("-l", help="Source and target, such as en-de.")] = None,
    data: Annotated[Path | None, typer.Option(help=r"Folder that the files of the \[data] table lie in.")] = None,
    changes: Changes = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Use this SentencePiece model, or that of this onehop model, and learn none.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a store made from something else.")] = False,
    processes: Annotated[int | None, typer.Option(min=1, help="Worker processes; otherwise one a core.")] = None,
) -> None:
    """Turn raw parallel text into a token store: check, filter, learn the pieces, encode."""
    from onehop.display import PrepareDisplay
    from onehop.filters import report_to_text
    from onehop.prepare import prepare as make

    model = tokenizer_of(tokenizer) if tokenizer else None
    with PrepareDisplay() as shown:
        store = make(
            with_files(settings_of(settings, changes), files or [], languages),
            out,
            root=data,
            tokenizer=model,
            processes=processes,
            force=force,
            stdin=sys.stdin.buffer,
            progress=shown,
        )
    typer.echo(report_to_text(store.report))
    what = "pairs" if store.holds == "parallel text" else "texts"
    typer.echo(f"{out}: {len(store.pairs('train')):,} {what} to train on, {len(store.pairs('valid')):,} to validate on")


def with_files(settings: Settings, files: list[str], languages: str | None) -> Settings:
    """The settings with the files and languages of the command line, where it gives any."""
    from onehop.corpus import entries_from_names

    if settings.data.plain:
        one = languages or settings.data.target
        data = replace(settings.data, train=tuple(files) or settings.data.train, source=one, target=one)
        return replace(settings, data=data)
    entries, named = entries_from_names(files)
    pair = tuple(languages.split("-")) if languages else named or (settings.data.source, settings.data.target)
    if len(pair) != 2:
        raise TextError(f"-l {languages} does not name two languages.", "Write the source and the target: -l en-de.")
    source, target = pair
    return replace(
        settings, data=replace(settings.data, train=entries or settings.data.train, source=source, target=target)
    )


@app.command()
def train(
    settings: SettingsArgument,
    out: Annotated[Path, typer.Option("-o", "--out", help="The run folder, to begin or to go on in.")],
    store: Annotated[Path | None, typer.Option(help="A store that `onehop prepare` made.")] = None,
    data: Annotated[
        Path | None, typer.Option(help=r"Raw files of the \[data] table: prepared first, in OUT/store.")
    ] = None,
    changes: Changes = None,
    device: Device = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would take, and leave (raw files are prepared).")
    ] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")] = False,
    bleu_on: Annotated[int, typer.Option(min=0, help="Validation sentences translated for BLEU; 0: none.")] = 500,
) -> None:
    """Train a model; started again with the same command, it goes on as if never stopped."""
    from onehop import recipe
    from onehop.parallel import last_work

    chosen = settings_of(settings, changes)
    if dry_run:
        typer.echo(recipe.plan_to_text(recipe.dry_run(chosen, out, store=store, data=data, device=device), chosen))
        return
    with last_work(device):
        model = recipe.run(chosen, out, store=store, data=data, device=device, tensorboard=tensorboard, bleu_on=bleu_on)
        if model is not None and recipe.leads():
            typer.echo(model)


@app.command()
def average(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The model file to write.")],
    last: Annotated[int, typer.Option(min=1, help="So many of the last checkpoints.")] = 5,
) -> None:
    """Average a run's last checkpoints into a model file."""
    from onehop.recipe import average as average_run

    steps = average_run(run, last, out)
    typer.echo(f"{out}: the mean of the weights after steps {', '.join(map(str, steps))}")


@app.command()
def curves(
    run: Annotated[Path, typer.Argument(help="A run folder, or a metrics.jsonl.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The picture: .png or .svg.")] = Path("curves.svg"),
) -> None:
    """Draw a run's loss, validation scores and learning rate."""
    from onehop.curves import draw

    draw(run, out)
    typer.echo(out)


@app.command(name="verify-resume")
def verify_resume(
    folder: Annotated[Path | None, typer.Option("-o", "--out", help="Keep the runs here.")] = None,
    kills: Annotated[int, typer.Option(min=1, help="How often the run is killed.")] = 3,
    steps: Annotated[int, typer.Option(min=10, help="Length of the run.")] = 120,
    seed: Annotated[int, typer.Option(help="Of the moments of the kills.")] = 1,
) -> None:
    """Train, kill at random moments, resume, and compare with a run that was never stopped."""
    from onehop.verify import verify_resume as verify

    if not verify(folder, kills=kills, steps=steps, seed=seed, say=typer.echo):
        raise typer.Exit(1)


@app.command()
def translate(
    text: Annotated[
        str | None, typer.Argument(help="What to translate; otherwise --input, or standard input line by line.")
    ] = None,
    inputs: Annotated[
        list[Path] | None, typer.Option("--input", "-i", help="A text file, .gz .xz .zst too; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The file to write; it appears when complete.")
    ] = None,
    model: ModelName = None,
    source: Annotated[str | None, typer.Option(help="Language to translate from; the model must have it.")] = None,
    target: Annotated[str | None, typer.Option(help="Language to translate into; the model must have it.")] = None,
    beam: Annotated[int, typer.Option(help="Width of the beam; 1: greedy.")] = 4,
    alpha: Annotated[float, typer.Option(help="α of the length penalty |Y|^α; 0: none.")] = 0.6,
    n_best: Annotated[int, typer.Option(help="So many translations of each sentence, in --json.")] = 1,
    glossary: Annotated[
        Path | None, typer.Option(help="TSV of terms, source TAB target, that the translation should have.")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="A word not to be translated; may be repeated.")
    ] = None,
    whole_lines: Annotated[
        bool, typer.Option("--whole-lines", help="A line is one sentence: do not split it.")
    ] = False,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Sentences at a time; otherwise what suits the engine.")
    ] = None,
    compute: Annotated[Literal["int8", "float32"] | None, typer.Option(help="Otherwise what is fast.")] = None,
    engine: Annotated[
        Literal["auto", "ctranslate2", "torch"], typer.Option(help="auto: what is there, and has the options.")
    ] = "auto",
    device: Device = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Otherwise one a core.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For each line a JSON object with all details.")] = False,
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Which tokens come from which, in --json; takes longer.")
    ] = False,
) -> None:
    """Translate a text, files, or standard input line by line."""
    from onehop import pipe
    from onehop.installed import find_model
    from onehop.options import SearchOptions
    from onehop.paragraphs import ParagraphTranslator, max_length_of
    from onehop.segments import Terms, read_glossary
    from onehop.translator import Translator

    files = inputs or []
    if text is not None and files:
        raise SettingsError("Both a text and --input are given.", "Give one of them.")
    if n_best > 1 and not as_json:
        raise SettingsError(f"--n-best {n_best} has no room in plain text.", "Give --json too.")
    if alignments and not as_json:
        raise SettingsError("--alignments have no room in plain text.", "Give --json too.")
    pipe.check_readable(files)
    options = SearchOptions(beam=beam, alpha=alpha, n_best=n_best)
    terms = Terms(read_glossary(glossary) if glossary else [], keep or [])
    path = find_model(model, source, target)
    translator = ParagraphTranslator(
        Translator.load(path, device, engine=engine, compute=compute, threads=threads),
        max_length=max_length_of(path),
        options=options,
        terms=terms,
        whole_lines=whole_lines,
        batch_size=batch_size,
    )
    pipe.translate(
        translator,
        pipe.text_windows(text) if text is not None else pipe.file_windows(files) if files else pipe.stdin_windows(),
        out,
        lines=pipe.lines_in(files),
        shown=pipe.as_json(n_best, translator.translator if alignments else None) if as_json else pipe.as_text,
    )


@app.command()
def trace(
    text: Annotated[str, typer.Argument(help="A sentence.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The JSON file to write.")],
    model: ModelName = None,
    edits: Edits = None,
    beam: Annotated[int, typer.Option(help="Width of the beam; 1: greedy.")] = 4,
    alpha: Annotated[float, typer.Option(help="α of the length penalty |Y|^α; 0: none.")] = 0.6,
    limit: Annotated[int, typer.Option(min=1, help="Megabytes of tensors at most.")] = 32,
    device: Device = None,
) -> None:
    """Translate a sentence and write down every number on the way."""
    from onehop.installed import find_model
    from onehop.options import SearchOptions
    from onehop.trace import Tracer

    tracer = Tracer.load(find_model(model), device)
    found = tracer.trace(text, edits or [], SearchOptions(beam=beam, alpha=alpha), limit * 2**20)
    found.write(out)
    left_out = found.header["left_out"]
    typer.echo(found.text)
    typer.echo(f"{out}: {len(found)} tensors" + (f", {len(left_out)} left out for their size" if left_out else ""))


@app.command()
def explore(
    text: Annotated[str | None, typer.Argument(help="The sentence that the page opens with.")] = None,
    model: ModelName = None,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write the page as one HTML file and leave.")
    ] = None,
    edits: Edits = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Otherwise one that is free.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    device: Device = None,
) -> None:
    """Watch a translation from inside, in the browser or as one file."""
    from onehop.explorer import serving
    from onehop.explorer.content import SENTENCES, Explorer
    from onehop.explorer.notebook import View
    from onehop.installed import find_model
    from onehop.trace import Tracer

    sentence = SENTENCES[0] if text is None else text
    explorer = Explorer(Tracer.load(find_model(model), device), sentence)
    if export is None:
        serving.serve(explorer, port=port, browser=browser, say=typer.echo, edits=edits or [])
    else:
        View(explorer.alone(sentence, edits or [])).save(export)
        typer.echo(export)


@app.command()
def serve(
    models: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", metavar="NAME_OR_FILE", help="As for translate; may be repeated."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: everybody's.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 5000,
    workers: Annotated[int, typer.Option(min=1, help="Processes, each with the models of its own.")] = 1,
    keys: Annotated[
        Path | None, typer.Option(help="File of hashed API keys; ONEHOP_API_KEYS has more of them.")
    ] = None,
    make_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Make a key, print it with its line for the file, and leave.")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Pages that may call, or *; may be repeated.")
    ] = None,
    proxy: Annotated[
        str | None, typer.Option(metavar="ADDRESSES", help="Proxies whose X-Forwarded-For is believed.")
    ] = None,
    explore: Annotated[
        bool | None,
        typer.Option("--explore/--no-explore", help="Let clients look inside; otherwise on this machine alone."),
    ] = None,
    limits: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a limit (docs/serve.md); repeatable.")
    ] = None,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Write texts into the access log.")] = False,
    compute: Annotated[Literal["int8", "float32"] | None, typer.Option(help="Otherwise what is fast.")] = None,
    engine: Annotated[Literal["auto", "ctranslate2", "torch"], typer.Option(help="As for translate.")] = "auto",
    device: Device = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Otherwise one a core, shared by the workers.")] = None,
) -> None:
    """Serve translations over HTTP, with a page at / and LibreTranslate's API."""
    from onehop.server import start

    if make_key is not None:
        typer.echo("\n".join(start.new_key(make_key)))
        return
    more = {"keys_file": str(keys) if keys else None, "origins": tuple(cors or ()), "log_texts": log_texts}
    start.serve(
        start.models_of(models),
        start.limits_of(limits or [], **more),
        start.Doors(host=host, port=port, workers=workers, proxies=proxy, explore=explore),
        compute=compute,
        engine=engine,
        device=device,
        threads=threads,
    )


@models_app.command(name="list")
def list_models() -> None:
    """The models that have a name here."""
    from onehop.installed import list_installed

    for line in list_installed():
        typer.echo(line)


@models_app.command(name="show")
def show_model(model: Annotated[str, typer.Argument(metavar="NAME_OR_FILE", help="A model.")]) -> None:
    """What a model is and where it comes from; its hash is verified."""
    from onehop.installed import find_model, model_to_text

    typer.echo(model_to_text(find_model(model)), nl=False)


@models_app.command(name="write")
def write_again(
    model: Annotated[str, typer.Argument(metavar="NAME_OR_FILE", help="A model.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The model file to write.")],
    store: Annotated[
        Literal["float32", "bfloat16", "int8"] | None, typer.Option(help="Number format; otherwise as it is.")
    ] = None,
    shard: Annotated[
        float | None, typer.Option(min=0, metavar="MB", help="In several files of at most so many megabytes.")
    ] = None,
) -> None:
    """Write a model again, smaller or in parts: what trained in float32 ships as int8."""
    from onehop.installed import find_model
    from onehop.modelfile import read_model, write_model

    limit = None if shard is None else int(shard * 1e6)
    for part in write_model(out, read_model(find_model(model)), store=store, shard_bytes=limit):
        typer.echo(f"{part.stat().st_size / 1e6:>10,.1f} MB  {part}")


@cache_app.callback(invoke_without_command=True)
def show_cache(ctx: typer.Context) -> None:
    """Where models lie that were converted for the fast engine, and how large they are."""
    from onehop import cache

    if ctx.invoked_subcommand is None:
        sizes = cache.entries()
        for folder, size in sizes.items():
            typer.echo(f"{size / 1e6:>10,.1f} MB  {folder.relative_to(cache.cache_root())}")
        typer.echo(f"{sum(sizes.values()) / 1e6:>10,.1f} MB  in {cache.cache_root()}")


@cache_app.command(name="clear")
def clear_cache() -> None:
    """Empty the cache; it fills again by itself."""
    from onehop import cache

    typer.echo(f"{cache.clear() / 1e6:,.1f} MB freed in {cache.cache_root()}")


@app.command()
def doctor() -> None:
    """What this installation has, what is missing, and how to get it."""
    from onehop.doctor import report

    for line in report():
        typer.echo(line)


@app.command()
def generate(
    model: Annotated[str, typer.Option("--model", "-m", metavar="FILE", help="A decoder that onehop trained.")],
    prompt: Annotated[str, typer.Argument(help="The beginning; otherwise from nothing.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="At most so many tokens.")] = 200,
    temperature: Annotated[
        float, typer.Option(help="Below 1 sharper, above 1 flatter; 0: the likeliest each time.")
    ] = 0.8,
    top_k: Annotated[int, typer.Option(help="Only the k most probable tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Only the fewest tokens that reach this share.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="The same text again for the same seed.")] = 1,
    count: Annotated[int, typer.Option("-n", min=1, help="So many texts; one alone is shown as it grows.")] = 1,
    device: Device = None,
) -> None:
    """Continue a text, shown as it grows."""
    from onehop.generate import Writer, options_of

    writer = Writer.load(model, device)
    options = options_of(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, count=count)
    if count == 1:
        writer.write(prompt, options, tokens, lambda piece: typer.echo(piece, nl=False))
        typer.echo()
    else:
        for text in writer.write(prompt, options, tokens):
            typer.echo(text)


@app.command()
def embed(
    model: Annotated[str, typer.Option("--model", "-m", metavar="FILE", help="An encoder.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Sentences; otherwise --input, or standard input.")] = None,
    input_: Annotated[Path | None, typer.Option("--input", "-i", help="A file, one sentence a line.")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Save the vectors as .npy instead of printing.")
    ] = None,
    among: Annotated[
        Path | None, typer.Option("--nearest", metavar="FILE", help="Show the nearest lines of this file instead.")
    ] = None,
    count: Annotated[int, typer.Option("-n", min=1, help="So many of them.")] = 5,
    device: Device = None,
) -> None:
    """Turn sentences into vectors, or find the lines of a file that are nearest in meaning."""
    from onehop.embed import Embedder, neighbours, save, vector_lines
    from onehop.evaluate import lines_of

    sentences = texts or (lines_of(input_) if input_ else [line.rstrip("\n") for line in sys.stdin])
    others = lines_of(among) if among else None
    embedder = Embedder.load(model, device)
    vectors = embedder.vectors(sentences)
    if out is not None:
        typer.echo(save(vectors, out))
    elif others is None:
        typer.echo("\n".join(vector_lines(vectors)))
    else:
        typer.echo("\n".join(neighbours(vectors, embedder.vectors(others), sentences, others, count)))
    if embedder.cut:
        typer.echo(f"onehop: {embedder.cut} texts are longer than the model reads and were cut.", err=True)


@app.command()
def fill(
    text: Annotated[str, typer.Argument(help="A text with [MASK] where a word is wanted.")],
    model: Annotated[str, typer.Option("--model", "-m", metavar="FILE", help="An encoder that onehop trained.")],
    count: Annotated[int, typer.Option("-n", min=1, help="So many for each gap.")] = 5,
    device: Device = None,
) -> None:
    """Say what could stand in the gaps of a text."""
    from onehop.fill import Filler

    for gap in Filler.load(model, device).fill(text, count):
        for found in gap:
            typer.echo(f"{found.probability:6.1%}  {found.text}")


@app.command()
def evaluate(
    src: Annotated[Path | None, typer.Option(help="What was translated, one sentence a line.")] = None,
    ref: Annotated[Path | None, typer.Option(help="How it should be translated.")] = None,
    text: Annotated[
        Path | None, typer.Option(help="Plain text, a text a line: a decoder's perplexity on it, and nothing else.")
    ] = None,
    hyp: Annotated[Path | None, typer.Option(help="How it was translated.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model that translates it now.")] = None,
    against: Annotated[Path | None, typer.Option(help="Another system's translations, to compare with.")] = None,
    language: Annotated[
        str | None, typer.Option("-l", help="Target, for Moses; otherwise the model's, or from REF's name.")
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Of the bootstrap.")] = 1000,
    worst: Annotated[int, typer.Option(min=0, help="So many of the worst sentences are shown.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Score translations in every convention, with confidence, by length and sentence by sentence."""
    from onehop import evaluate as evaluation

    if text is not None:
        found = evaluation.perplexity(text, model)
        figures = {**asdict(found), "perplexity": found.perplexity, "bits_per_byte": found.bits_per_byte}
        typer.echo(json.dumps(figures, indent=1) if as_json else "\n".join(found.lines()))
        return
    if src is None or ref is None:
        raise SettingsError("There is nothing to evaluate.", "Give --src and --ref, or --text for a decoder.")
    report = evaluation.evaluate(
        src, ref, hyp=hyp, model=model, against=against, language=language, resamples=resamples, worst=worst
    )
    if as_json:
        typer.echo(json.dumps(asdict(report), ensure_ascii=False, indent=1))
    else:
        evaluation.show(report)


PaperOut = Annotated[Path, typer.Option("-o", "--out", help="The folder for table, picture and raw numbers.")]


@paper_app.command(name="table1")
def paper_table1(
    out: PaperOut,
    longest: Annotated[int, typer.Option(min=256, help="Greatest length.")] = 2048,
    widest: Annotated[int, typer.Option(min=128, help="Greatest width.")] = 512,
    repeats: Annotated[int, typer.Option(min=1, help="The fastest of so many runs counts.")] = 5,
) -> None:
    """What layers cost at growing n and d, and how far gradients reach."""
    from onehop.paper import report, table1

    found = table1.table1(
        [n for n in table1.LENGTHS if n <= longest], [d for d in table1.WIDTHS if d <= widest], repeats
    )
    told = {**report.origin("onehop paper table1"), **found}
    show_table(report.leave(out, "table1", told, table1.table_text(found), table1.picture(found)))


@paper_app.command(name="family")
def paper_family(
    out: Annotated[Path, typer.Option("-o", "--out", help="The picture, an .svg.")] = Path("family.svg"),
) -> None:
    """Which parts of the paper's model its relatives keep, drop and add."""
    from onehop.paper import family

    typer.echo(family.table_text())
    write_text(out, family.picture())


@paper_app.command(name="heads")
def paper_heads(
    out: PaperOut,
    source: Annotated[Path, typer.Option(help="Sentences, one a line.")],
    reference: Annotated[Path, typer.Option(help="How they should be translated.")],
    model: ModelName = None,
    sentences: Annotated[int, typer.Option(min=1, help="So many of them.")] = 300,
    device: Device = None,
) -> None:
    """What the heads of a model look at, and what is left without some of them."""
    from onehop.evaluate import aligned
    from onehop.installed import find_model
    from onehop.paper import heads, report
    from onehop.trace import Tracer

    sources, references = (lines[:sentences] for lines in aligned([source, reference]))
    tracer = Tracer.load(find_model(model), device)
    found = heads.heads(tracer, sources, references)
    files = f"--source {source.name} --reference {reference.name} --sentences {sentences}"
    command = f"onehop paper heads -m {model or tracer.about()['name']} {files}"
    told = {**report.origin(command), "model": tracer.about()["hash"], **found}
    show_table(report.leave(out, "heads", told, heads.table_text(found), heads.picture(found)))


@paper_app.command(name="table3")
def paper_table3(
    settings: SettingsArgument,
    out: PaperOut,
    rows: Annotated[str | None, typer.Option(help="Letters or names, such as A,E,dropout-0; otherwise all.")] = None,
    data: Annotated[Path | None, typer.Option(help=r"Folder that the files of the \[data] table lie in.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each row.")] = 1,
    changes: Changes = None,
    device: Device = None,
) -> None:
    """Train every variation of the model and put its scores beside the paper's; started again, it goes on."""
    from onehop.paper import report, table3

    chosen = settings_of(settings, changes)
    wanted = table3.chosen_rows(rows)
    found = table3.table3(chosen, out, wanted, data=data, seeds=seeds, device=device, say=typer.echo)
    if found is not None:
        command = " ".join(["onehop paper table3", Path(settings).name, *(f"--set {c}" for c in changes or [])])
        told = {**report.origin(f"{command} --seeds {seeds}"), **found}
        show_table(report.leave(out, "table3", told, table3.table_text(found), table3.picture(found)))


def show_table(files: list[Path]) -> None:
    """The table itself, and where it lies."""
    typer.echo(next(file for file in files if file.suffix == ".md").read_text(encoding="utf-8"))
    for file in files:
        typer.echo(file)


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    target: Annotated[str, typer.Option("--to", help="huggingface, onnx or ctranslate2.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to make.")],
    sentences: Sentences = None,
) -> None:
    """Write a model for another program, and prove that it translates the same."""
    from onehop import export as exports

    parity = exports.export(model, target, out, exports.sentences_of(sentences))
    typer.echo("\n".join([f"{out}: {model} for {target}", *parity.lines()]))


@app.command(name="import")
def import_(
    folder: Annotated[
        Path, typer.Argument(help="A Hugging Face folder: Marian, such as OPUS-MT, or BERT, such as MiniLM.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The model file to write.")],
    sentences: Sentences = None,
) -> None:
    """Make a model file of another program's model, and prove that it gives the same."""
    from onehop import export as exports

    parity = exports.import_folder(folder, out, exports.sentences_of(sentences))
    not_compared = ["not compared with the original: pip install 'onehop[export]'"]
    typer.echo("\n".join([f"{out}: {folder}", *(parity.lines() if parity else not_compared)]))


def tokenizer_of(name: str) -> bytes:
    """A SentencePiece model: the content of such a file, or what a model of ours has."""
    from onehop.installed import installed, named_model
    from onehop.modelfile import SUFFIX, read_model

    if name in installed() or name.endswith(SUFFIX):
        return read_model(named_model(name)).tokenizer
    return read_bytes(Path(name))


def write_text(file: Path, text: str) -> None:
    """Write a file, and say so."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as e:
        raise TextError(f"{file} cannot be written: {e.strerror}.", "Give another -o.") from None
    typer.echo(file)


def read_bytes(file: Path) -> bytes:
    """A file's content."""
    try:
        return file.read_bytes()
    except OSError as e:
        raise TextError(f"{file} cannot be read: {e.strerror}.", "Check the path.") from None


def main() -> None:
    """Run the command line. A closed pipe and Ctrl-C end it without a traceback: typer sees to that."""
    app()
