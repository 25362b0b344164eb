"""Run by test_mutants.py in copies of the checkout: it fails where the module cannot be imported."""

import importlib

import pytest


def test_the_module_can_be_imported() -> None:
    try:
        importlib.import_module("service_parts.errors")
    except RuntimeError as error:
        pytest.fail(str(error))
