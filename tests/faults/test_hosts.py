"""Programs of somebody else's that have a pipeline in them: of every kind, ill-behaved, and in odd time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import soundfile

from susurrus.actors import Client, Pipeline, PipelineError
from susurrus.protocol import Connection
from susurrus.protocol.runtime import is_live
from tests.actors.fakes import PATIENCE_S, PLAIN, RATE, sounds
from tests.conftest import ROOT
from tests.faults.scripted import Fault, command_for, interpreter


def run_host(tmp_path: Path, script: str, *arguments: str | Path, command: tuple[str, ...] = ()) -> str:
    """Run a program; give its output. Warnings are errors in it."""
    path = tmp_path / "host.py"
    path.write_text(textwrap.dedent(script))
    command = command or (sys.executable, "-W", "error", str(path))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=100, check=False, env=environment
    )
    assert (result.returncode, result.stderr) == (0, ""), result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half a second."""
    path = tmp_path_factory.mktemp("short") / "clip.wav"
    soundfile.write(path, sounds(0.5), RATE)
    return path


@pytest.mark.fault(47)
def test_a_script_without_a_main_guard(tiny: Path, tmp_path: Path, short: Path) -> None:
    script = """
        import sys
        from susurrus.actors import Pipeline
        with Pipeline(sys.argv[1]) as pipeline:
            print([type(event).__name__ for event in pipeline.transcribe(sys.argv[2])][-1])
    """
    assert run_host(tmp_path, script, tiny, short) == "Done\n"


@pytest.mark.fault(47)
def test_a_daemonic_worker(tiny: Path, tmp_path: Path, short: Path) -> None:
    script = """
        import multiprocessing, sys
        from susurrus.actors import Pipeline

        def work(model, clip, queue):
            with Pipeline(model) as pipeline:
                queue.put([type(event).__name__ for event in pipeline.transcribe(clip)][-1])

        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            worker = context.Process(target=work, args=(*sys.argv[1:3], queue), daemon=True)
            worker.start()
            print(queue.get(timeout=90))
            worker.join()
    """
    assert run_host(tmp_path, script, tiny, short) == "Done\n"


@pytest.mark.fault(47)
def test_a_host_with_zeromq_sessions_and_forks_of_its_own(tiny: Path, tmp_path: Path, short: Path) -> None:
    script = """
        import os, sys
        from pathlib import Path
        import onnxruntime, zmq
        from susurrus.actors import Pipeline

        context = zmq.Context.instance()
        socket = context.socket(zmq.PUB)
        socket.bind("inproc://host")
        session = onnxruntime.InferenceSession(str(Path(sys.argv[1]) / "int8" / "self_test.onnx"))

        def last(pipeline):
            return [type(event).__name__ for event in pipeline.transcribe(sys.argv[2])][-1]

        def forked(what):
            pid = os.fork()
            if pid == 0:
                what()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0

        def child():
            with Pipeline(sys.argv[1]) as pipeline:
                assert last(pipeline) == "Done"

        forked(child)
        with Pipeline(sys.argv[1]) as pipeline:
            assert last(pipeline) == "Done"
            forked(lambda: None)
            print(last(pipeline))
        assert zmq.Context.instance() is context and not context.closed and not socket.closed
        socket.close()
        context.term()
    """
    assert run_host(tmp_path, script, tiny, short) == "Done\n"


@pytest.mark.fault(47)
def test_a_thread_and_an_event_loop(tiny: Path, short: Path) -> None:
    async def main() -> list[str]:
        with Pipeline(tiny, threads=1) as pipeline:
            async with asyncio.timeout(2 * PATIENCE_S):
                return [type(event).__name__ async for event in pipeline.stream(short, **PLAIN)]

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: asyncio.run(main())).result(3 * PATIENCE_S)[-1] == "Done"


