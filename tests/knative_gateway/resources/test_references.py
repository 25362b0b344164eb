from knative_gateway.resources.references import foreign


def test_references_to_other_namespaces_are_found_where_they_are_new() -> None:
    spec = {
        "config": {"namespace": "a"},
        "subscriber": {"ref": {"namespace": "b"}},
        "reply": {"ref": {"namespace": "n"}},
        "delivery": {"deadLetterSink": {"ref": {"namespace": "c"}}},
    }
    object_ = {"metadata": {"namespace": "n"}, "spec": spec}
    assert foreign(object_, None) == {"a", "b", "c"}
    assert foreign(object_, object_) == set()
    assert foreign(object_, {"spec": {"config": {"namespace": "a"}}}) == {"b", "c"}
    assert foreign({"metadata": {"namespace": "n"}}, None) == set()
