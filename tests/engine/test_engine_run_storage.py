"""What folders and streams occupy."""

from __future__ import annotations

import os

from lockstep.engine.runtime.control.storage import MEASURE_S, FolderGauge, FolderSize, folder_size


def test_a_folder_with_everything_below_it(tmp_path):
    (tmp_path / "spool" / "deep").mkdir(parents=True)
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "spool" / "deep" / "b").write_bytes(b"123")
    (tmp_path / "gone").symlink_to("nowhere")
    found = folder_size(tmp_path)
    assert found == FolderSize(3, 8 + os.lstat(tmp_path / "gone").st_size)
    assert folder_size(tmp_path / "missing") == FolderSize()


def test_a_folder_is_measured_now_and_then_only(tmp_path):
    now = 100.0
    gauge = FolderGauge(tmp_path, lambda: now)
    (tmp_path / "a").write_bytes(b"12345")
    assert gauge.size() == FolderSize(1, 5)
    (tmp_path / "b").write_bytes(b"1")
    now += MEASURE_S - 1
    assert gauge.size() == FolderSize(1, 5)
    now += 1
    assert gauge.size() == FolderSize(2, 6)
    assert FolderGauge(None, lambda: now).size() == FolderSize()
