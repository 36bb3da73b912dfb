"""Several devices at once: who may use them, what the rows say of it, and that runs on one and on several are never mixed."""

import inspect
import re

import pandas as pd
import pytest
from builders import MATRICES, PEAKS, make_rows, make_sidecar, write_run, write_serving, write_sweep
from contracts import adapters
from pictures import shown, texts

from bench import backends, plots
from bench.backends import vllm
from bench.experiments import quality as quality_experiment
from bench.experiments import session
from bench.experiments import target as targets
from bench.machine import identity as identity_machine
from bench.observations import checks, derived, schema, store
from bench.paths import ROOT
from bench.topics import batching as batching_analysis
from bench.topics import latency as latency_analysis
from bench.topics import machines
from bench.topics import serving as serving_analysis
from bench.topics import systems as systems_analysis
from bench.workflow import plan

pytestmark = pytest.mark.early

GPU = {"gpu": "h100", "backend": "vllm"}
GIVEN = {
    "backend": "fake",
    "option": "",
    "model": "smollm2-135m",
    "device": "cpu",
    "gpu": "auto",
    "threads": 0,
    "url": "",
    "run": 0,
}


# Who may


def setup(tmp_path, needs, **given):
    """What the notebook's cells before loading do; the Setup."""
    made = session.Setup("latency", GIVEN | {"results": str(tmp_path)} | given, needs)
    made.close()
    return made


@pytest.mark.parametrize(
    ("needs", "given", "words"),
    [
        (
            "serve",
            {"backend": "llamacpp", "tensor_parallel": 2},
            "The backend llamacpp has no tensor parallelism through a server, so tensor_parallel must be 1. These have: ",
        ),
        (
            "load or serve",
            {"backend": "llamacpp", "tensor_parallel": 2},
            "The backend llamacpp has no tensor parallelism in process, so tensor_parallel must be 1. These have: fake, vllm.",
        ),
        (
            "serve",
            {"backend": "llamacpp", "data_parallel": 2},
            "no data parallelism through a server, so data_parallel must be 1. These have: fake, hf_endpoint, http, sglang, vllm.",
        ),
        ("load", {"tensor_parallel": 0}, "tensor_parallel must be 1 or more, not 0"),
        (
            "load",
            {"tensor_parallel": 64},
            "tensor_parallel 64 x data_parallel 1 takes 64 CPU threads, and there are",
        ),
        (
            "serve",
            {"tensor_parallel": 8, "data_parallel": 8},
            "tensor_parallel 8 x data_parallel 8 takes 64 CPU threads, and there are",
        ),
    ],
)
def test_who_cannot_is_refused_with_the_names_of_those_who_can(tmp_path, needs, given, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        setup(tmp_path, needs, **given)


def test_an_engine_whose_server_can_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(backends.get("fake").module, "PARALLEL", {"serve": ("tensor",)})
    with pytest.raises(ValueError, match="Its own server has it: -p server True"):
        setup(tmp_path, "load or serve", tensor_parallel=2, server=False)
    with pytest.raises(ValueError) as refused:  # batching.ipynb has no such parameter
        setup(tmp_path, "load", tensor_parallel=2)
    assert "server" not in str(refused.value)


def test_vllm_in_process_on_a_cpu_points_to_its_server():
    with pytest.raises(ValueError, match="with -p server True"):
        vllm.load(None, "bfloat16", "cpu", 2, 2)


def test_what_a_server_elsewhere_does_is_taken_as_given(tmp_path):
    made = setup(
        tmp_path,
        "serve",
        backend="http",
        url="http://localhost:1",
        gpu="h100",
        device="cuda",
        tensor_parallel=4,
        data_parallel=2,
    )
    assert made.target.devices == targets.Devices(4, 2) and "gpus" not in made.taken.machine


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "bench" / "backends").glob("[!_]*.py")))
def test_an_adapter_says_truly_how_it_uses_several_devices(name):
    module = backends.get(name).module
    shared = {part: backends.get(name).parallel(part) for part in ("load", "serve")}
    assert all(hasattr(module, part) for part, kinds in shared.items() if kinds)
    assert set().union(*shared.values()) <= {"tensor", "data"}
    if hasattr(module, "load"):
        assert ("tensor_parallel" in inspect.signature(module.load).parameters) == (
            "tensor" in shared["load"]
        )
        assert "data" not in shared["load"]


