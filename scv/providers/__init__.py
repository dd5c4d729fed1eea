"""Model endpoints behind the core's `Model` port.

`ModelEndpoints` owns connections and the embedded practice server; a model it
opens works as long as the block around it. Importing this package loads no
HTTP library: that happens at the first request, or in a model's `warm`.
"""

from scv.providers.endpoints import ModelEndpoints
from scv.providers.responses import ResponsesModel

__all__ = ["ModelEndpoints", "ResponsesModel"]
