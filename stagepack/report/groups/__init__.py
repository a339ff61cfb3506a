"""What people see of layer groupings."""

from __future__ import annotations

from stagepack.report.groups.view import GroupingView

VIEW = GroupingView()
