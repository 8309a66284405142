from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
import typer
from toy_faces import make_faces, make_run
from typer.testing import CliRunner

from onnxfr.cli.compare import compare
from onnxfr.cli.report import report
from onnxfr.cli.verify import verify
from onnxfr.cli.verify_answer import Protocol, answer_of
from onnxfr.errors import MetricError, SpecError, StoreError
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.verification import Verification
from onnxfr.runs.store import RunStore

app = typer.Typer()
for command in (verify, report, compare):
    app.command()(command)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXFR_CACHE", str(tmp_path / "cache"))


def _run(*words: object) -> tuple[int, str]:
    answer = CliRunner().invoke(app, [str(word) for word in words])
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return answer.exit_code, answer.stdout


def test_verify_report_compare_from_end_to_end(
    tmp_path: Path, toy_model: Path, other_model: Path, toy_faces: Path
) -> None:
    data = f"folder:{toy_faces}"
    for model, run in ((toy_model, "a"), (other_model, "b")):
        code, out = _run("verify", model, "--data", data, "--fmr", 0.05, "-o", tmp_path / run)
        assert code == 0
        assert "accuracy" in out and "kfold10" in out and "onnxfr report" in out
    code, out = _run("report", tmp_path / "a", "--json")
    assert code == 0
    assert Path(json.loads(out)["report"]).is_file()
    code, out = _run("compare", tmp_path / "a", tmp_path / "b", "--json")
    assert code == 0
    (paired,) = json.loads(out)["paired"]
    assert paired["model_a"] == "toy" and paired["model_b"] == "other"
    assert set(paired["duels"]) == {"all", "genuine", "impostor"}


