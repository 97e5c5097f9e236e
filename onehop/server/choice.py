"""The server's models for each language pair and quality."""

from collections.abc import Mapping, Sequence

from onehop.pipelines.route import Pair, all_routes
from onehop.server.pivot import PivotService
from onehop.server.service import Service, Translating
from onehop.storage.registry import SMALL, Quality

Routes = dict[Pair, Translating]


def first_of_each_pair(services: Sequence[Service]) -> dict[Pair, Service]:
    models: dict[Pair, Service] = {}
    for service in services:
        models.setdefault((service.source, service.target), service)
    return models


def routes_by_quality(services: Sequence[Service]) -> dict[Quality | None, Routes]:
    """The models for each pair: the full ones, the small ones and, without a quality, the first of each pair."""
    small = [service for service in services if service.models[0].endswith(SMALL)]
    full = [service for service in services if service not in small]
    forms: dict[Quality | None, Sequence[Service]] = {None: services, "best": full, "fast": small}
    return {quality: _routes(first_of_each_pair(form)) for quality, form in forms.items()}


def _routes(models: Mapping[Pair, Service]) -> Routes:
    """Routes of one model or of two."""
    routes = {pair: [models[leg] for leg in legs] for pair, legs in all_routes(models).items()}
    return {pair: legs[0] if len(legs) == 1 else PivotService(*legs) for pair, legs in routes.items()}
