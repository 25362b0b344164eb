"""The message about a missing library names the extra that contains it."""

import pytest

from service_parts.extras import MissingExtraError, needs_extra


def test_a_missing_library_is_reported_with_the_command_that_installs_it() -> None:
    with pytest.raises(MissingExtraError) as caught, needs_extra("serve", "node"):
        import no_such_library.part  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    assert str(caught.value) == "serve needs the node extra: pip install 'amqp-event-streams[node]'"


def test_a_missing_module_of_an_installed_package_is_another_fault() -> None:
    with (
        pytest.raises(ModuleNotFoundError, match=r"service_parts\.no_such_module"),
        needs_extra("serve", "node"),
    ):
        import service_parts.no_such_module  # type: ignore[import-not-found]  # noqa: F401, PLC0415


def test_installed_libraries_are_imported_without_an_error() -> None:
    with needs_extra("serve", "node"):
        import click  # noqa: PLC0415
    assert click.__name__ == "click"
