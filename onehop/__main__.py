"""`python -m onehop` is the `onehop` command."""

from onehop.cli import main

main()
