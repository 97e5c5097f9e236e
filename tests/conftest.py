"""Every test runs with the types and shapes in the signatures checked."""

import pkgutil

from jaxtyping import install_import_hook

import onehop

# Settings check themselves, in words; the command line is checked by typer.
CHECKED_BY_THEMSELVES = {"errors", "config", "cli", "presets", "__main__"}

modules = [m.name for m in pkgutil.iter_modules(onehop.__path__) if m.name not in CHECKED_BY_THEMSELVES]
install_import_hook(
    [f"onehop.{name}" for name in modules], "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"
)
