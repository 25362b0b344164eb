"""A store recognises a question that is asked again by its value."""

from amqp_streams.config import LogSettings
from amqp_streams.storage.questions import Create, Delete, Find, Question, Refresh, Update


def questions() -> list[Question]:
    settings = LogSettings(partitions=2)
    return [
        Create("log", settings, "i"),
        Update("log", settings),
        Delete("log"),
        Find("log"),
        Refresh("log", (0, 1)),
        Refresh("log", (0,)),
    ]


def test_equal_questions_are_the_same_question_and_others_are_not() -> None:
    assert questions() == questions()
    for index, question in enumerate(questions()):
        assert [question == other for other in questions()] == [
            index == other for other in range(len(questions()))
        ]