@pytest.mark.parametrize("name", [name for name in backends.names() if backends.get(name).can("serve")])
def test_a_server_is_told_how_many_devices_it_uses_where_it_can_use_several(tmp_path, name):
    engine = backends.get(name)
    if engine.on_request or name == "fake":
        return  # what the server does is what its user says of it
    option = next(option for option in engine.options("cuda") if not engine.drafts(option))

    def told(**devices):
        sizes = {"threads": 4, "port": 4242, "tensor_parallel": 1} | devices
        with adapters.launched(name, option, tmp_path, **sizes) as (command, variables, _):
            return command, variables

    alone = told()
    assert (told(tensor_parallel=2) != alone) == ("tensor" in engine.parallel("serve"))
    assert (told(data_parallel=2) != alone) == ("data" in engine.parallel("serve"))


# The commands


def launched(tmp_path, name, device="cuda", **more):
    """(command, environment, RunningServer) of a server that is not started."""
    wanted = {"threads": 4, "tensor_parallel": 1} | more
    with adapters.launched(name, "bfloat16", tmp_path, device, **wanted) as found:
        return found


def test_every_rank_of_every_replica_has_cores_of_its_own(tmp_path):
    bound = {
        many: launched(tmp_path, "vllm", "cpu", tensor_parallel=many[0], data_parallel=many[1])[1]
        for many in ((1, 1), (2, 1), (2, 2))
    }
    assert [about["VLLM_CPU_OMP_THREADS_BIND"] for about in bound.values()] == ["0-3", "0-1|2-3", "0|1|2|3"]
    assert [about["OMP_NUM_THREADS"] for about in bound.values()] == ["4", "2", "1"]


# The rows


def test_a_file_that_does_not_say_how_many_had_one(tmp_path):
    path = write_run(tmp_path)
    table = pd.read_csv(path)
    assert "data_parallel" in table and (table["data_parallel"] == 1).all()
    later = [column.name for column in schema.DECLARED if column.since > 3]
    table.drop(columns=later).to_csv(path, index=False)
    requests = store.load([path])
    assert (requests["data_parallel"] == 1).all() and (requests["tensor_parallel"] == 1).all()
    assert len(latency_analysis.summary(requests)) == 1
    assert store.devices("fake/latency-smollm2-135m-float32-test-cpu-abc123-1", tmp_path) == 1
    assert store.devices("fake/latency-smollm2-135m-float32-test-cpu-abc123-2", tmp_path) == 0


def test_two_gpus_have_twice_the_bandwidth_and_cores_of_a_cpu_do_not(tmp_path):
    rate = {"rate": 300.0, "tokens": 50}  # 1e8 bytes in 3.3 ms are 0.75 of 40 GB/s
    alone, two = (
        write_run(tmp_path, **GPU, **rate),
        write_run(tmp_path, **GPU, **rate, run=2, tensor_parallel=2),
    )
    mbu = store.load([alone, two]).groupby("run_id")["mbu"].median()
    assert mbu.iloc[1] == pytest.approx(mbu.iloc[0] / 2) and mbu.iloc[0] == pytest.approx(0.755, abs=0.01)
    cpu = {"gpu": "epyc-zen4-2c", **rate}
    whole, shared = (
        store.load([write_run(tmp_path, **cpu, run=n, tensor_parallel=n)])["mbu"].median() for n in (1, 2)
    )
    assert shared == pytest.approx(whole)


def test_the_check_knows_that_two_gpus_read_twice_as_much(tmp_path):
    about = {"rate": 600.0, **GPU}  # 60 GB/s, of 40 that each of them has
    assert store.load([write_run(tmp_path, **about, tensor_parallel=2)])["mbu"].median() == pytest.approx(
        0.75, abs=0.02
    )
    with pytest.raises(checks.Rejected, match="than the 40.0 GB/s"):
        write_run(tmp_path, **about, run=2)
    with pytest.raises(checks.Rejected, match="than the 80.0 GB/s"):
        write_run(tmp_path, **about | {"rate": 1200.0}, run=2, tensor_parallel=2)
    with pytest.raises(checks.Rejected, match="MBU"):
        write_run(tmp_path, rate=600.0, gpu="epyc-zen4-2c", run=2, tensor_parallel=2)


