"""The names of settings that differ."""

from pydantic import BaseModel

from service_parts.settings.differences import differences


class Section(BaseModel):
    first: int = 1
    second: int = 2


class Settings(BaseModel):
    name: str = "a"
    section: Section = Section()
    other: Section | None = None


def test_settings_in_sections_are_named_with_their_section() -> None:
    old = Settings()
    assert not list(differences(old, Settings()))
    new = Settings(name="b", section=Section(second=3))
    assert list(differences(old, new)) == ["name", "section.second"]


def test_a_section_that_appears_is_named_as_a_whole() -> None:
    assert list(differences(Settings(), Settings(other=Section()))) == ["other"]
