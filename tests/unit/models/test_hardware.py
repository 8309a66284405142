"""What the processor is, from what the operating system tells."""

from __future__ import annotations

import pytest

from onnxfr.models import hardware
from onnxfr.models.hardware import (
    available_cores,
    cpu_model,
    instruction_set,
    int8_products_saturate,
    thread_budget,
)

AVX2 = {"sse4_1", "avx", "avx2", "fma"}


@pytest.mark.parametrize(
    ("flags", "name", "saturates"),
    [
        (AVX2, "avx2", True),
        (AVX2 | {"avx512f", "avx512bw"}, "avx512", True),
        (AVX2 | {"avx512f", "avx512bw", "avx512_vnni"}, "avx512_vnni", False),
        (AVX2 | {"avx_vnni"}, "avx_vnni", False),
        (AVX2 | {"avx512f", "avx512_vnni", "amx_int8"}, "amx_int8", False),
        ({"fp", "asimd"}, "neon", False),
        ({"fp", "asimd", "asimddp"}, "neon_dotprod", False),
        (set(), "unknown", False),
    ],
)
def test_instruction_sets_are_told_apart(flags, name, saturates):
    assert instruction_set(frozenset(flags)) == name
    assert int8_products_saturate(frozenset(flags)) is saturates


def test_this_machine_has_a_name_and_cores():
    assert cpu_model()
    assert available_cores() >= 1


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
        ({"cpu.max": "nonsense"}, None),
        ({}, None),
    ],
)
def test_container_quotas_are_read(tmp_path, files, share):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert hardware._cgroup_quota(tmp_path) == share


def test_a_quota_below_one_core_still_leaves_one(tmp_path, monkeypatch):
    (tmp_path / "cpu.max").write_text("10000 100000")
    monkeypatch.setattr(hardware, "_CGROUP", tmp_path)
    assert available_cores() == 1


def test_the_thread_budget_is_asked_then_named_then_all(monkeypatch):
    monkeypatch.setenv("ONNXFR_THREADS", "3")
    assert thread_budget(5) == 5
    assert thread_budget() == 3
    monkeypatch.delenv("ONNXFR_THREADS")
    assert thread_budget() == available_cores()
