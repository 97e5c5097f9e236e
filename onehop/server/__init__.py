"""The translator over HTTP: LibreTranslate's API and our own, batches across requests, limits, a page.

It knows nothing of training or converters. Texts go through `pipelines`, as on the command line.
"""
