"""Names of sections and fields, as the standards spell them and as people do."""

from amqp_streams.filters.fields import FIELD_TYPES, POSITIONS, SECTIONS, field_name, known_field, spellings
from amqp_streams.wire.layout import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)


def test_a_name_has_three_spellings():
    assert spellings("reply-to-group-id") == ("reply-to-group-id", "reply_to_group_id", "replyToGroupId")
    assert set(spellings("to")) == {"to"}


def test_sections_have_their_names_and_a_letter():
    assert {
        SECTIONS[name] for name in ("m", "message-annotations", "message_annotations", "messageAnnotations")
    } == {MESSAGE_ANNOTATIONS}
    assert "A" not in SECTIONS
    assert len(SECTIONS.keys() & set("hdmpaf")) == 6


def test_fields_are_where_the_standard_has_them():
    """AMQP 3.2.1, 3.2.4."""
    assert POSITIONS[HEADER]["delivery-count"] == 4
    assert POSITIONS[PROPERTIES]["reply-to-group-id"] == 12
    assert set(FIELD_TYPES) == set(POSITIONS[HEADER]) | set(POSITIONS[PROPERTIES])


def test_only_header_and_properties_know_all_their_fields():
    assert field_name(PROPERTIES, "contentType") == "content-type"
    assert field_name(PROPERTIES, "anything") is None
    assert field_name(APPLICATION_PROPERTIES, "contentType") == "contentType"
    assert field_name(DELIVERY_ANNOTATIONS, "event_streams_offset") == "event-streams-offset"
    assert field_name(DELIVERY_ANNOTATIONS, "anything") == "anything"
    assert known_field(DELIVERY_ANNOTATIONS, "anything") is None
