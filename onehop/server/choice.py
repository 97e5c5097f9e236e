"""Which of the server's models translate which languages, by the quality that a request asks for."""

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
    """What translates each pair: the full models, the small ones and, where no quality is asked for, the first."""
    small = [service for service in services if service.models[0].endswith(SMALL)]
    full = [service for service in services if service not in small]
    forms: dict[Quality | None, Sequence[Service]] = {None: services, "best": full, "fast": small}
    return {quality: _routes(first_of_each_pair(form)) for quality, form in forms.items()}


def _routes(models: Mapping[Pair, Service]) -> Routes:
    """By one model or by two."""
    legs = {pair: [models[leg] for leg in legs] for pair, legs in all_routes(models).items()}
    return {pair: each[0] if len(each) == 1 else PivotService(*each) for pair, each in legs.items()}
