"""Beyond one machine, by Ray: bulk translation, sharded stores and training on the nodes of a cluster.

It knows how work is spread and what happens when a node dies; what the work is, the packages below know.
"""

__all__ = ["joined", "prepare_on_cluster", "translate_on_cluster"]

from onehop.cluster.connection import joined
from onehop.cluster.prepare import prepare_on_cluster
from onehop.cluster.translate import translate_on_cluster
