"""Each alert fires when it must and is silent when it must be, and its page says what to do."""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from knative_gateway.engine.sharing import GROUP
from tests.deploy.alert_cases import CASES, Series

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
SEVERITIES = {"critical", "warning", "info"}
WITHOUT = "promtool is not installed: apt-get install prometheus"


def rules() -> dict[str, Mapping[str, Any]]:
    """Return each rule by the name of its alert."""
    found: dict[str, Mapping[str, Any]] = {}
    for file in sorted((PROMETHEUS / "rules").iterdir()):
        for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]:
            for rule in group["rules"]:
                assert rule["alert"] not in found
                found[rule["alert"]] = rule
    return found


RULES = rules()


def promtool(*arguments: object) -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip(WITHOUT)
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_alert_has_a_severity_words_and_a_section_that_says_what_to_do() -> None:
    for name, rule in RULES.items():
        assert rule["labels"].keys() == {"severity"}, name
        assert rule["labels"]["severity"] in SEVERITIES, name
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}, name
        page, anchor = rule["annotations"]["runbook"].split("#")
        assert anchor in anchors(page), name


def test_the_page_has_each_alert_with_its_severity_and_a_remedy() -> None:
    rows = re.findall(r"^\| `([A-Z]\w+)` \| (\w+) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    assert {name: severity for name, severity, _, _ in rows} == {
        name: rule["labels"]["severity"] for name, rule in RULES.items()
    }
    assert len(rows) == len(RULES)
    for name, _, when, remedy in rows:
        waits = re.search(r"for (\d+ (?:minutes?|hours?|days?))\b", when)
        wanted = RULES[name].get("for")
        assert (waits is not None) == (wanted is not None), name
        if waits is not None:
            number, unit = waits[1].split()
            assert f"{number}{unit[0]}" == wanted, name
        assert len(remedy) > 10, name


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert CASES.keys() == RULES.keys()
    assert all(case.fires != case.silent for case in CASES.values())


def _test(name: str, series: Series, at: str, firing: set[str]) -> Mapping[str, object]:
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(firing)]
    question = 'group by (alertname) (ALERTS{alertstate="firing"})'
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "promql_expr_test": [{"expr": question, "eval_time": at, "exp_samples": samples}],
    }


@pytest.mark.parametrize(
    ("product", "files"), [("AmqpStreams", ["kafka", "node"]), ("KnativeGateway", ["gateway"])]
)
@pytest.mark.heavy
@pytest.mark.parametrize(("interval", "is_long"), [("1m", False), ("5m", True)])
def test_prometheus_fires_each_alert_when_it_must_and_no_other(
    product: str, files: Sequence[str], interval: str, *, is_long: bool, tmp_path: Path
) -> None:
    """Each product apart, and long cases in steps of 5 minutes: each step evaluates all rules of a file."""
    tests = []
    for name, case in CASES.items():
        if name.startswith(product) and (case.at != "1h") is is_long:
            tests.append(_test(f"{name} fires", case.fires, case.at, {name, *case.also}))
            tests.append(_test(f"{name} is silent", case.silent, case.at, set()))
    assert tests
    rules = [str(PROMETHEUS / "rules" / f"{file}.yml") for file in files]
    cases = tmp_path / "cases.yml"
    cases.write_text(yaml.safe_dump({"rule_files": rules, "evaluation_interval": interval, "tests": tests}))
    promtool("test", "rules", cases)


def test_prometheus_reads_the_configuration_and_all_rules() -> None:
    assert "rule files found" in promtool("check", "config", PROMETHEUS / "prometheus.yml")
    words = promtool("check", "rules", *sorted((PROMETHEUS / "rules").iterdir()))
    assert sum(map(int, re.findall(r"(\d+) rules found", words))) == len(RULES)


def test_a_lag_of_the_group_of_gateways_raises_no_alert() -> None:
    """Their positions are in their own database: the node does not know them, so this lag only grows."""
    text = (ROOT / "deploy" / "prometheus" / "rules" / "node.yml").read_text()
    rule = text.partition("- alert: AmqpStreamsGroupLagGrows")[2].partition("- alert:")[0]
    assert rule.count("amqp_streams_group_lag_events{") == rule.count(f'{{group!="{GROUP}"}}') == 3
