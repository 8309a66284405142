from __future__ import annotations

from pathlib import Path

import pytest
import toy_runs  # registers the evaluator that the specifications name
from hypothesis import example, given
from hypothesis import strategies as st

from onnxfr.cli.run import parse_duration, read_asked
from onnxfr.errors import SpecError, UnknownName
from onnxfr.evaluators.planning import expand, make_evaluator, suites
from onnxfr.runs.spec import EvaluatorSpec, make_spec, read_spec
from onnxfr.runs.toml_lines import line_of

GOOD = """\
# a run
models = [
  "a.onnx",   # with ] and [ in a comment
  "sface",
]
data = ["folder:faces,pairs=20", "orl"]
seed = 7

[engine]
workers = 2

[[evaluators]]
name = "toy_hash"
[evaluators.params]
delay = 0.5
methods = ["x", "y"]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "spec.toml"
    path.write_text(text)
    return path


def test_a_file_and_flags_give_the_same_object(tmp_path: Path) -> None:
    from_file = read_spec(write(tmp_path, GOOD))
    params = {"delay": 0.5, "methods": ["x", "y"]}
    from_flags = make_spec(
        {
            "models": ["a.onnx", "sface"],
            "data": ["folder:faces,pairs=20", "orl"],
            "seed": 7,
            "engine": {"workers": 2},
            "evaluators": [{"name": "toy_hash", "params": params}],
        },
        tmp_path,
    )
    assert from_file == from_flags


def test_paths_are_found_beside_the_file_and_names_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").touch()
    (tmp_path / "faces").mkdir()
    spec = read_spec(write(tmp_path, GOOD))
    assert spec.models == (str(tmp_path / "a.onnx"), "sface")
    assert spec.data == (f"folder:{tmp_path / 'faces'},pairs=20", "orl")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("lfw:a,pairs=b.txt,folds=1-5", "lfw:{0}/a,pairs={0}/b.txt,folds=1-5"),
        ("talfw:a,lfw=../b,pairs=/c", "talfw:{0}/a,lfw={1}/b,pairs=/c"),
        ("ytf:a,splits=b.csv", "ytf:{0}/a,splits={0}/b.csv"),
        ("folder:a, of 2020,name=b", "folder:{0}/a, of 2020,name=b"),
        ("pairlist:a.txt,images=b", "pairlist:{0}/a.txt,images=b"),
        ("flder:a", "flder:a"),
    ],
)
def test_places_of_data_are_relative_to_the_file(tmp_path: Path, written: str, meant: str) -> None:
    spec = read_spec(write(tmp_path, GOOD.replace("folder:faces,pairs=20", written)))
    assert spec.data[0] == meant.format(tmp_path, tmp_path.parent)


def test_files_named_by_evaluators_are_found_beside_the_specification(tmp_path: Path) -> None:
    (tmp_path / "points.onnx").touch()
    asked = '[evaluators.params]\nlandmarks = "{}"\nsurrogate = "sface"\n'
    before = GOOD.partition("[evaluators.params]")[0]
    spec = read_spec(write(tmp_path, before + asked.format("points.onnx")))
    found = {"landmarks": str(tmp_path / "points.onnx"), "surrogate": "sface"}
    assert spec.evaluators[0].params == found
    spec = read_spec(write(tmp_path, before + asked.format("accept-licence")))
    assert spec.evaluators[0].params == found | {"landmarks": "accept-licence"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seed = 7", "seed = -1", r"line 7: seed: expected greater than or equal to 0, got -1"),
        ("seed = 7", 'seed = "x"', r"line 7: seed: expected a valid integer.*got 'x'"),
        ("seed = 7", "sead = 7", r"line 7: sead is no known setting"),
        ("workers = 2", "workers = 0", r"line 10: engine.workers: expected greater.*got 0"),
        ("workers = 2", 'address = "a:1"', r"line 9: engine: address and gpus belong to"),
        ('name = "toy_hash"', "name = 3", r"line 13: evaluators.0.name: expected a valid string"),
        ('"sface"', "3", r"line 2: models.1: expected a valid string, got 3"),
        ('data = ["folder:faces,pairs=20", "orl"]', "", r"data is missing"),
        ("seed = 7", "seed = = 7", r"not valid TOML.*line 7"),
        ("[[evaluators]]", "[[elevators]]", r"line 12: elevators is no known setting"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(SpecError, match=message):
        read_spec(write(tmp_path, GOOD.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("delay = 0.5", 'delay = "x"', r"line 15: evaluators.0.params.delay: expected a valid num"),
        ("delay = 0.5", "delai = 0.5", r"line 15: .*delai is no known setting.*methods, delay"),
        ('"toy_hash"', '"toy_hahs"', r"line 13: no evaluator is called 'toy_hahs'.*toy_hash"),
    ],
)
def test_errors_in_evaluator_parameters_name_the_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        read_asked(write(tmp_path, GOOD.replace(old, new, 1)), {}, {})


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    asked = read_asked(write(tmp_path, GOOD), {"seed": 9}, {"workers": 1})
    assert (asked.seed, asked.engine.workers) == (9, 1)
    assert asked.evaluators[0].params["delay"] == 0.5


def test_nothing_asked_says_what_to_type() -> None:
    with pytest.raises(SpecError, match="onnxfr run --model"):
        read_asked(None, {}, {})
    with pytest.raises(SpecError, match="suite"):
        read_asked(None, {"models": ["a"], "data": ["orl"]}, {})


def test_files_of_windows_editors_are_read_as_any_other(tmp_path: Path) -> None:
    plain = read_asked(write(tmp_path, GOOD), {}, {})
    marked = b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode()
    (tmp_path / "spec.toml").write_bytes(marked)
    assert read_asked(tmp_path / "spec.toml", {}, {}) == plain
    (tmp_path / "spec.toml").write_bytes(marked.replace(b"seed = 7", b"seed = 'x'"))
    with pytest.raises(SpecError, match="line 7: seed"):
        read_asked(tmp_path / "spec.toml", {}, {})


def test_missing_and_binary_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot read"):
        read_spec(tmp_path / "none.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="UTF-8"):
        read_spec(tmp_path / "b.toml")


def test_a_suite_fills_in_what_the_user_leaves_open(tmp_path: Path) -> None:
    base = {"models": ["a"], "data": ["orl"], "suite": "quick"}
    plain = expand(make_spec(base, tmp_path))
    assert plain.max_pairs == suites()["quick"].max_pairs
    assert [e.name for e in plain.evaluators] == [e.name for e in suites()["quick"].evaluators]
    own = expand(make_spec({**base, "max_pairs": 5, "seed": 4}, tmp_path))
    assert (own.max_pairs, own.seed) == (5, 4)
    mine = {"name": "verification", "params": {"x": 1}}
    merged = expand(make_spec({**base, "evaluators": [mine]}, tmp_path))
    assert [(e.name, e.params) for e in merged.evaluators].count(("verification", {"x": 1})) == 1
    assert [e.name for e in merged.evaluators].count("verification") == 1
    with pytest.raises(UnknownName, match=r"full, .*quick"):
        expand(make_spec({**base, "suite": "quik"}, tmp_path))


@pytest.mark.parametrize("suite", [{}, {"suite": "quick"}])
def test_a_protocol_is_one_that_a_suite_follows(tmp_path: Path, suite: dict[str, str]) -> None:
    base = {"models": ["a"], "data": ["orl"], "evaluators": [{"name": "verification"}], **suite}
    for known in {each.protocol for each in suites().values()}:
        assert expand(make_spec({**base, "protocol": known}, tmp_path)).protocol == known
    with pytest.raises(UnknownName, match=r"'robfrr'; there are .*robfr"):
        expand(make_spec({**base, "protocol": "robfrr"}, tmp_path))


def test_an_evaluator_listed_twice_is_refused(tmp_path: Path) -> None:
    text = GOOD + '\n[[evaluators]]\nname = "toy_hash"\n'
    with pytest.raises(SpecError, match="listed twice"):
        read_spec(write(tmp_path, text))


def test_parameters_become_the_evaluators_fields() -> None:
    made = make_evaluator(EvaluatorSpec(name="toy_hash", params={"methods": ["a"]}))
    assert made == toy_runs.ToyHash(methods=("a",))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30m", 1800), ("1h30m", 5400), ("45s", 45), ("0.5h", 1800), ("2m5s", 125)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "30 minutes", "-5m", "1m1h", "nan"])
def test_bad_durations_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="30m"):
        parse_duration(text)


TRICKY = '''\
a = """
b = 1
[c]
"""
"quoted key" = 2
x.y = 3
list = [
  { p = 1 },  # d = 4
  [1, 2],
]
[t] # comment
k = "[not] # a table"
[[t.rows]]
v = 1
[[t.rows]]
v = 2
[t.rows.deep]
w = \'\'\'
z = 1\'\'\'
'''


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("a",), 1),
        (("quoted key",), 5),
        (("x", "y"), 6),
        (("list", 0, "p"), 7),
        (("x",), 6),
        (("t", "rows"), 13),
        (("t",), 11),
        (("t", "k"), 12),
        (("t", "rows", 0, "v"), 14),
        (("t", "rows", 1, "v"), 16),
        (("t", "rows", 1, "deep", "w"), 18),
        (("b",), None),
        (("nowhere",), None),
    ],
)
def test_lines_are_found_in_tricky_files(place: tuple[str | int, ...], line: int | None) -> None:
    assert line_of(TRICKY, place) == line


@given(st.text(alphabet="[]{}=\"'#\n ab.,\\", max_size=80))
@example("[=]")
@example("[[=]]\na = 1")
def test_the_line_scan_survives_any_text(text: str) -> None:
    line_of(text, ("a", 0, "b"))
