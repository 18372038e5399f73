"""The numbers over HTTP: what Prometheus reads is what the status says, on the loopback alone."""

from __future__ import annotations

import importlib
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from susurrus.actors.metrics import Metrics, parse_address
from susurrus.actors.status import ask
from susurrus.models.errors import OptionError
from susurrus.protocol import ActorStatus, Status
from tests.actors.fakes import PATIENCE_S, House

STATUS = Status(
    package="1.2.3",
    model="base",
    uptime_s=99.5,
    actors=(
        ActorStatus("hub", 1, "ready", 0, 0, 50_000_000, 1.5),
        ActorStatus("decoder", 2, "working", 3, 2, 200_000_000, 12.25),
        ActorStatus("encoder", 0, "restarting", 1, 0, 0, 0.0),
    ),
    jobs={"queued": 4, "running": 2, "done": 7, "failed": 1, "cancelled": 3, "rejected": 5},
    latency={
        "decoder": {"p50": 0.5, "p90": 0.75, "p99": 1.5, "count": 1200.0, "sum": 700.25},
        "first_partial": {"p50": 1.5, "p90": 2.5, "p99": 3.5, "count": 9.0, "sum": 15.0},
    },
    audio_s=3600.0,
    busy_s=300.5,
    bad_frames=6,
    subscribers=8,
)

Labels = tuple[tuple[str, str], ...]


@pytest.fixture
def endpoint() -> Iterator[Metrics]:
    """One at a port of its own."""
    with Metrics("0") as metrics:
        yield metrics


def scrape(url: str) -> dict[tuple[str, Labels], float]:
    """As Prometheus does: every sample by its name and its labels."""
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:  # noqa: S310 - ours
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
    assert len(found) == len(samples)
    return found


def of(name: str, **labels: str) -> tuple[str, Labels]:
    return name, tuple(sorted(labels.items()))


def test_what_is_read_is_what_the_status_says(endpoint: Metrics) -> None:
    assert scrape(endpoint.url) == {}
    endpoint.update(STATUS)
    found = scrape(endpoint.url)
    wanted = {
        of("susurrus_info", version="1.2.3", model="base"): 1,
        of("susurrus_uptime_seconds"): 99.5,
        of("susurrus_audio_seconds_total"): 3600,
        of("susurrus_busy_seconds_total"): 300.5,
        of("susurrus_bad_frames_total"): 6,
        of("susurrus_subscribers"): 8,
        of("susurrus_first_partial_seconds", quantile="0.9"): 2.5,
        of("susurrus_first_partial_seconds_count"): 9,
        of("susurrus_first_partial_seconds_sum"): 15,
    }
    for actor in STATUS.actors:
        wanted[of("susurrus_actor_restarts_total", actor=actor.name)] = actor.restarts
        wanted[of("susurrus_actor_backlog", actor=actor.name)] = actor.backlog
        wanted[of("susurrus_actor_state", actor=actor.name, state=actor.state)] = 1
        if actor.rss_bytes:
            wanted[of("susurrus_actor_resident_memory_bytes", actor=actor.name)] = actor.rss_bytes
            wanted[of("susurrus_actor_cpu_seconds_total", actor=actor.name)] = actor.cpu_s
    for state, count in STATUS.jobs.items():
        name = "susurrus_jobs" if state in ("queued", "running") else "susurrus_jobs_ended_total"
        wanted[of(name, state=state)] = count
    for quantile, value in (("0.5", 0.5), ("0.9", 0.75), ("0.99", 1.5)):
        wanted[of("susurrus_stage_seconds", stage="decoder", quantile=quantile)] = value
    wanted[of("susurrus_stage_seconds_count", stage="decoder")] = 1200
    wanted[of("susurrus_stage_seconds_sum", stage="decoder")] = 700.25
    assert wanted.items() <= found.items()
    for actor in STATUS.actors:
        states = [
            value for (name, labels), value in found.items() if ("actor", actor.name) in labels and "state" in name
        ]
        assert sorted(states) == [0, 0, 0, 1]