@pytest.mark.fault(47)
def test_workers_of_pytest_xdist(tiny: Path, tmp_path: Path, short: Path) -> None:
    (tmp_path / "test_user.py").write_text(
        textwrap.dedent(f"""
        import pytest
        from susurrus.actors import Pipeline

        @pytest.mark.parametrize("n", range(2))
        def test_transcribes(n):
            with Pipeline({str(tiny)!r}, threads=1) as pipeline:
                assert type(list(pipeline.transcribe({str(short)!r}))[-1]).__name__ == "Done"
        """)
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    pytest_command = (sys.executable, "-m", "pytest", "-q", "-n2", "-p", "no:cacheprovider", str(tmp_path))
    assert "2 passed" in run_host(tmp_path, "", command=pytest_command)


@pytest.mark.fault(48)
def test_an_exception_inside_the_block_closes_everything_and_passes(tiny: Path, clip: Path, tmp_path: Path) -> None:
    endless = Fault("decoder", "token", deed="wait", window=0)
    pipeline = Pipeline(tiny, python=interpreter(tmp_path / "faults", [endless]))
    events = pipeline.transcribe(clip, **PLAIN)

    def use() -> None:
        with pipeline:
            next(events)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()
    assert pipeline.pids() == {}
    with pytest.raises(PipelineError, match="stopped"):
        list(events)


@pytest.mark.fault(49)
def test_an_interpreter_that_exits_with_its_pipeline_open_leaves_nothing(
    tiny: Path, tmp_path: Path, short: Path
) -> None:
    script = """
        import sys
        from susurrus.actors import Pipeline
        pipeline = Pipeline(sys.argv[1]).start()
        events = pipeline.transcribe(sys.argv[2])
        next(events)
        print(pipeline.connection.folder, *pipeline.pids().values())
    """
    folder, *pids = run_host(tmp_path, script, tiny, short).split()
    assert not Path(folder).exists()
    assert len(pids) == 3
    # Not by their ids, which others may have by now.
    assert not [each for each in psutil.process_iter(["cmdline"]) if folder in " ".join(each.info["cmdline"] or ())]


@pytest.mark.fault(13, 41)
def test_a_host_that_is_killed_takes_its_actors_along_and_the_next_start_cleans_up(tiny: Path, tmp_path: Path) -> None:
    script = """
        import sys
        from susurrus.actors import Pipeline
        pipeline = Pipeline(sys.argv[1]).start()
        pipeline.wait_until_ready()
        print(pipeline.connection.folder, *pipeline.pids().values(), flush=True)
        sys.stdin.read()
    """
    (tmp_path / "host.py").write_text(textwrap.dedent(script))
    command = [sys.executable, str(tmp_path / "host.py"), str(tiny)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        folder, *pids = host.stdout.readline().split()
        children = [psutil.Process(int(pid)) for pid in pids]
        host.kill()
    assert psutil.wait_procs(children, timeout=PATIENCE_S)[1] == []
    assert not is_live(Path(folder))
    with pytest.raises(PipelineError):
        Client(Connection.read(Path(folder) / "connection.json"))
    with Pipeline(tiny):
        assert not Path(folder).exists()


JUMPING = """
import itertools, time

_real, _reads = time.time, itertools.count()

def jumping():
    '''A day ahead, a day back, and right, in turns of seven readings.'''
    return _real() + 86_400 * (next(_reads) // 7 % 3 - 1)

time.time = jumping
time.time_ns = lambda: int(jumping() * 1e9)
"""


@pytest.mark.fault(50)
def test_a_wall_clock_that_jumps_by_a_day_both_ways_changes_nothing(
    tiny: Path, clip: Path, undisturbed: str, tmp_path: Path
) -> None:
    """In every process: limits, pings, beats, deadlines and restarts go by the monotonic clock."""
    (tmp_path / "jumping.py").write_text(JUMPING)
    (tmp_path / "shifted.py").write_text(
        "import runpy, sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import jumping\n"
        "position = sys.argv.index('-m')\n"
        "sys.argv = sys.argv[position + 1 :]\n"
        "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)\n"
    )
    python = command_for(tmp_path / "shifted.py")
    script = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import jumping
        from susurrus.actors import Pipeline
        from susurrus.protocol import Done, newest_live
        from tests.actors.fakes import OPTIONS
        from tests.faults.conftest import QUICK
        with Pipeline(sys.argv[1], threads=1, python={str(python)!r}, limits=QUICK) as pipeline:
            pipeline.wait_until_ready()
            before = pipeline.pids()
            assert newest_live() is not None
            for _ in range(5):
                with pipeline.client() as client:
                    job = client.submit(sys.argv[2], options=OPTIONS, deadline_s=600.0)
                    done = list(client.follow(job))[-1]
                print(done.text)
                assert done.timings["total"] < 600
            assert pipeline.pids() == before
    """
    assert run_host(tmp_path, script, tiny, clip) == f"{undisturbed}\n" * 5
