from knative_gateway.resources.refusals import (
    Because,
    Cause,
    already_exists,
    apply_conflict,
    invalid,
    not_found,
    outdated,
)


def test_an_invalid_object_is_reported_field_by_field() -> None:
    causes = [
        Cause(Because.REQUIRED, "spec.broker", ""),
        Cause(Because.INVALID, "spec.delivery.retry", "-1: must be at least 0"),
    ]
    refused = invalid("eventing.knative.dev", "Trigger", "t", causes)
    assert refused.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'Trigger.eventing.knative.dev "t" is invalid: '
        "[spec.broker: Required value, spec.delivery.retry: Invalid value: -1: must be at least 0]",
        "reason": "Invalid",
        "details": {
            "name": "t",
            "group": "eventing.knative.dev",
            "kind": "Trigger",
            "causes": [
                {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.broker"},
                {
                    "reason": "FieldValueInvalid",
                    "message": "Invalid value: -1: must be at least 0",
                    "field": "spec.delivery.retry",
                },
            ],
        },
        "code": 422,
    }


def test_a_single_cause_has_no_brackets() -> None:
    refused = invalid("", "ConfigMap", "c", [Cause(Because.REQUIRED, "metadata.name", "")])
    assert str(refused) == 'ConfigMap "c" is invalid: metadata.name: Required value'


def test_the_usual_refusals_have_their_codes_and_reasons() -> None:
    refusals = [
        not_found("g", "things", "x"),
        already_exists("", "services", "x"),
        outdated("g", "things", "x"),
    ]
    assert [(each.code, each.reason) for each in refusals] == [
        (404, "NotFound"),
        (409, "AlreadyExists"),
        (409, "Conflict"),
    ]
    assert [str(each).split('"')[0] for each in refusals] == [
        "things.g ",
        "services ",
        "Operation cannot be fulfilled on things.g ",
    ]


def test_an_apply_conflict_names_field_and_manager() -> None:
    refused = apply_conflict([Cause(Because.CONFLICT, ".spec.broker", 'conflict with "other"')])
    assert str(refused) == 'Apply failed with 1 conflict: conflict with "other": .spec.broker'
    assert refused.status()["details"] == {
        "causes": [
            {"reason": "FieldManagerConflict", "message": 'conflict with "other"', "field": ".spec.broker"}
        ]
    }
