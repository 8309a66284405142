from __future__ import annotations

import pytest

from onnxfr.errors import SpecError
from onnxfr.evaluators.surrogates import knowledge, make_sources, surrogates
from onnxfr.models.card import Card
from onnxfr.models.preprocessing import Preprocessing
from onnxfr.runs.cells import ModelRef


def card(name: str, architecture: str, training_set: str) -> Card:
    return Card(
        name=name,
        sha256=name.encode().hex().zfill(64),
        architecture=architecture,
        training_set=training_set,
        input_height=112,
        input_width=112,
        embedding_dim=128,
        opset=13,
        preprocessing=Preprocessing(),
    )


CARDS = {
    each.sha256: each
    for each in (
        card("target", "iresnet50", "MS1MV2"),
        card("twin", "IResNet50", "CASIA-WebFace"),
        card("mate", "mobilefacenet", "ms1mv2"),
        card("mate2", "vit", "MS1MV2"),
        card("stranger", "mobilefacenet", "Glint360k"),
        card("dark", "unknown", "MS1MV2"),
    )
}
MODELS = [ModelRef(each.name, each.sha256, each.name) for each in CARDS.values()]
BY_NAME = {model.name: model for model in MODELS}


def names(cards: list[Card]) -> list[str]:
    return [each.name for each in cards]


def test_levels_follow_from_the_tags_and_unknown_tags_support_none() -> None:
    every = list(CARDS.values())
    target = every[0]
    assert names(surrogates("F", target, every)) == ["target"]
    assert names(surrogates("A", target, every)) == ["twin"]
    assert names(surrogates("T", target, every)) == ["mate", "mate2"]
    assert names(surrogates("Z", target, every)) == ["stranger"]
    assert surrogates("A", every[5], every) == []
    assert knowledge([every[2], every[3]], target) == "T"
    assert knowledge([every[2], every[4]], target) == ""
    assert knowledge([every[5]], target) == ""
    assert knowledge([target], target) == "F"
    assert knowledge([every[1], target], target) == ""


@pytest.mark.parametrize(
    ("own", "wanted", "level"),
    [
        (("IResNet-50", "CASIA WebFace"), ("iresnet50", "casia-webface"), ""),
        (("IResNet-50", "MS1MV2"), ("iresnet50", "casia-webface"), "A"),
        (("vit", "CASIA WebFace"), ("iresnet50", "casia-webface"), "T"),
        (("vit", "VGGFace"), ("iresnet50", "VGGFace2"), "Z"),
        (("vit", "n/a"), ("iresnet50", "N/A"), ""),
        (("vit", "Not stated"), ("iresnet50", "casia-webface"), ""),
        (("vit", "proprietary"), ("iresnet50", "Proprietary"), ""),
    ],
)
def test_spelling_gives_no_level_and_takes_none(
    own: tuple[str, str], wanted: tuple[str, str], level: str
) -> None:
    assert knowledge([card("own", *own)], card("target", *wanted)) == level


def test_sources_of_words() -> None:
    targets = [BY_NAME["target"]]
    each = make_sources(["each"], MODELS, targets, CARDS)
    assert [source.name for source in each] == list(BY_NAME)
    assert all(source.targets == tuple(targets) for source in each)
    (others,) = make_sources(["others:loss"], MODELS, targets, CARDS)
    assert (others.mode, len(others.members), others.name) == ("loss", 5, "all others (loss)")
    levels = make_sources(["levels"], MODELS, targets, CARDS)
    assert [source.name for source in levels] == [
        "stranger",
        "mate + mate2 (margin)",
        "twin",
        "target",
    ]
    (named,) = make_sources(["mate+twin:alternating"], MODELS, targets, CARDS)
    assert named.members == (BY_NAME["mate"], BY_NAME["twin"]) and named.mode == "alternating"


def test_one_set_of_members_is_attacked_once_for_all_its_targets() -> None:
    found = make_sources(["levels", "each"], MODELS, MODELS, CARDS)
    alone = [source for source in found if source.name == "twin"]
    assert len(alone) == 1 and set(alone[0].targets) == set(MODELS)


@pytest.mark.parametrize("words", [("others", "target+twin"), ("target+twin", "others")])
def test_a_row_of_the_matrix_meets_a_target_with_one_set_of_members(words: list[str]) -> None:
    three = [BY_NAME[name] for name in ("target", "twin", "mate")]
    found = make_sources(words, three, three, CARDS)
    places = [(source.name, target.name) for source in found for target in source.targets]
    rows = ("all others (margin)", "target + twin (margin)")
    assert sorted(places) == sorted((row, target.name) for row in rows for target in three)


def test_bad_words_are_explained() -> None:
    with pytest.raises(SpecError, match="with a differentiable form is called 'nobody'"):
        make_sources(["nobody+mate"], MODELS, MODELS, CARDS)
    with pytest.raises(SpecError, match="margin, loss, alternating, gradient"):
        make_sources(["others:best"], MODELS, MODELS, CARDS)
    with pytest.raises(SpecError, match="give no attack"):
        make_sources(["others"], MODELS[:1], MODELS[:1], CARDS)