def test_the_next_command_can_be_copied_from_folders_of_any_name(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    run = tmp_path / "one day's run"
    _, out = _run("verify", toy_model, "--data", f"folder:{toy_faces}", "-o", run)
    (command,) = [line for line in out.splitlines() if line.startswith("next:")]
    assert shlex.split(command) == ["next:", "onnxfr", "report", str(run)]


def test_fail_if_decides_the_exit_code(tmp_path: Path, toy_model: Path, toy_faces: Path) -> None:
    run = tmp_path / "run"
    _run("verify", toy_model, "--data", f"folder:{toy_faces}", "--fmr", 0.05, "-o", run)
    assert _run("compare", run, run, "--fail-if", "accuracy < 0.01")[0] == 0
    code, out = _run("compare", run, run, "--fail-if", "accuracy > 0.01")
    assert code == 1
    assert "FAILED: fail if accuracy > 0.01" in out
    with pytest.raises(SpecError, match="no metric 'akkuracy'"):
        _run("compare", run, run, "--fail-if", "akkuracy > 0.01")


def test_compare_tells_what_the_runs_were_asked_differently(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    runs = [tmp_path / name for name in "ab"]
    for run, fmr in zip(runs, (0.05, 0.1), strict=True):
        _run("verify", toy_model, "--data", f"folder:{toy_faces}", "--fmr", fmr, "-o", run)
    told = "fmr is 0.05 in A and 0.1 in B"
    assert _run("compare", *runs)[1].startswith(f"asked differently: {told}\n")
    assert json.loads(_run("compare", *runs, "--json")[1])["asked_differently"] == [told]


def test_the_json_answer_has_the_promised_keys(toy_model: Path, toy_faces: Path) -> None:
    code, out = _run("verify", toy_model, "--data", f"folder:{toy_faces}", "--json")
    answer = json.loads(out)
    assert code == 0
    promised = "accuracy std interval threshold tar_at_fmr protocol pairs rejected"
    assert set(promised.split()) <= set(answer)
    low, high = answer["interval"]
    assert low <= answer["accuracy"] <= high
    assert answer["protocol"] == "kfold10"
    assert answer["rejected"] == 0
    assert answer["pairs"] == answer["genuine"] + answer["impostor"]


@pytest.mark.parametrize("stated", [1.24, -1.5, "nan"])
def test_a_threshold_that_is_no_cosine_is_refused(
    stated: object, toy_model: Path, toy_faces: Path
) -> None:
    with pytest.raises(SpecError, match=r"cosine, from -1 to 1; got .*1 - d\*d/2"):
        _run("verify", toy_model, "--data", f"folder:{toy_faces}", "--threshold", stated)


def test_a_given_threshold_is_judged_as_fixed(toy_model: Path, toy_faces: Path) -> None:
    _, out = _run(
        "verify", toy_model, "--data", f"folder:{toy_faces}", "--threshold", 0.3, "--json"
    )
    answer = json.loads(out)
    assert (answer["protocol"], answer["threshold"]) == ("fixed", 0.3)
    assert answer["threshold_origin"] == "fixed"


def test_protocols_that_the_data_cannot_serve_say_why(toy_model: Path, tmp_path: Path) -> None:
    few = make_faces(tmp_path / "few", people=3, pictures=2)
    data = f"folder:{few}"
    with pytest.raises(MetricError, match="no folds"):
        _run("verify", toy_model, "--data", data, "--protocol", "kfold10")
    with pytest.raises(MetricError, match="3000 impostor pairs"):
        _run("verify", toy_model, "--data", data, "--protocol", "fmr")
    with pytest.raises(MetricError, match="--threshold"):
        _run("verify", toy_model, "--data", data, "--protocol", "fixed")
    with pytest.raises(SpecError, match="--threshold"):
        _run("verify", toy_model, "--data", data, "--protocol", "oracle", "--threshold", 0.1)
    _, out = _run("verify", toy_model, "--data", data, "--json")
    assert json.loads(out)["protocol"] == "oracle"


def test_a_second_verify_reuses_the_records(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    words = ("verify", toy_model, "--data", f"folder:{toy_faces}", "-o", tmp_path / "run")
    _run(*words)
    _run(*words)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert [s["done"] for s in manifest["sessions"]] == [1, 0]
    assert [s["reused"] for s in manifest["sessions"]] == [0, 1]


def test_a_drawn_subset_is_smaller(toy_model: Path, toy_faces: Path) -> None:
    _, out = _run("verify", toy_model, "--data", f"folder:{toy_faces}", "--pairs", 20, "--json")
    assert json.loads(out)["pairs"] == 20


def test_reporting_a_folder_that_is_no_run_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no run directory"):
        _run("report", tmp_path)


def _one_class(toy_run: Path, thresholds: tuple[float, ...]) -> list[Result]:
    records = RunStore.open(toy_run).records("verification")
    genuine = records.filter(records["same"])
    return Verification(thresholds=thresholds).summarise(genuine)


def test_one_kind_of_pairs_is_judged_at_fixed_thresholds(toy_run: Path) -> None:
    found = _one_class(toy_run, (0.3,))
    answer = answer_of(found, None, fmr=1e-3)
    assert (answer["protocol"], answer["threshold"]) == ("fixed", 0.3)
    for protocol in (Protocol.KFOLD10, Protocol.ORACLE, Protocol.FMR):
        with pytest.raises(MetricError, match=r"; use --protocol fixed$"):
            answer_of(found, protocol, fmr=1e-3)
    with pytest.raises(MetricError, match="--threshold"):
        answer_of(_one_class(toy_run, ()), None, fmr=1e-3)


def test_only_protocols_that_the_data_serve_are_proposed(toy_model: Path, tmp_path: Path) -> None:
    data = f"folder:{make_faces(tmp_path / 'few', people=3, pictures=2)}"
    for protocol in ("kfold10", "fmr"):
        with pytest.raises(MetricError, match=r"use --protocol oracle$"):
            _run("verify", toy_model, "--data", data, "--protocol", protocol)


def test_compare_says_whose_attack_a_number_is(
    tmp_path: Path, toy_model: Path, toy_faces: Path
) -> None:
    params = {"align": "no", "attacks": ["fgsm", "bim(steps=2)"], "norms": ["linf"]}
    params |= {"linf": ["4/255"], "l2": [], "pairs": 4, "checks": 0, "examples": 0}
    run = make_run(
        tmp_path / "run",
        toy_model,
        f"folder:{toy_faces}",
        tmp_path / "cache",
        evaluators=[{"name": "white_box", "params": params}],
    )
    gate = ("--fail-if", "asr_all@4/255 >= 0")
    code, out = _run("compare", run, run, *gate)
    assert code == 1
    compared, judged = out.split("FAILED")
    for part in (compared, judged):
        lines = [line for line in part.splitlines() if "asr_all@eps=" in line]
        assert len(lines) == len(set(lines)) == 4
        assert any("white_box, toy on people, fgsm impersonate linf:" in line for line in lines)
    answer = json.loads(_run("compare", run, run, *gate, "--json")[1])
    columns = ("evaluator", "data", "method", "goal", "norm", "metric", "condition", "protocol")
    for rows, model in (
        (answer["results"], "model_b"),
        (answer["fail_if"][0]["looked_at"], "model"),
    ):
        keys = [tuple(row[name] for name in (model, *columns)) for row in rows]
        assert keys and len(keys) == len(set(keys))


def test_an_incomplete_run_is_compared_with_a_word_but_not_judged(
    toy_run: Path, tmp_path: Path
) -> None:
    broken = shutil.copytree(toy_run, tmp_path / "broken")
    manifest = json.loads((broken / "manifest.json").read_text(encoding="utf-8"))
    manifest["cells"].append({**manifest["cells"][0], "key": "0" * 40})
    (broken / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    code, out = _run("compare", toy_run, broken)
    assert code == 0 and "B is incomplete: 1 of 2 planned cells have no records yet" in out
    assert "have no records yet" in _run("report", broken, "-o", tmp_path / "report")[1]
    with pytest.raises(MetricError, match="in run B, 1 of 2 planned cells have no records") as bad:
        _run("compare", toy_run, broken, "--fail-if", "accuracy < 0.01")
    assert bad.value.exit_code == 2


@pytest.mark.parametrize("align", ["no", "yes"])
def test_crops_with_faces_beside_the_middle_are_told_unless_aligned_anew(
    align: str,
    tmp_path: Path,
    toy_model: Path,
    shared_data: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = ("--pairs", 40, "--align", align, "-o", tmp_path / "run")
    _run("verify", toy_model, "--data", f"lfw:{shared_data / 'lfw_112'}", *words)
    told = list(RunStore(tmp_path / "run").manifest()["placement"].values())
    assert [
        record.message for record in caplog.records if "of the middle" in record.message
    ] == told
    assert len(told) == (align == "no")
