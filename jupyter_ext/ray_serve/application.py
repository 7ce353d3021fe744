"""Builds the Ray Serve application. ``jupyter_ext.ray_serve.application:build`` is the ``import_path`` in a
``serve.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent_kernel.core.errors import InvalidRequest
from jupyter_ext.ray_serve.replica import ModelReplica, ReplicaOptions

if TYPE_CHECKING:
    from ray.serve import Application

ROUTER = "ray.serve.experimental.consistent_hash_router:ConsistentHashRouter"
"""Ray's router that sends all requests with the same ``x-session-id`` to the same replica. If that replica is busy, the
request goes to the next one of the ring. Requests without the header are spread over all replicas."""
REQUESTS_AT_ONCE = 16
"""Requests that one replica runs at once, as many as a model of this package decodes in one batch. Others wait in
Serve's proxy."""
REQUESTS_WAITING = 256
"""Requests that wait in one proxy of Serve, as many as wait for a model of this package. Serve refuses more with
503."""
SHUTDOWN_S = 120.0
"""Seconds that a replica which Serve removes has for the answers that it has begun."""


def build(args: Mapping[str, Any]) -> Application:
    """Return the application. It has one deployment, ``Model``, whose options (resources, replicas, autoscaling) can be
    set in the ``serve.yaml``. ``args`` are the fields of ReplicaOptions. Raises InvalidRequest."""
    options = ReplicaOptions.from_args(args)
    try:
        from ray import serve
        from ray.serve.config import RequestRouterConfig
    except ImportError as error:
        raise InvalidRequest(
            f"Ray Serve cannot be loaded: {error}.", hint="Install it: pip install 'agent-kernel[ray]'"
        ) from error

    deployment = serve.deployment(ModelReplica).options(
        name="Model",
        max_ongoing_requests=REQUESTS_AT_ONCE,
        max_queued_requests=REQUESTS_WAITING,
        graceful_shutdown_timeout_s=SHUTDOWN_S,
        request_router_config=RequestRouterConfig(request_router_class=ROUTER),
    )
    return deployment.bind(options)