def test_mfu_counts_every_processor_that_shares_the_model(tmp_path):
    for n in (1, 2):
        write_sweep(tmp_path, run=n, tensor_parallel=n, **GPU)
    each = derived.batches(store.load(folder=tmp_path)).groupby("tensor_parallel")
    mfu, roof = (
        each[["mfu_prefill", "mfu_decode"]].max(),
        each[["bandwidth_bytes_per_s", "peak_flops_per_s"]].max(),
    )
    assert (mfu.loc[1] / 2).to_list() == pytest.approx(mfu.loc[2].to_list())
    assert (roof.loc[1] * 2).to_list() == pytest.approx(roof.loc[2].to_list())


def test_tokens_per_device_are_divided_by_all_devices(tmp_path):
    for n, (shared, copies) in enumerate(((1, 1), (2, 1), (1, 2), (2, 2)), start=1):
        write_serving(
            tmp_path,
            {4: (0.05, 0.005)},
            n=100,
            run=n,
            tensor_parallel=shared,
            data_parallel=copies,
            option="bfloat16",
            **GPU,
        )
    table = serving_analysis.levels(store.load(folder=tmp_path)).set_index(
        ["tensor_parallel", "data_parallel"]
    )
    assert len(table) == 4 and (table["runs"] == 1).all()
    per = table["output_tokens_per_s"] / table["per_device"]
    assert per.to_dict() == pytest.approx({(1, 1): 1, (2, 1): 2, (1, 2): 2, (2, 2): 4})


# Never mixed


@pytest.fixture
def both(tmp_path):
    """The same engine and option on one GPU and on two: latency three times and twice, a sweep and a load test each."""
    peaks = make_sidecar(**MATRICES, **PEAKS)
    for n, shared in enumerate((1, 1, 1, 2, 2), start=1):
        write_run(tmp_path, option="float16", run=n, rate=100.0 * shared + n, tensor_parallel=shared, **GPU)
    for n in (1, 2):
        write_sweep(tmp_path, option="float16", run=n, tensor_parallel=n, sidecar=peaks, **GPU)
        write_serving(
            tmp_path, {1: (0.05, 0.005), 8: (0.1, 0.008)}, run=n, option="float16", tensor_parallel=n, **GPU
        )
    write_run(tmp_path, option="int4", backend="vllm", gpu="h100", run=6, rate=150.0)
    return store.load(folder=tmp_path)


def test_repeats_on_one_and_on_two_devices_are_two_configurations(both):
    table = latency_analysis.summary(both[both["experiment"] == "latency"]).set_index(
        ["option", "tensor_parallel"]
    )
    assert table["runs"].to_dict() == {("float16", 1): 3, ("float16", 2): 2, ("int4", 1): 1}
    assert (
        table.loc[("float16", 2), "output_tokens_per_s"]
        > 1.4 * table.loc[("float16", 1), "output_tokens_per_s"]
    )


def test_tables_and_figures_say_where_devices_were_several(both, tmp_path):
    assert set(shown("tbl-latency", both, tmp_path / "tables")["option"]) == {
        "float16",
        "float16 TP 2",
        "int4",
    }
    assert set(batching_analysis.sweeps(both)["option"]) == {"float16", "float16 TP 2"}
    levels = serving_analysis.levels(both)
    assert list(levels["option"]) == ["float16"] * 2 + ["float16 TP 2"] * 2
    assert list(levels["tensor_parallel"]) == [1, 1, 2, 2]
    found = texts(shown("fig-latency", both, tmp_path / "tables"))
    assert sorted({label for label in found if label.startswith("vllm")}) == [
        "vllm float16",
        "vllm float16 TP 2",
        "vllm int4",
    ]
    alone = both[(both["experiment"] == "latency") & (both["tensor_parallel"] == 2)]
    assert "vllm float16 TP 2" in texts(plots.run(alone))


def test_one_device_is_not_mentioned(tmp_path):
    write_run(tmp_path)
    write_serving(tmp_path, {1: (0.05, 0.005)})
    requests = store.load(folder=tmp_path)
    assert set(machines.on_default_machine(requests, "latency")["option"]) == {"float32"}
    assert not any(
        " TP " in text or " DP " in text
        for text in texts(shown("fig-latency", requests, tmp_path / "tables"))
    )


