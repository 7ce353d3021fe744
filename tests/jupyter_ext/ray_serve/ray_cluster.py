"""Runs a Ray cluster of two nodes on this machine, with the applications of a ``serve.yaml``; ends at the end of its
input. Runs in the environment of ``make build/ray/.test``.

    python ray_cluster.py SERVE_YAML DIRECTORY

Each line of the input is a command. ``replicas`` prints a JSON list of the running replicas: the process id, the node,
the number of requests that the replica is answering, and that of all requests that its engine has got.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.cluster_utils import Cluster

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}


def describe(replica: Any) -> dict[str, Any]:
    """Describe a replica; runs in its process."""
    engine = serve.get_replica_context().servable_object._engine
    return {"pid": os.getpid(), "node": ray.get_runtime_context().get_node_id(), "requests": len(engine.requests)}


def replicas() -> list[dict[str, Any]]:
    found = []
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["name"].startswith("SERVE_REPLICA::"):
            try:
                replica = ray.get_actor(**actor)
                ongoing = ray.get(replica.get_num_ongoing_requests.remote(), timeout=10)
                found.append(ray.get(replica.__ray_call__.remote(describe), timeout=10) | {"ongoing": ongoing})
            except (ValueError, ray.exceptions.RayError):
                continue  # it has ended, or has not started yet
    return found


def main(config: str, directory: str) -> None:
    cluster = Cluster(
        initialize_head=True, head_node_args={**NODE, "include_dashboard": False, "temp_dir": directory}, connect=False
    )
    cluster.add_node(**NODE)
    ray.init(address=cluster.address, namespace="serve", log_to_driver=False)
    command = [Path(sys.executable).parent / "serve", "run", "--address", cluster.address, config]
    running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        print(json.dumps([node["NodeID"] for node in ray.nodes() if node["Alive"]]), flush=True)
        for line in sys.stdin:
            if running.poll() is not None:
                sys.exit("serve run has ended")
            print(json.dumps(replicas() if line.strip() == "replicas" else None), flush=True)
    finally:
        running.terminate()
        running.wait(30)
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
