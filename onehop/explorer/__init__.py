"""The explorer: a page that shows a translation from the inside, served, in one file or in a notebook.

It draws the traces of `interpret` and the measurements of `experiments`, and computes no translation itself.
"""