def test_answers_of_several_devices_are_not_scored_as_those_of_one(both, tmp_path):
    made = session.Setup.__new__(session.Setup)
    made.folder, made.option, made.device, made.parameters = (
        tmp_path,
        "float16",
        "cuda",
        {"max_new_tokens": 10, "answers": "latency"},
    )
    made.identity = {
        "backend": "vllm",
        "model": "smollm2-135m",
        "option": "float16",
        "gpu": "h100",
        "host": "abc123",
    }
    with pytest.raises(
        ValueError, match="latency-smollm2-135m-float16-h100-abc123-3 "
    ):  # the checkpoint differs, but this is the run that it looked at
        made.checkpoint = type("Other", (), {"same_model": lambda self, sha256: False})()
        quality_experiment.stored(made)


def test_a_study_passes_over_numbers_that_runs_on_several_devices_took(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    kind, gpu = plan.device(plan.load())
    planned = lambda: sorted(
        (r.experiment, r.n)
        for r in plan.plan(plan.load({"engines": "fake", "repeats": 2, "all": True}))
        if r.option == "float32" and r.experiment in ("latency", "serving")
    )
    about = {"host": identity_machine.host(), "gpu": gpu, "experiment": "serving", "option": "float32"}
    assert planned() == [("latency", 1), ("latency", 2), ("serving", 1), ("serving", 2)]
    write_run(tmp_path, run=1, **about)
    assert planned() == [("latency", 1), ("latency", 2), ("serving", 1), ("serving", 2)], (
        "the study's own run stays its own"
    )
    write_run(tmp_path, run=2, data_parallel=2, **about)
    assert planned() == [("latency", 1), ("latency", 3), ("serving", 1), ("serving", 3)]
    identity = {
        "experiment": "serving",
        "backend": "fake",
        "model": "smollm2-135m",
        "option": "float32",
        "gpu": gpu,
        "host": identity_machine.host(),
    }
    assert store.next_number(identity, tmp_path) == 3


# The published figures again


def test_the_guide_has_the_commands_that_the_table_prints():
    text = (ROOT / "HOWTO.md").read_text()
    commands = set(systems_analysis.systems(schema.frame(make_rows()))["command"])
    shown = re.findall(r"^\.venv/bin/snakemake .*$", text, re.M)
    assert len(shown) == 2 and set(shown) <= commands


# The notebooks


def executed(cells, name, **parameters):
    names = cells(name, backend="fake", **parameters)
    return names["observed"], store.read(names["path"])[1]


SERVED = {"concurrency": "2", "request_rates": "none", "requests": 4, "lengths": "alpaca", "scale": 0.2}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        pytest.param("latency", {"max_new_tokens": 8}, marks=pytest.mark.check),
        pytest.param("latency", {"max_new_tokens": 8, "server": True}, marks=pytest.mark.check),
        pytest.param(
            "batching",
            {"batch_sizes": "1", "prompt_lengths": "8", "input_tokens": 8, "max_new_tokens": 8},
            marks=pytest.mark.check,
        ),
        ("serving", SERVED),
    ],
)
@pytest.mark.skipif(identity_machine.cores() < 2, reason="two devices on a CPU are two cores")
def test_the_parameter_reaches_the_engine_the_rows_and_the_sidecar(cells, name, parameters):
    requests, sidecar = executed(cells, name, tensor_parallel=2, **parameters)
    assert (requests["tensor_parallel"] == 2).all() and (requests["data_parallel"] == 1).all()
    assert sidecar["settings"]["devices"] == 2 and sidecar["parameters"]["tensor_parallel"] == 2


@pytest.mark.check
@pytest.mark.skipif(identity_machine.cores() < 2, reason="two devices on a CPU are two cores")
def test_replicas_reach_the_server_and_the_rows(cells):
    requests, sidecar = executed(cells, "serving", data_parallel=2, **SERVED)
    assert (requests["data_parallel"] == 2).all() and (requests["tensor_parallel"] == 1).all()
    assert sidecar["settings"]["devices"] == 2
