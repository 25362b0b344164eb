"""The map of a gateway over HTTP: rights, search, pages, live figures."""

import json

from examples.gateway import GatewayProcess
from tests.web_console.gateway.conftest import ADMIN, RESOURCES
from tests.web_console.http_client import Person

TRIGGER = """apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: trigger-{number:02}, namespace: many}}
spec: {{broker: big, subscriber: {{uri: "http://127.0.0.1:9/"}}}}"""


def test_the_map_leads_from_a_broker_to_its_triggers_subscribers_and_sinks(reader: Person) -> None:
    page = reader.get("/map?namespace=weather").text
    assert 'Broker <a href="/sources/broker/weather/temps">temps</a></h2>' in page
    assert "temps-channel</a></h2>" in page
    for words in ("temps-kept", "http://127.0.0.1:9/temps", "http://127.0.0.1:9/dead", "temps-subscriber"):
        assert words in page
    # The Broker of this Trigger does not exist.
    assert "broker nowhere</h2>" in page
    assert ">paused</td>" in page
    assert "not ready: " in page


def test_a_namespace_that_the_user_may_not_read_is_refused_within_the_page(reader: Person) -> None:
    for namespace in ("vault", ""):
        answer = reader.get(f"/map?namespace={namespace}")
        assert answer.status == 403
        assert "is forbidden" in answer.text
        assert "secret" not in answer.text
        assert 'id="namespace"' in answer.text
    assert reader.get("/map?namespace=weather").status == 200
    # The session remembers the namespace.
    assert "temps-kept" in reader.get("/map").text


def test_all_namespaces_show_which_one_an_object_is_in(admin: Person) -> None:
    page = admin.get("/map?namespace=").text
    assert "<small>in vault</small>" in page
    assert "<small>in weather</small>" in page
    assert '<option value="vault">' in page


def test_a_search_finds_names_and_urls_and_states(admin: Person) -> None:
    found = admin.get("/map?namespace=weather&find=SUBSCRIBER").text
    assert "temps-subscription" in found
    assert "temps-kept" not in found
    paused = admin.get("/map?namespace=weather&state=paused").text
    assert "temps-subscription" in paused
    assert "temps-kept" not in paused
    odd = admin.get("/map?namespace=weather&find=%3Cb%3E&state=%3Cb%3E&page=-1").text
    assert "Nothing that you may see is like this." in odd
    assert "<b>" not in odd


def test_odd_namespaces_reach_no_other_path_of_the_api(admin: Person) -> None:
    for namespace in ("../..", "weather/brokers/temps", "%2e%2e", "a?b=c", "ä", "x" * 5000):
        assert admin.get(f"/map?namespace={namespace.replace('ä', '%C3%A4')}").status in {200, 400, 403, 404}


def test_the_figures_of_a_page_are_a_stream(reader: Person) -> None:
    with reader.open_stream("/map/figures?namespace=weather&row=trigger/weather/temps-kept") as stream:
        assert stream.answer.status == 200
        assert stream.answer.readline() == b"event: figures\n"
        figures = json.loads(stream.answer.readline().removeprefix(b"data: "))
    assert figures["trigger/weather/temps-kept"]["state"] == "ready"
    assert len(figures) == 1


def test_a_long_list_has_pages(guarded_gateway: GatewayProcess, admin: Person) -> None:
    triggers = "\n---\n".join(TRIGGER.format(number=number) for number in range(51))
    file = guarded_gateway.folder / "many.yaml"
    file.write_text(triggers)
    guarded_gateway.cli("apply", "-f", str(file), "--token", ADMIN)
    first = admin.get("/map?namespace=many").text
    assert "1 to 50 of 51" in first
    assert "trigger-49" in first
    assert "trigger-50" not in first
    # The next page is one of the same reading.
    removed = ("delete", "trigger", "trigger-00", "-n", "many", "--token", ADMIN)
    guarded_gateway.cli(*removed)
    last = admin.get("/map?namespace=many&page=2").text
    assert "51 to 51 of 51" in last
    assert "trigger-50" in last
    assert "trigger-49" not in last
    assert "1 to 50 of 50" in admin.get("/map?namespace=many").text


def test_names_and_reasons_are_text(guarded_gateway: GatewayProcess, admin: Person) -> None:
    file = guarded_gateway.folder / "hostile.yaml"
    file.write_text(
        RESOURCES.format(name="odd", namespace="hostile").replace(
            "/odd-subscriber", "/<script>alert(1)</script>"
        )
    )
    guarded_gateway.cli("apply", "-f", str(file), "--token", ADMIN)
    page = admin.get("/map?namespace=hostile").text
    assert "odd-subscription" in page
    assert "<script>alert" not in page
