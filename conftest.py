"""What all tests in Python have in common: a failure is told when it happens, and not again at the end."""

from __future__ import annotations

import pytest


class Failures:
    """Writes each failure at once. The long stages take minutes, and pytest keeps its failures to the end."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self.reporter = reporter

    @pytest.hookimpl(trylast=True)  # after the letter
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tell(report, report.when if report.when != "call" else "")

    @pytest.hookimpl(trylast=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.tell(report, "collection")

    def tell(self, report: pytest.TestReport | pytest.CollectReport, when: str) -> None:
        self.reporter.write("\n")
        self.reporter.write_sep("_", f"{report.nodeid} {when}".strip(), red=True, bold=True)
        self.reporter.write_line(report.longreprtext)
        for title, text in report.sections:
            self.reporter.write_sep("-", title)
            self.reporter.write_line(text.rstrip("\n"))
        self.reporter.flush()  # into a pipe, too

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        session.config.option.tbstyle = "no"  # the end has one line for each: all else was said


@pytest.hookimpl(trylast=True)  # when the terminal has its reporter
def pytest_configure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter and not hasattr(config, "workerinput") and config.option.tbstyle != "no":  # workers of pytest-xdist tell theirs to the one who has them
        config.pluginmanager.register(Failures(reporter))