def test_no_name_of_a_process_or_machine_is_in_it(endpoint: Metrics) -> None:
    endpoint.update(STATUS)
    names = {label for _, labels in scrape(endpoint.url) for label, _ in labels}
    assert names == {"actor", "state", "stage", "quantile", "version", "model"}
    assert {name.split("_")[0] for name, _ in scrape(endpoint.url)} == {"susurrus"}


def test_the_document_lists_every_metric_with_its_type_and_labels(endpoint: Metrics) -> None:
    endpoint.update(STATUS)
    document = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(susurrus_\w+)` \| (\w+) \| ([^|]*?) ?\|", document, re.MULTILINE)
    listed = {(name, kind, tuple(sorted(re.findall(r"\w+", labels)))) for name, kind, labels in rows}
    suffixes = {"counter": "_total", "info": "_info"}
    served = set()
    for family in endpoint.collect():
        labels = {label for sample in family.samples for label in sample.labels}
        kind = "gauge" if family.type == "info" else family.type
        served.add((family.name + suffixes.get(family.type, ""), kind, tuple(sorted(labels))))
    assert listed == served


def test_a_hub_publishes_its_numbers_as_it_beats(endpoint: Metrics, house: House) -> None:
    house.hub.on_status = endpoint.update
    house.start_line()
    watchers = [house.subscriber() for _ in range(2)]
    while (found := scrape(endpoint.url)).get(of("susurrus_subscribers")) != len(watchers):
        assert house.thread.is_alive()
    assert found[of("susurrus_jobs", state="running")] == ask(house.connection, PATIENCE_S).jobs["running"]
    assert found[of("susurrus_actor_state", actor="decoder", state="ready")] == 1


@pytest.mark.parametrize(
    "text", ["", "http", "-1", "65536", "0.0.0.0:80", "[::]:80", "localhost:80", "10.0.0.7:9", "1:2"]
)
def test_nothing_but_the_loopback_is_listened_on(text: str) -> None:
    with pytest.raises(OptionError, match=r"--metrics .*127\.0\.0\.1:PORT"):
        parse_address(text)


def test_addresses_of_the_loopback_are_taken() -> None:
    assert [parse_address(text) for text in ("9100", "127.0.0.1:0", "[::1]:65535")] == [
        ("127.0.0.1", 9100),
        ("127.0.0.1", 0),
        ("::1", 65535),
    ]
    with Metrics("0") as metrics:
        assert metrics._server.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_the_loopback_of_ipv6_is_served_as_well() -> None:
    try:
        metrics = Metrics("[::1]:0")
    except OptionError as error:
        pytest.skip(str(error))
    with metrics:
        metrics.update(STATUS)
        assert metrics.url.startswith("http://[::1]:")
        assert scrape(metrics.url)[of("susurrus_subscribers")] == 8


def test_a_port_that_is_taken_is_one_line(endpoint: Metrics) -> None:
    port = endpoint.url.split(":")[-1].split("/")[0]
    with pytest.raises(OptionError, match=f"--metrics {port}: cannot listen there") as raised:
        Metrics(port)
    assert "\n" not in str(raised.value)


def test_a_port_is_free_again_after_the_end() -> None:
    with Metrics("0") as metrics:
        port = metrics.url.split(":")[-1].split("/")[0]
    metrics.close()
    with Metrics(port) as again:
        assert scrape(again.url) == {}


def test_a_client_that_says_nothing_keeps_nobody_waiting_for_good(endpoint: Metrics) -> None:
    endpoint.update(STATUS)
    with closing(socket.create_connection(("127.0.0.1", endpoint._server.server_port))):
        assert scrape(endpoint.url)[of("susurrus_subscribers")] == 8


def test_without_its_package_it_is_refused_with_the_extra_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "susurrus.actors.metrics")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(OptionError, match=r"pip install 'susurrus\[metrics\]'"):
        importlib.import_module("susurrus.actors.metrics")


def test_who_does_not_ask_for_it_does_not_import_it() -> None:
    code = "import sys, susurrus.run; print({'prometheus_client', 'http.server'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
