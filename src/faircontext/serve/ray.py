"""The same application on Ray Serve: replicas of the model, as many as the requests that wait ask for.

Each replica has a model, a queue and a worker of its own, and computes with as many threads as this process, so its
answers are the same. A replica that dies is started again; what it was computing is lost, and nothing else.
"""

import logging
import os
from functools import partial
from typing import Any

import torch
from starlette.types import ASGIApp

from faircontext.errors import FairContextError
from faircontext.runs.options import Say
from faircontext.serve.app import create_app
from faircontext.serve.options import ServeOptions
from faircontext.serve.server import free_port, opened, until_terminated
from faircontext.serve.service import Service
from faircontext.system import usable_processors

__all__ = ["serve_on_ray"]

_NAME = "faircontext"


def serve_on_ray(options: ServeOptions, say: Say) -> int:
    """Answer requests on a cluster until the process is told to end, and return the exit code.

    Args:
        options: of the service.
        say: takes lines of the log.

    Raises:
        FairContextError: an option has a value that cannot be used, or the cluster failed.
    """
    import ray
    from ray import serve

    options.check()
    port = free_port(options)
    _start(ray)
    try:
        serve.start(
            proxy_location="HeadOnly",
            http_options={"host": options.host, "port": port, "request_timeout_s": _longest(options)},
            logging_config={"log_level": "ERROR", "enable_access_log": False},
        )
        serve.run(_deployment(serve, options).bind(), name=_NAME, route_prefix="/")
        say(opened(options.host, port))
        until_terminated()
    except (ray.exceptions.RayError, RuntimeError) as error:
        raise FairContextError(f"Ray Serve: {str(error).strip().splitlines()[-1]}") from None
    finally:
        serve.shutdown()
    say("faircontext: ended")
    return 0


def _longest(options: ServeOptions) -> float:
    """Return how many seconds a request may take in all."""
    return options.upload_timeout + options.timeout + 5.0


def _deployment(serve: Any, options: ServeOptions) -> Any:
    """Return the application as a deployment, which grows with the requests that wait."""
    threads = torch.get_num_threads()
    gpus = int(options.device.startswith("cuda"))
    return serve.deployment(
        name="model",
        ray_actor_options={"num_cpus": 0 if gpus else min(threads, usable_processors()), "num_gpus": gpus},
        max_ongoing_requests=options.queue,
        max_queued_requests=options.queue * options.replicas,
        graceful_shutdown_timeout_s=30,
        autoscaling_config={
            "min_replicas": 1,
            "max_replicas": options.replicas,
            "target_ongoing_requests": max(1, options.queue // 8),
        },
    )(serve.ingress(partial(_build, options, threads))())


def _build(options: ServeOptions, threads: int) -> ASGIApp:
    """Load the model in a replica, and return the application."""
    torch.set_num_threads(threads)
    return create_app(Service(options))


def _start(ray: Any) -> None:
    """Connect to the cluster that the environment names, or start one here."""
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    here = {"num_cpus": usable_processors() + 1, "include_dashboard": False, "object_store_memory": 256 * 2**20}
    ray.init(log_to_driver=False, logging_level=logging.ERROR, **({} if os.environ.get("RAY_ADDRESS") else here))
