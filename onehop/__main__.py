"""`python -m onehop` is the `onehop` command."""

import signal


def main() -> None:
    # There is nothing to tidy up while modules are imported: Ctrl-C ends the process without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from onehop.cli import main as run

    run()


if __name__ == "__main__":
    main()
