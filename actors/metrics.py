"""The numbers of a pipeline for Prometheus, over HTTP on the loopback. Imported only when asked for.

    pipeline's hub --Status--> Metrics.update ... Metrics' own thread --text--> whoever asks at /metrics

The two threads share one reference to an immutable message, so neither waits for the other. Labels are names of actors,
states and stages: no file names, no job ids, nothing of what was said.
"""

from __future__ import annotations

import re
import socket
import socketserver
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from susurrus.models.errors import OptionError
from susurrus.protocol import Status

try:
    from prometheus_client import CollectorRegistry, Metric, make_wsgi_app
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        InfoMetricFamily,
        SummaryMetricFamily,
    )
    from prometheus_client.registry import Collector
except ModuleNotFoundError:
    fix = "python -m pip install 'susurrus[metrics]'"
    raise OptionError(f"--metrics: prometheus-client is not installed; run: {fix}") from None

SLOWEST_CLIENT_S = 2.0  # between two bytes; there is one thread for all
POLL_S = 0.1  # between two looks whether to end
_ADDRESS = re.compile(r"(?:(127\.0\.0\.1|\[::1\]):)?([0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `PORT`, `127.0.0.1:PORT` or `[::1]:PORT`; port 0 is any that is free.

    Raises:
        OptionError: it is none of these.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[2]) > 65535:
        raise OptionError(f"--metrics {text}: give PORT, 127.0.0.1:PORT or [::1]:PORT; other machines are not served")
    return (found[1] or "127.0.0.1").strip("[]"), int(found[2])


class Metrics(Collector):
    """The endpoint, from its making to `close`. A context manager."""

    def __init__(self, address: str) -> None:
        """Listen. Until the first `update` the answer is empty.

        Args:
            address: see `parse_address`.

        Raises:
            OptionError: the address is none, or taken.
        """
        host, port = parse_address(address)
        self._status: Status | None = None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server = _Server((host, port), _Handler)
        except OSError as error:
            raise OptionError(f"--metrics {address}: cannot listen there ({error.strerror}); 0 picks a port") from None
        self._server.set_app(make_wsgi_app(registry))
        bound = f"[{host}]" if ":" in host else host
        self.url = f"http://{bound}:{self._server.server_port}/metrics"
        """Where to ask."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), name="susurrus-metrics", daemon=True
        )
        self._thread.start()

    def update(self, status: Status) -> None:
        """From now on these are the numbers (any thread)."""
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks a collector for (the endpoint's thread)."""
        status = self._status
        return iter(()) if status is None else families(status)

    def close(self) -> None:
        """Stop listening. Idempotent."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def families(status: Status) -> Iterator[Metric]:
    """The numbers of a status as Prometheus names them (prometheus.io/docs/practices/naming)."""
    yield InfoMetricFamily("susurrus", "This pipeline.", {"version": status.package, "model": status.model})
    yield GaugeMetricFamily("susurrus_uptime_seconds", "Since the pipeline began.", status.uptime_s)
    yield from _actors(status)
    jobs = GaugeMetricFamily("susurrus_jobs", "Jobs at the moment.", labels=["state"])
    ended = CounterMetricFamily("susurrus_jobs_ended", "Jobs that ended, or were not taken.", labels=["state"])
    for state, count in status.jobs.items():
        (jobs if state in ("queued", "running") else ended).add_metric([state], count)
    yield from (jobs, ended)
    yield from _latencies(status)
    yield CounterMetricFamily("susurrus_audio_seconds", "Audio of windows that are done.", status.audio_s)
    yield CounterMetricFamily("susurrus_busy_seconds", "Time in which at least one job ran.", status.busy_s)
    yield CounterMetricFamily("susurrus_bad_frames", "Messages the hub refused.", status.bad_frames)
    yield GaugeMetricFamily("susurrus_subscribers", "Subscriptions to events.", status.subscribers)


def _actors(status: Status) -> Iterator[Metric]:
    state = GaugeMetricFamily("susurrus_actor_state", "1 for the state it is in.", labels=["actor", "state"])
    restarts = CounterMetricFamily("susurrus_actor_restarts", "Times it was started again.", labels=["actor"])
    backlog = GaugeMetricFamily("susurrus_actor_backlog", "Work that waits in its inbox.", labels=["actor"])
    memory = GaugeMetricFamily("susurrus_actor_resident_memory_bytes", "Resident memory.", labels=["actor"])
    cpu = CounterMetricFamily("susurrus_actor_cpu_seconds", "Processor time of its process.", labels=["actor"])
    for actor in status.actors:
        for name in ("starting", "ready", "working", "restarting"):
            state.add_metric([actor.name, name], float(actor.state == name))
        restarts.add_metric([actor.name], actor.restarts)
        backlog.add_metric([actor.name], actor.backlog)
        if actor.rss_bytes:
            memory.add_metric([actor.name], actor.rss_bytes)
            cpu.add_metric([actor.name], actor.cpu_s)
    yield from (state, restarts, backlog, memory, cpu)


def _latencies(status: Status) -> Iterator[Metric]:
    """Summaries. Quantiles are of the last values, count and sum of all, as Prometheus has it."""
    stages = SummaryMetricFamily("susurrus_stage_seconds", "Work on one window.", labels=["stage"])
    first = SummaryMetricFamily("susurrus_first_partial_seconds", "From Submit to the first text of a job.")
    for name, values in status.latency.items():
        family, labels = (first, {}) if name == "first_partial" else (stages, {"stage": name})
        for quantile, key in (("0.5", "p50"), ("0.9", "p90"), ("0.99", "p99")):
            family.add_sample(family.name, {**labels, "quantile": quantile}, values[key])
        family.add_metric(list(labels.values()), int(values["count"]), values["sum"])
    yield from (stages, first)


class _Server(WSGIServer):
    """One request after another: a client that is slow keeps its like waiting, and nobody else."""

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """As HTTPServer does, but without asking the name service what this machine is called."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]
        self.setup_environ()

    def handle_error(self, *_: Any) -> None:
        """A client that went away is none of our business."""


class _Handler(WSGIRequestHandler):
    timeout = SLOWEST_CLIENT_S

    def log_message(self, *_: Any) -> None:
        """Standard error is for people."""
