"""The translator over HTTP: LibreTranslate's API and our own, batches across requests, limits, a page."""
