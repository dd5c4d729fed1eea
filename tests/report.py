"""One line for each suite as it ends, the skipped tests with reasons, the totals.

A pytest plugin for `scripts/test`. A suite is a folder or a file under tests/; its
time is the sum over its tests, which run beside those of other suites. What a test
records as `figures` (`record_property`) stands below its suite.
"""

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Suite:
    """What is known of one suite while it runs."""

    waiting: set[str] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    figures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    is_told: bool = False

    def line(self, name: str) -> str:
        """Sum the suite up."""
        counts = [f"{self.outcomes[key]} {key}" for key in ("passed", "failed")]
        if self.outcomes["skipped"]:
            counts.append(f"{self.outcomes['skipped']} skipped")
        if self.waiting:
            counts.append(f"{len(self.waiting)} not run")
        told = "".join(f"\n  {each}" for each in self.figures)
        return f"{name}: {', '.join(counts)}, {self.seconds:.1f} s{told}"


def suite_name(nodeid: str) -> str:
    """Name the suite of a test: `tests/tools/test_read.py::…` is of `tools`."""
    parts = nodeid.split("::", 1)[0].removeprefix("tests/").split("/")
    return parts[0].removeprefix("test_").removesuffix(".py")


class SuiteReport:
    """Follows the run in the process that prints."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self.terminal = terminal
        self.suites: dict[str, Suite] = {}
        self.failed: list[str] = []
        self.skipped: Counter[tuple[str, str]] = Counter()

    def expect(self, nodeids: list[str]) -> None:
        for nodeid in nodeids:
            self.suites.setdefault(suite_name(nodeid), Suite()).waiting.add(nodeid)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Take the list from each worker; all have the same."""
        if not self.suites:
            self.expect(ids)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        name = suite_name(report.nodeid)
        if report.failed:
            self.suites.setdefault(name, Suite())
            self.note_failure(name, report.nodeid)
        elif report.skipped:
            self.note_skip(name, report.longrepr)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = suite_name(report.nodeid)
        suite = self.suites.setdefault(name, Suite())
        suite.seconds += report.duration
        if report.failed:
            self.note_failure(name, report.nodeid)
        elif report.skipped:
            self.note_skip(name, report.longrepr)
        elif report.when == "call":
            suite.outcomes["passed"] += 1
            suite.figures += [
                str(value) for key, value in report.user_properties if key == "figures"
            ]
        if report.when not in ("setup", "call"):  # torn down, or its worker died
            suite.waiting.discard(report.nodeid)
            if not suite.waiting:
                self.tell(name)

    def note_failure(self, name: str, nodeid: str) -> None:
        self.suites[name].outcomes["failed"] += 1
        self.failed.append(nodeid)

    def note_skip(self, name: str, why: Any) -> None:
        self.suites.setdefault(name, Suite()).outcomes["skipped"] += 1
        reason = why[2] if isinstance(why, tuple) else str(why)
        self.skipped[name, reason.removeprefix("Skipped: ")] += 1

    def tell(self, name: str) -> None:
        suite = self.suites[name]
        suite.is_told = True
        self.terminal.ensure_newline()
        self.terminal.write_line(suite.line(name), flush=True)

    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, str] | None:
        """Keep the dots out; failures are shown in full at the end."""
        if report.when == "call" or not report.passed:
            return report.outcome, "", ""
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_terminal_summary(self) -> Generator[None, Any, Any]:
        """Let the failures be printed first, then the rest, the totals last."""
        result = yield
        write = self.terminal.write_line
        for name, suite in self.suites.items():
            if not suite.is_told:
                write(suite.line(name))
        if self.failed:
            write("failed:")
        for nodeid in self.failed:
            write(f"  {nodeid}")
        if self.skipped:
            write("skipped:")
        for (name, reason), count in sorted(self.skipped.items()):
            write(f"  {name}: {reason}" + (f" ({count} tests)" if count > 1 else ""))
        totals: Counter[str] = Counter()
        for suite in self.suites.values():
            totals += suite.outcomes
        write(
            f"{totals['passed']} passed, {totals['failed']} failed, "
            f"{totals['skipped']} skipped"
        )
        return result


@pytest.hookimpl(trylast=True)  # after the terminal reporter has joined
def pytest_configure(config: pytest.Config) -> None:
    """Join in, except in a worker of pytest-xdist, which prints nothing."""
    plugins = config.pluginmanager
    if not hasattr(config, "workerinput"):
        terminal = plugins.getplugin("terminalreporter")
        plugins.register(SuiteReport(terminal), "suites")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep pytest-xdist from saying twice that it starts its workers."""
    workers = session.config.pluginmanager.getplugin("terminaldistreporter")
    if workers is not None:
        workers.ensure_show_status = lambda: None
