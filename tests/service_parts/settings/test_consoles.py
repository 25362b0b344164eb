"""The settings of a web console that a service runs."""

import pytest
from pydantic import ValidationError

from service_parts.settings.consoles import ConsoleSettings


@pytest.mark.parametrize("url", ["amqp://ann:s3cret@node", "https://ann@gateway"])
def test_a_url_with_a_user_is_refused_because_all_people_would_be_this_user(url: str) -> None:
    with pytest.raises(ValidationError, match="url must not contain a user or password") as got:
        ConsoleSettings.model_validate({"listen": "127.0.0.1:0", "url": url})
    assert "s3cret" not in str(got.value.errors(include_url=False, include_input=False))
